"""Changes inside real pickles: what a QCOM artifact looks like can so be made from one that was captured on the CPU."""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator

Edit = Callable[[str, object, bytes], bytes | None]
"""edit(opcode name, argument, raw bytes) -> other raw bytes, or None to leave the opcode as it is."""


def opcodes(pickle: bytes) -> Iterator[tuple[str, object, bytes]]:
    """(name, argument, raw bytes) of every opcode, framing left out: a pickle needs no frames."""
    found = [(op.name, argument, position) for op, argument, position in pickletools.genops(pickle)]
    ends = [*(position for _, _, position in found[1:]), len(pickle)]
    for (name, argument, position), end in zip(found, ends, strict=True):
        if name == "STOP":
            end = (position or 0) + 1
        if name != "FRAME":
            yield name, argument, pickle[position:end]


def rewrite(pickle: bytes, edit: Edit) -> bytes:
    """The pickle with every opcode passed through `edit`."""
    changed = []
    for name, argument, raw in opcodes(pickle):
        new = edit(name, argument, raw)
        changed.append(raw if new is None else new)
    return b"".join(changed)


def text(value: str) -> bytes:
    """The opcode that pushes a short string."""
    raw = value.encode()
    return b"\x8c" + bytes([len(raw)]) + raw


def rename(pickle: bytes, names: dict[str, str]) -> bytes:
    """Replaces whole strings, wherever they stand."""

    def edit(name: str, argument: object, raw: bytes) -> bytes | None:
        if name in ("SHORT_BINUNICODE", "BINUNICODE") and isinstance(argument, str) and argument in names:
            return text(names[argument])
        return None

    return rewrite(pickle, edit)


def to_device(pickle: bytes, device: str, arch: str = "a630", *, leave: int | None = None) -> bytes:
    """A CPU capture with its device strings and targets renamed.

    leave: the number of the mention of the device (from 0) that stays CPU, as in an artifact of mixed devices.
    """
    mention = _Mentions()

    def edit(name: str, argument: object, raw: bytes) -> bytes | None:
        number = mention.see(name, argument)
        if number is not None and number == leave:
            return text("CPU")
        if name == "SHORT_BINUNICODE" and argument == "CPU":
            return text(device)
        if name == "SHORT_BINUNICODE" and isinstance(argument, str) and argument.startswith(("x86_64,", "arm64,")):
            return text(arch)
        return None

    return rewrite(pickle, edit)


def mentions_of_cpu(pickle: bytes) -> int:
    """How many mentions `to_device(leave=...)` can choose from."""
    mention = _Mentions()
    return sum(mention.see(name, argument) is not None for name, argument, _ in opcodes(pickle))


class _Mentions:
    """Numbers every place where "CPU" is written out or taken from the memo."""

    def __init__(self) -> None:
        self._memo: set[int] = set()
        self._memoized = 0
        self._count = 0
        self._last: object = None

    def see(self, name: str, argument: object) -> int | None:
        if name == "MEMOIZE":
            if self._last == "CPU":
                self._memo.add(self._memoized)
            self._memoized += 1
        self._last = argument
        written = name == "SHORT_BINUNICODE" and argument == "CPU"
        taken = name in ("BINGET", "LONG_BINGET") and argument in self._memo
        if not written and not taken:
            return None
        self._count += 1
        return self._count - 1
