"""A JSON text with the place of every value in it, for edits that touch nothing else.

Pure. Positions are character offsets into the text, end exclusive. Strict: duplicate keys, NaN, trailing commas and
comments are refused, since a device's parser and ours could read them differently (docs/decisions/0030).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # C-accelerated, in typeshed only as py_scanstring
from typing import Literal

from buildlib.errors import TargetError

Kind = Literal["object", "array", "string", "number", "literal"]
MAX_DEPTH = 100
MAX_DIGITS = 1000
MAX_SIZE = 8 << 20
"""Bytes; a thousand bundles have less than two million."""
BOM = "\ufeff"

_BLANK = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class Member:
    """One `"key": value` of an object; key_start is the opening quote's offset."""

    key: str
    key_start: int
    key_end: int
    node: Node


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it stands. scalar: the decoded string, number or literal; None for containers."""

    kind: Kind
    start: int
    end: int
    scalar: str | int | float | bool | None = None
    members: tuple[Member, ...] = ()
    items: tuple[Node, ...] = ()

    def member(self, *keys: str) -> Member | None:
        """The first member under one of these keys."""
        for key in keys:
            for member in self.members:
                if member.key == key:
                    return member
        return None

    def get(self, *keys: str) -> Node | None:
        """The value under the first of these keys that is there."""
        member = self.member(*keys)
        return member.node if member else None

    def text_of(self, *keys: str) -> str | None:
        """The string under one of these keys; None when it is missing or no string."""
        node = self.get(*keys)
        return node.scalar if node is not None and isinstance(node.scalar, str) else None

    def children(self) -> Iterator[Node]:
        """Values directly inside a container."""
        yield from (member.node for member in self.members)
        yield from self.items

    def plain(self) -> object:
        """What `json.loads` would give."""
        if self.kind == "object":
            return {member.key: member.node.plain() for member in self.members}
        if self.kind == "array":
            return [item.plain() for item in self.items]
        return self.scalar


def decode(data: bytes, where: str) -> str:
    """Text of a UTF-8 file, its byte order mark kept; `encode('utf-8')` gives the same bytes back."""
    if len(data) > MAX_SIZE:
        raise TargetError(
            "is too large for a manifest", where=where, expected=f"at most {MAX_SIZE} bytes", got=str(len(data))
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TargetError(
            "is not UTF-8", where=where, got=f"byte {data[error.start]:#04x} at offset {error.start}"
        ) from error


def line_of(text: str, offset: int) -> int:
    """Line number, from 1."""
    return text.count("\n", 0, offset) + 1


def parse(text: str, where: str) -> Node:
    """Reads a whole text. Raises TargetError with file and line for anything that is not strict JSON."""
    scanner = _Scanner(text, where)
    start = scanner.skip(1 if text.startswith(BOM) else 0)
    node = scanner.value(start, 0)
    end = scanner.skip(node.end)
    if end != len(text):
        raise scanner.error("text after the end of the JSON value", end)
    return node


class _Scanner:
    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where

    def error(self, what: str, offset: int) -> TargetError:
        got = repr(self._text[offset : offset + 20]) if offset < len(self._text) else "the end of the file"
        return TargetError(what, where=f"{self._where}:{line_of(self._text, offset)}", got=got)

    def skip(self, offset: int) -> int:
        match = _BLANK.match(self._text, offset)
        assert match is not None
        return match.end()

    def value(self, offset: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels", offset)
        first = self._text[offset : offset + 1]
        if first == "{":
            return self._object(offset, depth)
        if first == "[":
            return self._array(offset, depth)
        if first == '"':
            scalar, end = self._string(offset)
            return Node("string", offset, end, scalar)
        for word, literal in _LITERALS.items():
            if self._text.startswith(word, offset):
                return Node("literal", offset, offset + len(word), literal)
        if match := _NUMBER.match(self._text, offset):
            if len(match.group()) > MAX_DIGITS:
                raise self.error(f"a number of more than {MAX_DIGITS} digits", offset)
            number = json.loads(match.group())
            if number in (math.inf, -math.inf):
                raise self.error("a number beyond all that a parser can hold", offset)
            return Node("number", offset, match.end(), number)
        raise self.error("expected a JSON value", offset)

    def _string(self, offset: int) -> tuple[str, int]:
        try:
            text, end = scanstring(self._text, offset + 1, True)
        except json.JSONDecodeError as error:
            raise self.error(f"broken string: {error.msg}", min(error.pos, len(self._text))) from error
        return str(text), int(end)

    def _object(self, start: int, depth: int) -> Node:
        members: list[Member] = []
        seen: dict[str, int] = {}
        offset = self.skip(start + 1)
        if self._text[offset : offset + 1] == "}":
            return Node("object", start, offset + 1)
        while True:
            if self._text[offset : offset + 1] != '"':
                raise self.error("expected a key in double quotes", offset)
            key, key_end = self._string(offset)
            if key in seen:
                raise self.error(f'key "{key}" stands twice, first on line {line_of(self._text, seen[key])}', offset)
            seen[key] = offset
            colon = self.skip(key_end)
            if self._text[colon : colon + 1] != ":":
                raise self.error(f'expected ":" after "{key}"', colon)
            node = self.value(self.skip(colon + 1), depth + 1)
            members.append(Member(key, offset, key_end, node))
            offset, ended = self._separator(node.end, "}")
            if ended:
                return Node("object", start, offset, members=tuple(members))

    def _array(self, start: int, depth: int) -> Node:
        items: list[Node] = []
        offset = self.skip(start + 1)
        if self._text[offset : offset + 1] == "]":
            return Node("array", start, offset + 1)
        while True:
            items.append(self.value(offset, depth + 1))
            offset, ended = self._separator(items[-1].end, "]")
            if ended:
                return Node("array", start, offset, items=tuple(items))

    def _separator(self, offset: int, closer: str) -> tuple[int, bool]:
        offset = self.skip(offset)
        found = self._text[offset : offset + 1]
        if found == closer:
            return offset + 1, True
        if found != ",":
            raise self.error(f'expected "," or "{closer}"', offset)
        return self.skip(offset + 1), False
