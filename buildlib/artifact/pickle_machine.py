"""What each pickle opcode does here: a stack, marks, a memo, and inert values in place of objects.

Nothing that a pickle names is looked up, imported or called. `pickle_reader` runs the opcodes through it.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import Final, NoReturn

import msgspec

from buildlib.artifact.byte_source import ByteSource
from buildlib.artifact.byte_window import ByteWindow
from buildlib.artifact.refusals import COPY_AGAIN, REBUILD, Damaged, Forbidden, TooMuch
from buildlib.artifact.values import Dict, Global, Made, Payload, Set, Value


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Far above any genuine artifact (about 0.3 million opcodes at 119 MB), low enough to end in seconds.

    keep: bytes up to which a string or bytes object is read; longer ones become a Payload.
    text: bytes of all strings and bytes objects that were read. depth: marks that are open at a time.
    """

    opcodes: int = 2_000_000
    stack: int = 200_000
    depth: int = 10_000
    keep: int = 4096
    text: int = 16 * 1024 * 1024
    integer: int = 64
    globals: int = 500
    buffers: int = 100_000


DEFAULT_LIMITS: Final = Limits()


class PickleMachine:
    """The state of one reading; a method for each opcode that has work to do."""

    def __init__(
        self,
        source: ByteSource,
        start: int,
        end: int,
        *,
        buffers: Sequence[Payload] = (),
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._name = source.name
        self._window = ByteWindow(source, start, end)
        self._limits = limits
        self._buffers = iter(buffers)
        self._stack: list[Value] = []
        self._marks: list[list[Value]] = []
        self._memo: dict[int, Value] = {}
        self._held = 0
        self._text = 0
        self.globals: dict[str, Global] = {}
        self.made: list[Made] = []
        self.protocol = 0

    @property
    def position(self) -> int:
        return self._window.position

    def _damaged(self, what: str) -> NoReturn:
        raise Damaged(f"{what} (offset {self.position:,})", where=self._name, guide="11", remedy=COPY_AGAIN)

    def _forbidden(self, what: str) -> NoReturn:
        raise Forbidden(f"{what} (offset {self.position:,})", where=self._name, remedy=REBUILD)

    # The stack

    def _push(self, value: Value) -> None:
        self._stack.append(value)

    def _pop(self) -> Value:
        if not self._stack:
            self._damaged("the pickle takes what it never put on its stack")
        return self._stack.pop()

    def _top(self) -> Value:
        if not self._stack:
            self._damaged("the pickle uses what it never put on its stack")
        return self._stack[-1]

    def _mark(self) -> None:
        self._held += len(self._stack)
        if len(self._marks) >= self._limits.depth:
            raise TooMuch("the pickle is nested without end", where=self._name, remedy=REBUILD)
        self._marks.append(self._stack)
        self._stack = []

    def _pop_mark(self) -> list[Value]:
        if not self._marks:
            self._damaged("the pickle closes what it never opened")
        items, self._stack = self._stack, self._marks.pop()
        self._held -= len(self._stack)
        return items

    def _drop(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._pop_mark()

    def _drop_marked(self) -> None:
        self._pop_mark()

    # Numbers, strings, payloads

    def _long(self, width: int) -> None:
        length = self._window.unsigned(width)
        if length > self._limits.integer:
            raise TooMuch("an integer of absurd size", where=self._name, got=f"{length:,} bytes", remedy=REBUILD)
        self._push(int.from_bytes(self._window.take(length), "little", signed=True))

    def _signed(self) -> None:
        self._push(int.from_bytes(self._window.take(4), "little", signed=True))

    def _float(self) -> None:
        self._push(struct.unpack(">d", self._window.take(8))[0])

    def _bytes(self, width: int) -> None:
        length = self._window.unsigned(width)
        self._push(self._short(length) if length <= self._limits.keep else Payload(self._window.skip(length), length))

    def _unicode(self, width: int) -> None:
        length = self._window.unsigned(width)
        if length > self._limits.keep:
            self._push(Payload(self._window.skip(length), length, text=True))
            return
        # A lone surrogate or broken UTF-8 stays visible, and printable, as an escape.
        self._push(self._short(length).decode("utf-8", "backslashreplace"))

    def _short(self, length: int) -> bytes:
        self._text += length
        if self._text > self._limits.text:
            raise TooMuch("more text than a captured jit has", where=self._name, remedy=REBUILD)
        return self._window.take(length)

    def _bytearray(self) -> None:
        length = self._window.unsigned(8)
        self._push(Payload(self._window.skip(length), length))

    def _next_buffer(self) -> None:
        found = next(self._buffers, None)
        if found is None:
            self._damaged("the pickle refers to an out-of-band buffer that is not there")
        self._push(found)

    # Containers

    def _tuple(self, length: int) -> None:
        if len(self._stack) < length:
            self._damaged("a tuple of more items than there are")
        items = tuple(self._stack[-length:])
        del self._stack[-length:]
        self._push(items)

    def _marked_tuple(self) -> None:
        items = self._pop_mark()
        self._push(tuple(items))

    def _marked_list(self) -> None:
        items = self._pop_mark()
        self._push(items)

    def _marked_dict(self) -> None:
        items = self._pop_mark()
        made = Dict()
        self._put_pairs(made, items)
        self._push(made)

    def _marked_set(self) -> None:
        items = self._pop_mark()
        self._push(Set(items))

    def _put_pairs(self, into: Value, items: list[Value]) -> None:
        if len(items) % 2:
            self._damaged("a dict with a key and no value")
        pairs = list(zip(items[::2], items[1::2], strict=True))
        if type(into) is Dict:
            into.items.extend(pairs)
        elif type(into) is Made:
            into.put(pairs)
        else:
            self._damaged("items are set on what is no dict")

    def _append(self, items: list[Value]) -> None:
        into = self._top()
        if type(into) is list:
            into.extend(items)
        elif type(into) is Made:
            into.put(items)
        else:
            self._damaged("items are appended to what is no list")

    def _append_one(self) -> None:
        item = self._pop()
        self._append([item])

    def _append_marked(self) -> None:
        items = self._pop_mark()
        self._append(items)

    def _add_marked(self) -> None:
        items, into = self._pop_mark(), self._top()
        if type(into) is not Set:
            self._damaged("items are added to what is no set")
        into.items.extend(items)

    def _set_one(self) -> None:
        value, key = self._pop(), self._pop()
        self._put_pairs(self._top(), [key, value])

    def _set_marked(self) -> None:
        items = self._pop_mark()
        self._put_pairs(self._top(), items)

    # Objects

    def _global(self, module: Value, name: Value) -> None:
        if type(module) is not str or type(name) is not str:
            self._damaged("a global whose name is no string")
        full = f"{module}.{name}"
        if not module or not name or not full.isprintable() or len(full) > 200:
            self._forbidden("a global with a name that no module can have")
        if "." in name:
            self._forbidden(f"a dotted global: {name!r} reached through {module!r}")
        known = self.globals.get(full)
        if known is None:
            if len(self.globals) >= self._limits.globals:
                raise TooMuch("more globals than tinygrad has", where=self._name, remedy=REBUILD)
            known = self.globals[full] = Global(full)
        self._push(known)

    def _line_global(self) -> None:
        module, name = self._line(), self._line()
        self._global(module, name)

    def _line(self) -> str:
        found = self._window.line(256)
        if found is None:
            self._damaged("a global whose name does not end")
        try:
            return found.decode("utf-8")
        except UnicodeDecodeError:
            self._damaged("a string is not UTF-8")

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        self._global(module, name)

    def _make(self, maker: Value, args: Value, keywords: Value = None) -> None:
        if type(args) is not tuple:
            self._damaged("a call whose arguments are no tuple")
        if type(maker) is not Global:
            self._forbidden("no captured jit calls what a call returned")
        if keywords is not None:
            args = (*args, keywords)
        if maker.name == "builtins.bytearray" and args and type(args[0]) not in (bytes, Payload):
            self._forbidden("a bytearray made of something else than its bytes")
        made = Made(maker, args)
        self.made.append(made)
        self._push(made)

    def _reduce(self) -> None:
        args, maker = self._pop(), self._pop()
        self._make(maker, args)

    def _new_with_keywords(self) -> None:
        keywords, args, maker = self._pop(), self._pop(), self._pop()
        self._make(maker, args, keywords)

    def _build(self) -> None:
        state, on = self._pop(), self._top()
        if type(on) is not Made:
            self._forbidden("state is set on what is no object")
        if on.state is not None:
            self._forbidden("state is set twice on one object")
        on.state = state

    # Memo

    def _put(self, index: int) -> None:
        # CPython's unpickler allocates a table up to the index: genuine pickles count upwards one by one.
        if index > len(self._memo):
            self._forbidden(f"memo entry {index:,} after only {len(self._memo):,}")
        self._memo[index] = self._top()

    def _memoize(self) -> None:
        self._memo[len(self._memo)] = self._top()

    def _get(self, index: int) -> None:
        try:
            self._push(self._memo[index])
        except KeyError:
            self._damaged(f"memo entry {index:,} is used before it is made")

    # Framing

    def _proto(self) -> None:
        self.protocol = self._window.unsigned(1)
        if not 2 <= self.protocol <= pickle.HIGHEST_PROTOCOL:
            self._forbidden(f"pickle protocol {self.protocol}, where captured jits use 2 to {pickle.HIGHEST_PROTOCOL}")

    def _frame(self) -> None:
        length = self._window.unsigned(8)
        self._window.require(length)
