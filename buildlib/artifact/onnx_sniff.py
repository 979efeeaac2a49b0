"""A first look at a file that should be an ONNX: what else it is, or where it was cut, without the onnx package.

An ONNX is a protobuf message whose top level holds a handful of fields, each with its length in front. Adding up those
lengths by seeking tells a truncated file from a whole one in microseconds, at any size.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from buildlib.core.sources.file_kinds import what_else
from buildlib.errors import SourceError
from buildlib.store import files

SIZE_LIMIT = 1 << 31
"""Bytes. A protobuf message cannot be longer."""
_HEAD = 4096
_MAX_FIELDS = 10_000
# ModelProto's fields (onnx.proto): 1 ir_version, 2..4 producer and domain, 5 model_version, 6 doc, 7 graph,
# 8 opset_import, 14 metadata_props, 20 training_info, 25 functions, 26 configuration.
_GRAPH, _OPSETS = 7, 8
_KNOWN = {1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26}


def sniff_onnx(path: Path, *, where: str | None = None) -> int:
    """Size in bytes of a file that looks like a whole ONNX. Raises SourceError that says what it is instead.

    where: how to name the file to a person; its path by default.
    """
    name = where or str(path)
    try:
        if odd := files.special(path):
            raise SourceError("no plain file", where=name, expected="an ONNX file", got=odd, remedy="name a file")
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            start = file.read(_HEAD)
            _check_start(name, start, size)
            file.seek(0)
            _check_fields(name, file, size)
    except FileNotFoundError:
        raise SourceError("there is no such file", where=name, remedy="correct the path") from None
    except IsADirectoryError:
        raise SourceError(
            "a folder, not a file", where=name, expected="an ONNX file", remedy="name the .onnx in it"
        ) from None
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror or error}", where=name) from None
    return size


def _check_start(name: str, start: bytes, size: int) -> None:
    if size == 0:
        raise SourceError("empty (0 bytes)", where=name, expected="an ONNX", remedy="fetch or copy it again")
    if other := what_else(start):
        raise SourceError("not an ONNX", where=name, expected="an ONNX", got=other[0], remedy=other[1])
    if not any(start):
        raise SourceError(
            "it starts with zeros",
            where=name,
            expected="an ONNX",
            got="zero bytes",
            remedy="copy it again: a cut copy?",
        )
    if size >= SIZE_LIMIT:
        raise SourceError(
            "too large for one ONNX file", where=name, expected=f"under {SIZE_LIMIT} bytes", got=f"{size} bytes"
        )


def _check_fields(name: str, file: BinaryIO, size: int) -> None:
    seen: set[int] = set()
    position = 0
    for _ in range(_MAX_FIELDS):
        if position == size:
            break
        try:
            key = _varint(file)
            field, wire = key >> 3, key & 7
            if wire == 0:
                _varint(file)
                position = file.tell()
            else:
                length = {1: 8, 5: 4}.get(wire) if wire != 2 else _varint(file)
                if length is None:
                    raise _not_onnx(name)
                position = file.tell() + length
        except EOFError:
            raise _truncated(name, seen, None, size) from None
        except ValueError:
            raise _not_onnx(name) from None
        if field not in _KNOWN and not seen & {1, _GRAPH}:
            raise _not_onnx(name)
        if position > size:
            raise _truncated(name, seen, position, size)
        seen.add(field)
        file.seek(position)
    if _GRAPH not in seen:
        # A cut exactly between two fields leaves a valid message with the graph or the opsets missing.
        raise _not_onnx(name) if 1 not in seen else _truncated(name, seen, None, size)
    if _OPSETS not in seen:
        raise SourceError(
            "incomplete ONNX: it names no opset",
            where=name,
            expected="an opset_import",
            got=f"{size} bytes that end before it",
            remedy="fetch or copy it again: it may be cut short",
        )


def _varint(file: BinaryIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            raise EOFError
        value |= (byte[0] & 0x7F) << shift
        if not byte[0] & 0x80:
            return value
    raise ValueError("varint")


def _not_onnx(name: str) -> SourceError:
    return SourceError(
        "not an ONNX",
        where=name,
        expected="an ONNX (a protobuf message)",
        got="other binary data",
        remedy="check which file this is; the source is the .onnx, not the compiled .pkl",
    )


def _truncated(name: str, seen: set[int], needed: int | None, size: int) -> SourceError:
    if not seen & {1, _GRAPH} and needed is None:
        return _not_onnx(name)
    return SourceError(
        "a truncated ONNX",
        where=name,
        expected=f"at least {needed} bytes by its own length fields" if needed else "a graph",
        got=f"{size} bytes",
        remedy="fetch or copy it again and compare its size with the original's",
    )
