"""A forward cursor over part of a ByteSource that believes no length before it has compared it with what is left."""

from __future__ import annotations

from typing import Final, NoReturn

from buildlib.artifact.byte_source import ByteSource
from buildlib.artifact.refusals import COPY_AGAIN, Truncated

_WINDOW: Final = 256 * 1024


class ByteWindow:
    """Reads from `start` up to `end`, 256 KiB at a time; what is skipped is never read.

    `buffer` and `at` are open to the one loop whose speed counts; it may move `at` on inside `buffer`.
    """

    __slots__ = ("_base", "_end", "_source", "at", "buffer")

    def __init__(self, source: ByteSource, start: int, end: int) -> None:
        self._source = source
        self._end = end
        self._base = start
        self.buffer = b""
        self.at = 0

    @property
    def position(self) -> int:
        """Offset of the next byte in the source."""
        return self._base + self.at

    def take(self, length: int) -> bytes:
        """The next bytes, no more than a window holds."""
        if self.at + length > len(self.buffer):
            self.fill(length)
        found = self.buffer[self.at : self.at + length]
        self.at += length
        return found

    def unsigned(self, length: int) -> int:
        """A little-endian number of that many bytes."""
        return int.from_bytes(self.take(length), "little")

    def line(self, limit: int) -> bytes | None:
        """Bytes up to a newline, which is consumed; None if there is none within `limit`."""
        if len(self.buffer) - self.at < limit:
            self.fill(1)
        stop = self.buffer.find(b"\n", self.at, self.at + limit)
        if stop < 0:
            return None
        found = self.buffer[self.at : stop]
        self.at = stop + 1
        return found

    def skip(self, length: int) -> int:
        """Passes over that many bytes; the offset where they begin."""
        self.require(length)
        offset = self.position
        if self.at + length <= len(self.buffer):
            self.at += length
        else:
            self._base, self.at, self.buffer = offset + length, 0, b""
        return offset

    def require(self, length: int) -> None:
        """Raises Truncated unless that many bytes are left."""
        if length > self._end - self.position:
            self._truncated(length)

    def fill(self, need: int = 1) -> None:
        """Makes that many bytes, no more than a window holds, available in `buffer`. Raises Truncated."""
        self.require(need)
        position = self.position
        self.buffer = self._source.read_at(position, min(_WINDOW, self._end - position))
        self._base, self.at = position, 0
        if len(self.buffer) < need:
            self._truncated(need)

    def _truncated(self, need: int) -> NoReturn:
        raise Truncated(
            "the artifact is cut off",
            where=self._source.name,
            expected=f"{need:,} bytes at offset {self.position:,}",
            got=f"{self._end - self.position:,}",
            guide="11",
            remedy=COPY_AGAIN,
        )
