"""Where in an artifact its pickle lies: from the first byte, or behind a length with its buffers after it.

The out-of-band form (facts, section 1) has no magic number: `<int64 n><n bytes of opcodes>`, then `<int64 n><n bytes>`
for each buffer. Only lengths that add up to the file's size tell that it is whole.
"""

from __future__ import annotations

from typing import Final

import msgspec

from buildlib.artifact.byte_source import ByteSource
from buildlib.artifact.pickle_machine import DEFAULT_LIMITS
from buildlib.artifact.refusals import COPY_AGAIN, Damaged, NotAnArtifact, TooMuch, Truncated
from buildlib.artifact.values import Payload

_PROTO: Final = 0x80
_KINDS: Final = (
    (b"version https://git-lfs", "a Git LFS pointer", "fetch the file itself: git lfs pull"),
    (b"<", "a web page or XML", "download it by the URL of the raw file"),
    (b"\x1f\x8b", "a gzip archive", "unpack it"),
    (b"PK\x03\x04", "a zip archive", "unpack it"),
    (b"\x08", "perhaps an ONNX model", "compile it: `doit compile`"),
)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets of the opcodes in the source, and the out-of-band buffers in order."""

    start: int
    end: int
    out_of_band: bool = False
    buffers: tuple[Payload, ...] = ()


def find_pickle(source: ByteSource) -> Found:
    """Tells the forms apart. Raises NotAnArtifact, Truncated or Damaged."""
    head = source.read_at(0, 64)
    length = int.from_bytes(head[:8], "little", signed=True)
    # The low byte of a length may be PROTO too; a pickle's ninth byte is never another PROTO.
    if len(head) >= 10 and _starts_pickle(head[8:10]) and length > 0:
        return _out_of_band(source, length)
    if _starts_pickle(head[:2]):
        return Found(start=0, end=source.size)
    raise _not_an_artifact(source, head)


def _starts_pickle(head: bytes) -> bool:
    return len(head) == 2 and head[0] == _PROTO and 2 <= head[1] <= 5


def _not_an_artifact(source: ByteSource, head: bytes) -> NotAnArtifact:
    if not source.size:
        return NotAnArtifact("is empty", where=source.name, guide="11", remedy=COPY_AGAIN)
    for magic, kind, remedy in _KINDS:
        if head.lstrip().startswith(magic):
            return NotAnArtifact("is no artifact", where=source.name, expected="a pickle", got=kind, remedy=remedy)
    return NotAnArtifact(
        "is no artifact",
        where=source.name,
        expected="a pickle of protocol 2 to 5",
        got=f"{source.size:,} bytes that begin with {head[:4].hex(' ')}",
        remedy=COPY_AGAIN,
    )


def _out_of_band(source: ByteSource, length: int) -> Found:
    end = 8 + length
    if end > source.size:
        raise _short(source, end)
    buffers: list[Payload] = []
    at = end
    while at < source.size:
        field = source.read_at(at, 8)
        if len(field) < 8:
            raise _short(source, at + 8)
        size = int.from_bytes(field, "little", signed=True)
        if size < 0:
            raise Damaged(f"a buffer of negative length at offset {at:,}", where=source.name, remedy=COPY_AGAIN)
        if at + 8 + size > source.size:
            raise _short(source, at + 8 + size)
        buffers.append(Payload(at + 8, size))
        at += 8 + size
        if len(buffers) > DEFAULT_LIMITS.buffers:
            raise TooMuch("more buffers than a captured jit has", where=source.name)
    return Found(start=8, end=end, out_of_band=True, buffers=tuple(buffers))


def _short(source: ByteSource, needed: int) -> Truncated:
    return Truncated(
        "the artifact is cut off",
        where=source.name,
        expected=f"at least {needed:,} bytes",
        got=f"{source.size:,}",
        guide="11",
        remedy=COPY_AGAIN,
    )
