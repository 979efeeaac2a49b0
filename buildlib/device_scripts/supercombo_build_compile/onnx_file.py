"""What an ONNX file says of itself, read without the onnx package and without running what it names."""

from __future__ import annotations

import base64
import io
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .shared import BAD_METADATA, BAD_ONNX, Failure


def read_properties(path: Path) -> dict[str, str]:
    """metadata_props of an ONNX file, read from the top level of its protobuf (field 14: key 1, value 2)."""
    properties = {}
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(64)
            if head.startswith(b"version https://git-lfs"):
                raise Failure(BAD_ONNX, f"{path} is a git-lfs pointer, not the model: run `git lfs pull` beside it")
            if head.lstrip()[:1] == b"<":
                raise Failure(BAD_ONNX, f"{path} is a web page, not a model")
            file.seek(0)
            fields = []
            for number, value in _fields(file, size, keep={14}):
                fields.append(number)
                if number == 14:
                    pair = dict(_fields(io.BytesIO(value), len(value), keep={1, 2}))
                    properties[pair.get(1, b"").decode()] = pair.get(2, b"").decode()
    except OSError as error:
        raise Failure(BAD_ONNX, f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Failure(BAD_ONNX, f"{path} is no ONNX model, or is truncated: {error}") from None
    if 7 not in fields:
        raise Failure(BAD_ONNX, f"{path} is no ONNX model: it holds no graph")
    return properties


def _fields(file: BinaryIO, size: int, keep: set[int]) -> Iterator[tuple[int, bytes]]:
    """(number, content) of each field of a protobuf message; the content of fields not in `keep` is skipped."""

    def varint() -> int:
        value = 0
        for shift in range(0, 70, 7):
            if not (byte := file.read(1)):
                raise ValueError("it ends in mid-field")
            value |= (byte[0] & 127) << shift
            if byte[0] < 128:
                return value
        raise ValueError("a number is too long")

    while file.tell() < size:
        tag = varint()
        kind = tag & 7
        if kind == 0:
            varint()
            yield tag >> 3, b""
            continue
        if kind not in (1, 2, 5) or not tag >> 3:
            raise ValueError(f"byte {file.tell()} starts no field")
        length = varint() if kind == 2 else {1: 8, 5: 4}[kind]
        if file.tell() + length > size:
            raise ValueError(f"a field of {length} bytes at {file.tell()} passes its end at {size}")
        if tag >> 3 in keep:
            yield tag >> 3, file.read(length)
        else:
            file.seek(length, os.SEEK_CUR)
            yield tag >> 3, b""


class _SlicesOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module in ("builtins", "__builtin__") and name in ("slice", "dict"):
            return {"slice": slice, "dict": dict}[name]
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def read_slices(encoded: str | None) -> dict[str, slice]:
    """Decodes metadata_props["output_slices"] without running what it names."""
    if encoded is None:
        raise Failure(BAD_METADATA, "the ONNX has no metadata property output_slices: not a driving model's export")
    try:
        slices = _SlicesOnly(io.BytesIO(base64.b64decode(encoded))).load()
    except Exception as error:  # noqa: BLE001 - a hostile or broken pickle raises whatever it likes
        raise Failure(BAD_METADATA, f"output_slices cannot be read safely: {error}") from None
    good = isinstance(slices, dict) and all(
        isinstance(name, str)
        and isinstance(part, slice)
        and all(isinstance(edge, int) for edge in (part.start, part.stop))
        and part.step in (None, 1)
        and 0 <= part.start <= part.stop
        for name, part in slices.items()
    )
    if not good:
        raise Failure(BAD_METADATA, "output_slices: expected a dict of name -> slice(start, stop)")
    return dict(slices)
