"""Reads a pickle's opcodes without executing anything that they name.

An interpreter of its own, and not a tamed `pickle.Unpickler`: every opcode is either known to be inert or refused,
every length is checked against the file before it is believed, payloads are passed over and never held, and each
resource has a limit. What it returns is made of `buildlib.artifact.values` (docs/decisions/0020).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from buildlib.artifact.byte_source import ByteSource
from buildlib.artifact.pickle_machine import DEFAULT_LIMITS, Limits, PickleMachine
from buildlib.artifact.refusals import REBUILD, TooMuch
from buildlib.artifact.values import Dict, Payload, Set, Value

_MEMOIZE, _NONE, _BINGET, _LONG_BINGET, _TUPLE, _TUPLE2, _STOP = b"\x94Nhjt\x86."
_UINT4: Final = int.from_bytes


class PickleReader(PickleMachine):
    """One pass over the pickle that lies in `source` from `start` up to `end`.

    buffers: out-of-band buffers, in order. After `read`, `position` is the offset behind STOP.
    """

    def __init__(
        self,
        source: ByteSource,
        start: int,
        end: int,
        *,
        buffers: Sequence[Payload] = (),
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(source, start, end, buffers=buffers, limits=limits)
        self.opcodes = 0
        self._table = self._handlers()

    def read(self) -> Value:
        """The root value. Raises Truncated, Damaged, Forbidden or TooMuch."""
        table, window, memo, marks = self._table, self._window, self._memo, self._marks
        at, buffer, stack, last = window.at, window.buffer, self._stack, -1
        count = 0
        # `at`, `buffer` and `stack` are copies for speed: whoever else moves them is told before and asked after.
        while True:
            if at > last:
                window.at = at
                window.fill()
                at, buffer, last = 0, window.buffer, len(window.buffer) - 5
            code = buffer[at]
            at += 1
            count += 1
            # These six are five of six opcodes of an artifact; the table's handlers know all the others.
            if code == _MEMOIZE and stack:
                memo[len(memo)] = stack[-1]
            elif code == _NONE:
                stack.append(None)
            elif code == _BINGET and (index := buffer[at] if at < len(buffer) else -1) in memo:
                stack.append(memo[index])
                at += 1
            elif code == _LONG_BINGET and (index := _UINT4(buffer[at : at + 4], "little")) in memo:
                stack.append(memo[index])
                at += 4
            elif code == _TUPLE2 and len(stack) >= 2:
                stack[-2:] = ((stack[-2], stack[-1]),)
            elif code == _TUPLE and marks:
                done, stack = stack, marks.pop()
                self._stack = stack
                self._held -= len(stack)
                stack.append(tuple(done))
            elif code == _STOP:
                break
            else:
                handler = table[code]
                window.at = at
                if handler is None:
                    self._refuse_opcode(code)
                handler()
                at, stack = window.at, self._stack
                if window.buffer is not buffer:
                    buffer, last = window.buffer, len(window.buffer) - 5
            if not count & 1023:
                self._check_limits(count)
        window.at = at
        self.opcodes = count
        self._check_limits(count)
        if self._marks or len(self._stack) != 1:
            self._damaged("the pickle ends with an unfinished value")
        return self._stack.pop()

    def _check_limits(self, opcodes: int) -> None:
        limits = self._limits
        if opcodes > limits.opcodes:
            raise TooMuch(
                "more opcodes than a captured jit has", where=self._name, expected=f"{limits.opcodes:,}", remedy=REBUILD
            )
        if self._held + len(self._stack) > limits.stack:
            raise TooMuch("the pickle's stack grows without end", where=self._name, remedy=REBUILD)

    def _refuse_opcode(self, code: int) -> NoReturn:
        reason = _REFUSED.get(code)
        if reason:
            self._forbidden(f"no captured jit {reason}")
        self._damaged(f"0x{code:02x} is no pickle opcode")

    def _handlers(self) -> list[Callable[[], None] | None]:
        push = self._push
        known: dict[bytes, Callable[[], None]] = {
            pickle.PROTO: self._proto,
            pickle.FRAME: self._frame,
            pickle.NONE: lambda: push(None),
            pickle.NEWTRUE: lambda: push(True),
            pickle.NEWFALSE: lambda: push(False),
            pickle.BININT: self._signed,
            pickle.BININT1: lambda: push(self._window.unsigned(1)),
            pickle.BININT2: lambda: push(self._window.unsigned(2)),
            pickle.LONG1: lambda: self._long(1),
            pickle.LONG4: lambda: self._long(4),
            pickle.BINFLOAT: self._float,
            pickle.SHORT_BINUNICODE: lambda: self._unicode(1),
            pickle.BINUNICODE: lambda: self._unicode(4),
            pickle.BINUNICODE8: lambda: self._unicode(8),
            pickle.SHORT_BINBYTES: lambda: self._bytes(1),
            pickle.BINBYTES: lambda: self._bytes(4),
            pickle.BINBYTES8: lambda: self._bytes(8),
            pickle.BYTEARRAY8: self._bytearray,
            pickle.NEXT_BUFFER: self._next_buffer,
            pickle.READONLY_BUFFER: lambda: None,
            pickle.EMPTY_TUPLE: lambda: push(()),
            pickle.TUPLE1: lambda: self._tuple(1),
            pickle.TUPLE2: lambda: self._tuple(2),
            pickle.TUPLE3: lambda: self._tuple(3),
            pickle.MARK: self._mark,
            pickle.TUPLE: self._marked_tuple,
            pickle.LIST: self._marked_list,
            pickle.POP: self._drop,
            pickle.POP_MARK: self._drop_marked,
            pickle.DICT: self._marked_dict,
            pickle.FROZENSET: self._marked_set,
            pickle.EMPTY_LIST: lambda: push([]),
            pickle.EMPTY_DICT: lambda: push(Dict()),
            pickle.EMPTY_SET: lambda: push(Set([])),
            pickle.APPEND: self._append_one,
            pickle.APPENDS: self._append_marked,
            pickle.ADDITEMS: self._add_marked,
            pickle.SETITEM: self._set_one,
            pickle.SETITEMS: self._set_marked,
            pickle.GLOBAL: self._line_global,
            pickle.STACK_GLOBAL: self._stack_global,
            pickle.REDUCE: self._reduce,
            pickle.NEWOBJ: self._reduce,
            pickle.NEWOBJ_EX: self._new_with_keywords,
            pickle.BUILD: self._build,
            pickle.MEMOIZE: self._memoize,
            pickle.BINPUT: lambda: self._put(self._window.unsigned(1)),
            pickle.LONG_BINPUT: lambda: self._put(self._window.unsigned(4)),
            pickle.BINGET: lambda: self._get(self._window.unsigned(1)),
            pickle.LONG_BINGET: lambda: self._get(self._window.unsigned(4)),
        }
        table: list[Callable[[], None] | None] = [None] * 256
        for code, handler in known.items():
            table[code[0]] = handler
        return table


_REFUSED: Final = {
    pickle.EXT1[0]: "uses the extension registry (EXT1)",
    pickle.EXT2[0]: "uses the extension registry (EXT2)",
    pickle.EXT4[0]: "uses the extension registry (EXT4)",
    pickle.PERSID[0]: "has persistent ids (PERSID)",
    pickle.BINPERSID[0]: "has persistent ids (BINPERSID)",
    pickle.INST[0]: "builds instances the old way (INST)",
    pickle.OBJ[0]: "builds instances the old way (OBJ)",
    pickle.DUP[0]: "duplicates stack items (DUP)",
    **{code[0]: "is a pickle of protocol 0 or 1" for code in (pickle.INT, pickle.LONG, pickle.FLOAT, pickle.STRING,
       pickle.BINSTRING, pickle.SHORT_BINSTRING, pickle.UNICODE, pickle.GET, pickle.PUT)},
}  # fmt: skip
