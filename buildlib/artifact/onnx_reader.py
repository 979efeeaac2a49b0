"""Reads an ONNX without running it: inputs, outputs, operators, weights, metadata, external data.

The onnx package's own protobuf classes do the parsing; everything that a damaged or hostile file can do ends in a
SourceError. `output_slices` is decoded by `core.sources.output_slices`, never unpickled.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import util
from importlib.machinery import PathFinder
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

from buildlib.artifact.onnx_sniff import sniff_onnx
from buildlib.core.sources.onnx_inspection import Dim, OnnxInspection, TensorSpec
from buildlib.core.sources.output_slices import BadSlices, decode_output_slices, resolve_spans
from buildlib.errors import SourceError

_MAX_DEPTH = 16
_METADATA_KEPT = 4096
"""Characters of one metadata value that are kept."""


def inspect_onnx(path: Path, *, where: str | None = None) -> OnnxInspection:
    """Everything that an ONNX says about itself. Raises SourceError for whatever is no whole ONNX.

    where: how to name the file to a person; its path by default.
    """
    name = where or str(path)
    size = sniff_onnx(path, where=name)
    model = _load(path, name)
    weights = _Weights(name, path)
    operators: Counter[str] = Counter()
    for graph in _graphs(model, name):
        operators.update(_operator(node) for node in graph.node)
        for tensor in _tensors(graph):
            weights.add(tensor)
    initializers = {tensor.name for tensor in model.graph.initializer}
    inputs = tuple(_spec(value) for value in model.graph.input if value.name not in initializers)
    outputs = tuple(_spec(value) for value in model.graph.output)
    _check_wiring(model.graph, name)
    metadata = {_name(entry.key): _text(entry.value) for entry in model.metadata_props}
    slices, problem = _slices(metadata.pop("output_slices", None), outputs)
    return OnnxInspection(
        file_bytes=size,
        producer=f"{_name(model.producer_name)} {_name(model.producer_version)}".strip(),
        graph=_name(model.graph.name),
        ir_version=model.ir_version,
        opsets={_name(opset.domain): opset.version for opset in model.opset_import},
        inputs=inputs,
        outputs=outputs,
        operators=dict(sorted(operators.items())),
        weight_bytes=sum(weights.by_dtype.values()),
        weight_count=weights.count,
        weight_dtypes=dict(sorted(weights.by_dtype.items())),
        external_files=tuple(sorted(weights.external)),
        metadata={key: value[:_METADATA_KEPT] for key, value in sorted(metadata.items())},
        output_slices=slices,
        slices_problem=problem,
    )


@cache
def _messages() -> Any:
    """onnx's protobuf classes alone: its package brings numpy and ml_dtypes, a second of CPU for nothing here.

    A module of our own, not the package's: that one may be half loaded by another thread.
    """
    package = util.find_spec("onnx")
    spec = PathFinder.find_spec("onnx.onnx_ml_pb2", package.submodule_search_locations if package else None)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("onnx has no module onnx_ml_pb2", name="onnx")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load(path: Path, name: str) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return _messages().ModelProto.FromString(path.read_bytes())
    except (DecodeError, ValueError, RecursionError, MemoryError) as error:
        raise SourceError(
            "a damaged ONNX",
            where=name,
            expected="a protobuf message that parses",
            got=f"{type(error).__name__}",
            remedy="fetch or copy it again and compare its sha256 with the original's",
        ) from None
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror or error}", where=name) from None


def _graphs(model: Any, name: str) -> Iterator[Any]:
    """The graph and those nested in its nodes' attributes."""
    pending = [(model.graph, 0)]
    while pending:
        graph, depth = pending.pop()
        if depth > _MAX_DEPTH:
            raise SourceError("graphs nested too deeply", where=name, expected=f"at most {_MAX_DEPTH} levels")
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    pending.append((attribute.g, depth + 1))
                pending.extend((nested, depth + 1) for nested in attribute.graphs)


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _operator(node: Any) -> str:
    domain, operator = _name(node.domain), _name(node.op_type)
    return operator if domain in ("", "ai.onnx") else f"{domain}:{operator}"


def _text(value: str | bytes) -> str:
    """A string field. protobuf hands out one that is no UTF-8 as bytes."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def _name(value: str | bytes) -> str:
    """A name fit to be shown: nothing in it breaks a line or steers a terminal."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in _text(value))


def _dtype_name(number: int) -> str:
    try:
        name = str(_messages().TensorProto.DataType.Name(number)).lower()
    except ValueError:
        return f"dtype {number}"
    return {"float": "float32", "double": "float64"}.get(name, name)


def _spec(value: Any) -> TensorSpec:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return TensorSpec(name=_name(value.name), dtype=(kind or "untyped").removesuffix("_type"), shape=None)
    tensor = value.type.tensor_type
    shape: tuple[Dim, ...] | None = None
    if tensor.HasField("shape"):
        shape = tuple(_dim(dim) for dim in tensor.shape.dim)
    return TensorSpec(name=_name(value.name), dtype=_dtype_name(tensor.elem_type), shape=shape)


def _dim(dim: Any) -> Dim:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return _name(dim.dim_param) or None if kind == "dim_param" else None


class _Weights:
    """Adds up tensors and checks that each holds as many bytes as its shape says."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.folder = path.parent
        self.by_dtype: Counter[str] = Counter()
        self.count = 0
        self.external: set[str] = set()

    def add(self, tensor: Any) -> None:
        dims = list(tensor.dims)
        dtype = _dtype_name(tensor.data_type)
        if any(dim < 0 for dim in dims):
            raise self._damaged(tensor, "sizes of 0 or more", str(dims))
        elements = prod(dims)
        nbytes = _bytes_of(tensor.data_type, elements)
        if tensor.data_location == 1:
            self._check_external(tensor, nbytes)
        elif tensor.HasField("raw_data") and nbytes is not None and len(tensor.raw_data) != nbytes:
            raise self._damaged(tensor, f"{nbytes} bytes for {dtype} {tuple(dims)}", f"{len(tensor.raw_data)}")
        elif not tensor.HasField("raw_data") and elements and not _has_typed_data(tensor):
            raise self._damaged(tensor, f"{elements} values", "none")
        self.count += 1
        self.by_dtype[dtype] += nbytes or 0

    def _check_external(self, tensor: Any, nbytes: int | None) -> None:
        fields = {_text(entry.key): _text(entry.value) for entry in tensor.external_data}
        location = fields.get("location", "")
        file = self._inside(location)
        try:
            offset = int(fields.get("offset", "0") or 0)
            length = int(fields["length"]) if "length" in fields else nbytes
        except ValueError:
            raise self._damaged(tensor, "offset and length as numbers", str(fields)) from None
        if length is None or offset < 0 or length < 0 or (nbytes is not None and length != nbytes):
            raise self._damaged(tensor, f"{nbytes} bytes of external data", f"{length}")
        if offset + length > file.stat().st_size:
            raise SourceError(
                f"external data {location!r} is truncated",
                where=self.name,
                expected=f"at least {offset + length} bytes",
                got=f"{file.stat().st_size} bytes",
                remedy=f"copy {location} again, beside the ONNX",
            )
        self.external.add(location)

    def _inside(self, location: str) -> Path:
        """The file of that location, which must be a plain file inside the ONNX's own folder."""
        parts = PurePosixPath(location)
        odd = "\\" in location or "\0" in location or ":" in location
        if not location or odd or parts.is_absolute() or ".." in parts.parts:
            raise SourceError(
                "external data outside its folder",
                where=self.name,
                expected="a path inside the ONNX's own folder",
                got=repr(location),
                remedy="save the model with its weights inside: onnx.save(onnx.load(FILE), OUT)",
            )
        file = self.folder / location
        try:
            inside = file.resolve(strict=True).is_relative_to(self.folder.resolve())
        except (OSError, RuntimeError):
            raise SourceError(
                f"external data {location!r} is missing",
                where=self.name,
                expected=f"{location} beside the ONNX",
                remedy=f"copy {location} too, or save the model with its weights inside",
            ) from None
        if not inside or not file.is_file():
            raise SourceError(
                "external data outside its folder",
                where=self.name,
                expected="a plain file inside the ONNX's own folder",
                got=f"{location!r}, which leads out of it",
                remedy="replace the link by the file itself",
            )
        return file

    def _damaged(self, tensor: Any, expected: str, got: str) -> SourceError:
        return SourceError(
            f"a damaged ONNX: weight {_name(tensor.name)[:80]!r}",
            where=self.name,
            expected=expected,
            got=got,
            remedy="fetch or copy it again and compare its sha256 with the original's",
        )


def _bytes_of(data_type: int, elements: int) -> int | None:
    """Bytes in raw form; None for types without one (strings) or unknown here."""
    name = _dtype_name(data_type)
    found = re.match("[a-z]+([0-9]+)", "bool8" if name == "bool" else name)
    if not found:
        return None
    bits = int(found[1])
    # Two and four bits are packed; six take a byte.
    return (elements * (8 if bits == 6 else bits) + 7) // 8


def _has_typed_data(tensor: Any) -> bool:
    fields = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
    return any(len(getattr(tensor, field)) for field in fields)


def _check_wiring(graph: Any, name: str) -> None:
    """Every value that a node or an output uses is made before it: flipped bytes in a name show here."""
    known = {""} | {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    known |= {sparse.values.name for sparse in graph.sparse_initializer}
    for node in graph.node:
        for used in node.input:
            if used not in known:
                raise _dangling(name, f"{_operator(node)} uses {_name(used)[:80]!r}")
        known.update(node.output)
    for value in graph.output:
        if value.name not in known:
            raise _dangling(name, f"output {_name(value.name)[:80]!r}")


def _dangling(name: str, what: str) -> SourceError:
    return SourceError(
        "a damaged ONNX",
        where=name,
        expected="every value to be made before it is used",
        got=f"{what}, which nothing makes",
        remedy="fetch or copy it again and compare its sha256 with the original's",
    )


def _slices(text: str | None, outputs: tuple[TensorSpec, ...]) -> tuple[dict[str, tuple[int, int]] | None, str]:
    if text is None:
        return None, ""
    try:
        spans = decode_output_slices(text)
        length = _flat_length(outputs)
        if length is None:
            raise BadSlices("the length of the flat output that it cuts is not stated")
        return resolve_spans(spans, length), ""
    except BadSlices as error:
        return None, str(error)


def _flat_length(outputs: tuple[TensorSpec, ...]) -> int | None:
    """Values in the first output, behind its batch size."""
    if not outputs or not outputs[0].shape or not outputs[0].is_static:
        return None
    return prod(dim for dim in outputs[0].shape[1:] if isinstance(dim, int))
