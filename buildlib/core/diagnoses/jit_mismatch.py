"""Takes tinygrad's "args mismatch in JIT" apart: which argument differs, and in what.

The message holds both sides as Python text, over many lines (one UOp a line) or one, in the way of its version:

    args mismatch in JIT: self.captured.expected_names=['a', 'b'] != ['a']
    args mismatch in JIT: self.captured.expected_input_info=[(UOp(..), (), dtypes.uchar, 'CPU'), ..] != expected_..=[..]
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from buildlib.core.verdicts.contract import SUPERCOMBO, accepted_orders

Kind = Literal["names", "device", "frame_skip", "shape", "dtype"]

_NAMES: Final = re.compile(r"expected_names=(\[[^\]]{0,2000}\]) != (\[[^\]]{0,2000}\])")
_INFO: Final = re.compile(r"expected_input_info=\[")
_ENTRY_END: Final = re.compile(r"dtypes\.(\w+), '([^']{1,60})'\)")
_SHAPE: Final = re.compile(
    r"vec\((?P<lanes>\d{1,2})\), arg=(?P<folded>\d{1,15})|arg=\((?P<tuple>\d[\d, ]{0,200})\)|arg=(?P<one>\d{1,15})"
)
_QUEUE_TAILS: Final = frozenset({(6, 128, 256), (1, 512), (1, 8)})
_LONGEST: Final = 200_000


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """argument: its name where it can be told, else "argument 3". captured, passed: the two sides."""

    kind: Kind
    argument: str
    captured: str
    passed: str


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    shape: tuple[int, ...]
    dtype: str
    device: str


def differences(message: str) -> tuple[Difference, ...]:
    """What differs between the captured arguments and those of the call; empty if the message cannot be read.

    message: log text from "args mismatch in JIT" on.
    """
    message = message[:_LONGEST]
    names = _NAMES.search(message)
    if names:
        return (Difference(kind="names", argument="names", captured=names[1], passed=names[2]),)
    starts = [one.end() for one in _INFO.finditer(message)]
    if len(starts) < 2:
        return ()
    captured, passed = _entries(message[starts[0] : starts[1]]), _entries(message[starts[1] :])
    count = min(len(captured), len(passed))
    found: list[Difference] = []
    for index in range(count):
        found.extend(_compare(_name(index, len(captured)), captured[index], passed[index]))
    if len(captured) != len(passed):
        sides = f"{len(captured)} arguments", f"{len(passed)} arguments"
        found.append(Difference(kind="names", argument="arguments", captured=sides[0], passed=sides[1]))
    return tuple(found)


def _entries(side: str) -> list[_Entry]:
    """Each entry ends in its dtype and device; numbers before that, in order, are its shape."""
    found = []
    start = 0
    for end in _ENTRY_END.finditer(side):
        found.append(_Entry(shape=_shape(side[start : end.start()]), dtype=end[1], device=end[2]))
        start = end.end()
    return found


def _shape(text: str) -> tuple[int, ...]:
    sizes: list[int] = []
    for one in _SHAPE.finditer(text):
        if one["tuple"]:
            sizes += [int(size) for size in re.findall(r"\d{1,15}", one["tuple"])]
        elif one["folded"]:
            sizes += [int(one["folded"])] * min(int(one["lanes"]), 16)
        else:
            sizes.append(int(one["one"]))
    return tuple(sizes)


def _compare(argument: str, captured: _Entry, passed: _Entry) -> list[Difference]:
    found = []
    if captured.device != passed.device:
        found.append(Difference(kind="device", argument=argument, captured=captured.device, passed=passed.device))
    if captured.dtype != passed.dtype:
        found.append(Difference(kind="dtype", argument=argument, captured=captured.dtype, passed=passed.dtype))
    # A whole one-dimensional buffer is printed without its size.
    if captured.shape != passed.shape and captured.shape and passed.shape:
        tails = captured.shape[1:], passed.shape[1:]
        depth = tails[0] == tails[1] and tails[0] in _QUEUE_TAILS and argument != "warped"
        left, right = (
            (f"arg={captured.shape[0]}", f"arg={passed.shape[0]}")
            if depth
            else (str(captured.shape), str(passed.shape))
        )
        kind: Kind = "frame_skip" if depth else "shape"
        found.append(Difference(kind=kind, argument=argument, captured=left, passed=right))
    return found


def _name(index: int, count: int) -> str:
    """tinygrad does not print names beside the entries; the runtime's own calls have known ones."""
    for rule in SUPERCOMBO.jits:
        order = accepted_orders(rule)[0]
        if len(order) == count:
            return order[index]
    return f"argument {index}"
