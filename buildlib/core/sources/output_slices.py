"""`metadata_props["output_slices"]`: base64 of a pickled dict name -> slice, read without running the pickle.

Only `builtins.slice` of plain integers is legitimate in it (facts, section 1). The restricted unpickler resolves that
one global and no other, and the opcodes are counted first: such a dict needs a few thousand of them.
"""

from __future__ import annotations

import base64
import binascii
import io
import pickle
import pickletools

Span = tuple[int | None, int | None]
"""Start and stop of a slice as written: negative ones count from the end, None is the end itself."""
MAX_BYTES = 1 << 20
MAX_OPCODES = 100_000
_BOUND = (int, type(None))
_FORBIDDEN = {"EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "BUILD"}


class BadSlices(ValueError):
    """The text is no pickled dict of slices; the message says why, in a few words."""


class _OnlySlices(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) in {("builtins", "slice"), ("__builtin__", "slice")}:
            return slice
        raise BadSlices(f"its pickle names {module}.{name}, and only builtins.slice is allowed there")


def decode_output_slices(text: str) -> dict[str, Span]:
    """Name -> (start, stop) as written, in the file's order. Raises BadSlices and nothing else."""
    if len(text) > MAX_BYTES:
        raise BadSlices(f"{len(text)} characters where a few thousand are usual")
    try:
        raw = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise BadSlices("it is not base64") from None
    _check_opcodes(raw)
    try:
        value = _OnlySlices(io.BytesIO(raw)).load()
    except BadSlices:
        raise
    except Exception as error:  # noqa: BLE001 - an unpickler fed with damaged bytes raises anything
        raise BadSlices(f"its pickle is damaged ({type(error).__name__})") from None
    return _checked(value)


def _check_opcodes(raw: bytes) -> None:
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(raw)):
            if opcode.name in _FORBIDDEN:
                raise BadSlices(f"its pickle uses {opcode.name}, which a dict of slices has no need of")
            if count > MAX_OPCODES:
                raise BadSlices("its pickle is far too long")
            # Memo indices size the unpickler's table: LONG_BINPUT 2**31 would allocate gigabytes.
            if opcode.name in {"PUT", "BINPUT", "LONG_BINPUT"} and isinstance(argument, int) and argument > MAX_OPCODES:
                raise BadSlices("its pickle has an absurd memo index")
    except BadSlices:
        raise
    except Exception as error:  # noqa: BLE001 - genops raises ValueError and worse on damaged bytes
        raise BadSlices(f"its pickle is damaged ({type(error).__name__})") from None


def _checked(value: object) -> dict[str, Span]:
    if not isinstance(value, dict):
        raise BadSlices(f"its pickle holds a {type(value).__name__}, not a dict")
    spans: dict[str, Span] = {}
    for name, part in value.items():
        if not isinstance(name, str) or not isinstance(part, slice):
            raise BadSlices("its dict holds something else than name -> slice")
        if type(part.start) not in _BOUND or type(part.stop) not in _BOUND or part.step not in (None, 1):
            raise BadSlices(f"its slice of {name!r} is no plain start and stop")
        spans[name] = (part.start, part.stop)
    return spans


def resolve_spans(spans: dict[str, Span], length: int) -> dict[str, tuple[int, int]]:
    """Spans as 0 <= start <= stop <= length. Raises BadSlices for one that leaves an output of that length."""
    resolved: dict[str, tuple[int, int]] = {}
    for name, (start, stop) in spans.items():
        if any(bound is not None and not -length <= bound <= length for bound in (start, stop)):
            raise BadSlices(f"its slice of {name!r} leaves the output, which holds {length} values")
        first, last, _ = slice(start, stop).indices(length)
        if first > last:
            raise BadSlices(f"its slice of {name!r} ends before it starts")
        resolved[name] = (first, last)
    return resolved
