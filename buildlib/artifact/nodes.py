"""Fields of tinygrad's objects as they lie in a pickle, for 0.12, 0.13 and 0.14.

Numbers of operations differ between versions, so an operation is told by what hangs on it, never by its number.
Every function takes anything and answers None (or nothing) for what it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from buildlib.artifact.values import Dict, Made, Payload, Value

UOP: Final = "tinygrad.uop.ops.UOp"
BUFFER: Final = "tinygrad.device.Buffer"
CAPTURED: Final = "tinygrad.engine.jit.CapturedJit"
JITS: Final = ("tinygrad.engine.jit._TinyJit", "tinygrad.engine.jit.TinyJit")
CALL_INFO: Final = "tinygrad.uop.ops.CallInfo"
PARAM_ARG: Final = "tinygrad.uop.ops.ParamArg"
PROGRAM_INFO: Final = "tinygrad.uop.ops.ProgramInfo"
PROGRAM_SPEC: Final = "tinygrad.renderer.ProgramSpec"
EXEC_ITEM: Final = "tinygrad.engine.realize.ExecItem"
BUFFER_COPY: Final = "tinygrad.engine.realize.BufferCopy"
RUNNER: Final = "tinygrad.engine.realize.CompiledRunner"

_DEVICE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,30}(:[A-Za-z0-9_+:,.-]{0,60})?")
_NUMPY: Final = {
    "float": "float32", "half": "float16", "double": "float64", "__bf16": "bfloat16", "bool": "bool",
    "unsigned char": "uint8", "signed char": "int8", "short": "int16", "unsigned short": "uint16",
    "int": "int32", "unsigned int": "uint32", "long": "int64", "unsigned long": "uint64",
}  # fmt: skip
_MAX_DIMS: Final = 16
_MAX_SIZE: Final = 2**48


def printable(text: str, limit: int = 100) -> str:
    """A string of the file that may be shown: no control characters, no more than `limit` characters."""
    shown = text[:limit].encode("unicode_escape", "backslashreplace").decode("ascii")
    return shown if len(text) <= limit else shown + "..."


def made(value: Value, *names: str) -> Made | None:
    """The value if it is made by one of those globals."""
    return value if type(value) is Made and value.maker.name in names else None


def count(value: Value) -> int | None:
    """The value if it is a plain number of things."""
    return value if type(value) is int and 0 <= value < _MAX_SIZE else None


def field(value: Value, key: str) -> Value:
    """A field of a dataclass's state, whether it was pickled as {..} or as (None, {..})."""
    state = value.state if type(value) is Made else None
    if type(state) is tuple and len(state) == 2:
        state = state[1]
    return state.get(key) if type(state) is Dict else None


def sources(uop: Made) -> tuple[Value, ...]:
    """A UOp's `src`."""
    found = uop.args[2] if len(uop.args) > 2 else ()
    return found if type(found) is tuple else ()


def argument(uop: Value) -> Value:
    """A UOp's `arg`; None for what is no UOp."""
    return uop.args[3] if type(uop) is Made and uop.maker.name == UOP and len(uop.args) > 3 else None


def operation(uop: Made) -> Value:
    """What tells two operations of one file apart: the number in it."""
    found = made(uop.args[0], "tinygrad.uop.Ops") if uop.args else None
    return found.args[0] if found and found.args and type(found.args[0]) is int else None


def device_name(value: Value) -> str | None:
    """The value if it reads like a device: "QCOM", "CPU", "AMD:1"."""
    return value if type(value) is str and _DEVICE.fullmatch(value) else None


def device_leaf(uop: Value) -> str | None:
    """The device that a UOp stands for (up to 0.13): no sources, the name as its argument."""
    return device_name(argument(uop)) if type(uop) is Made and not sources(uop) else None


def dtype_name(value: Value) -> str:
    """numpy's name of a DType, or tinygrad's own, "?" for what is none."""
    if type(value) is Made and len(value.args) > 2 and type(value.args[2]) is str:
        return _NUMPY.get(value.args[2], printable(value.args[2], 30))
    return "?"


def dtype_bits(value: Value) -> int | None:
    """Bits of one element of a plain DType."""
    plain = made(value, "tinygrad.dtype.DType")
    return count(plain.args[1]) if plain and len(plain.args) > 1 else None


def dimensions(uop: Value) -> tuple[int, ...] | None:
    """The shape that a UOp of constants spells out.

    0.14 stacks constants; 0.13 also folds equal ones into one constant of a vector type; 0.12 has a tuple as argument.
    """
    value = argument(uop)
    if count(value) is not None:
        dtype = uop.args[1]
        lanes = count(dtype.args[4]) if type(dtype) is Made and len(dtype.args) > 4 else 1
        return (value,) * lanes if lanes and lanes <= _MAX_DIMS else None
    if type(value) is tuple:
        items = value
    elif type(uop) is Made and sources(uop):
        items = tuple(argument(one) for one in sources(uop)[: _MAX_DIMS + 1])
    else:
        return None
    return items if len(items) <= _MAX_DIMS and all(count(one) is not None for one in items) else None


def view_shape(view: Value, elements: int | None) -> tuple[int, ...] | None:
    """The shape that an input was captured with: that of the outermost reshape, or the whole buffer's."""
    if type(view) is not Made or view.maker.name != UOP:
        return None
    below = sources(view)
    if not below:
        return (elements,) if elements is not None else None
    return dimensions(below[1]) if len(below) == 2 else None


def payload(value: Value) -> tuple[int, int] | None:
    """(offset, length) of a buffer's content; an offset of -1 is content short enough to have been read."""
    if type(value) is Made and value.maker.name == "builtins.bytearray" and len(value.args) == 1:
        value = value.args[0]
    if type(value) is Payload:
        return value.offset, value.length
    return (-1, len(value)) if type(value) is bytes else None


def children(value: Value) -> Iterator[Value]:
    """All values directly inside a value."""
    kind = type(value)
    if kind is tuple or kind is list:
        yield from value
    elif kind is Made:
        yield from value.args
        yield value.state
        yield from value.extra or ()
    elif kind is Dict:
        for key, item in value.items:
            yield key
            yield item
