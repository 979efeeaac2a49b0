"""What an ONNX says about itself: the value that `artifact.onnx_reader` makes and the pure checks judge."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

Dim = int | str | None
"""A size, the name of a free size, or None where the file says nothing."""


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One input or output. dtype as numpy calls it ("float16"); shape is None where none is stated."""

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None

    def text(self) -> str:
        """`float16 (1, 25, 8)`, free sizes by name or `?`."""
        if self.shape is None:
            return f"{self.dtype} of any shape"
        dims = ", ".join("?" if dim is None or dim == "" else str(dim) for dim in self.shape)
        return f"{self.dtype} ({dims})"

    @property
    def is_static(self) -> bool:
        """True when every size is a known number."""
        return self.shape is not None and all(isinstance(dim, int) and dim > 0 for dim in self.shape)


class OnnxInspection(msgspec.Struct, frozen=True, kw_only=True):
    """An ONNX as far as it can be read without running it.

    file_bytes: size of the file itself, without external data.
    inputs, outputs: in the file's order; inputs that are initializers (old files) are left out.
    opsets: domain -> version; ONNX's own domain is "".
    operators: operator -> how often, nested graphs included; other domains as "domain:Operator".
    weight_bytes, weight_count: of all initializers and constants, external ones included.
    weight_dtypes: dtype -> bytes.
    external_files: files beside it that hold weights, relative with "/" between parts.
    metadata: metadata_props as text, without output_slices.
    output_slices: output name -> (start, stop) within the flat output; None where there is none to be read.
    slices_problem: why output_slices could not be read, "" when nothing is wrong.
    """

    file_bytes: int
    producer: str
    graph: str
    ir_version: int
    opsets: Mapping[str, int]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    operators: Mapping[str, int]
    weight_bytes: int
    weight_count: int
    weight_dtypes: Mapping[str, int]
    external_files: tuple[str, ...] = ()
    metadata: Mapping[str, str] = {}
    output_slices: Mapping[str, tuple[int, int]] | None = None
    slices_problem: str = ""

    def input(self, name: str) -> TensorSpec | None:
        """The input of that name."""
        return next((spec for spec in self.inputs if spec.name == name), None)
