"""What the pickle reader makes in place of objects. Inert: no attribute lookup, no call, no hash of anything read.

None, bool, int, float, short str, short bytes, tuple and list stand for themselves. Dicts and sets are lists of their
items, because hashing a deeply shared tuple takes exponential time.
"""

from __future__ import annotations

from typing import Any

Value = Any
"""Any of the kinds above and below. `Any`, since every use must look at the kind anyway."""


class Payload:
    """Bytes (or text) that were skipped, not read. offset: position in the ByteSource. length: bytes."""

    __slots__ = ("length", "offset", "text")

    def __init__(self, offset: int, length: int, text: bool = False) -> None:
        self.offset = offset
        self.length = length
        self.text = text


class Global:
    """A name that unpickling would import: "tinygrad.device.Buffer"."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Made:
    """What unpickling would build: `maker(*args)`, then `state` set on it, then `extra` items put into it."""

    __slots__ = ("args", "extra", "maker", "state")

    def __init__(self, maker: Global, args: tuple[Value, ...]) -> None:
        self.maker = maker
        self.args = args
        self.state: Value = None
        self.extra: list[Value] | None = None

    @property
    def name(self) -> str:
        return self.maker.name

    def put(self, items: list[Value]) -> None:
        """Items that unpickling would append to it or set in it."""
        if self.extra is None:
            self.extra = []
        self.extra.extend(items)


class Dict:
    """A dict as the list of its items; a later item overrides an earlier one with the same key."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[tuple[Value, Value]] = []

    def get(self, key: str) -> Value:
        """The last value under a str key, or None."""
        for one, value in reversed(self.items):
            if type(one) is str and one == key:
                return value
        return None


class Set:
    """A set or frozenset as the list of its items."""

    __slots__ = ("items",)

    def __init__(self, items: list[Value]) -> None:
        self.items = items
