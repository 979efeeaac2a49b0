"""A YAML tree against the classes of `catalog_file`: every value checked, every problem found.

msgspec would stop at the first wrong value and does not know lines, so its description of the classes is walked here.
The result is plain: mappings, tuples and scalars, with only the keys that were given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import inspect

from buildlib.core.declaration.names import BOOLEAN_WORDS
from buildlib.core.declaration.problems import Problems, did_you_mean, shown
from buildlib.core.declaration.yaml_tree import Node, Scalar, Sequence, Table, describe

INVALID: Final = object()
"""Stands for a value that has a problem."""

_NULLS = frozenset({"~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_SECRET = ("password", "passphrase", "passwd", "secret", "token", "api_key", "apikey", "private_key", "credential")
_NO_EXTRA: Mapping[str, Any] = {}


@lru_cache(maxsize=8)
def described(cls: type) -> inspect.Type:
    """msgspec's description of a class, made once."""
    return inspect.type_info(cls)


class Reader:
    """Reads one file. `lines` maps dotted paths to lines, for keys and list items."""

    def __init__(self, problems: Problems, environ: Mapping[str, str]) -> None:
        self.lines: dict[str, int] = {}
        self._problems = problems
        self._environ = environ

    def read(self, node: Node, cls: type) -> Any:
        """The file's values as a mapping, or INVALID."""
        return self._value(node, described(cls), "", node.line, _NO_EXTRA)

    def _value(self, node: Node, type_: inspect.Type, path: str, line: int, extra: Mapping[str, Any]) -> Any:
        while isinstance(type_, inspect.Metadata):
            extra, type_ = {**(type_.extra or {}), **extra}, type_.type
        if extra.get("exact"):
            return self._exact(node, path, line, extra)
        if isinstance(type_, inspect.UnionType):
            return self._union(node, type_, path, line, extra)
        if isinstance(type_, inspect.StructType):
            return self._struct(node, type_, path, line)
        if isinstance(type_, inspect.DictType):
            return self._dict(node, type_, path, line)
        if isinstance(type_, inspect.VarTupleType):
            return self._tuple(node, type_, path, line)
        if not isinstance(node, Scalar):
            return self._wrong(line, path, _expected(type_), node)
        if isinstance(type_, inspect.StrType):
            return self._string(node, path, line, extra)
        return self._word(node, type_, path, line)

    def _union(self, node: Node, type_: inspect.UnionType, path: str, line: int, extra: Mapping[str, Any]) -> Any:
        members = [member for member in type_.types if not isinstance(member, inspect.NoneType)]
        if len(members) < len(type_.types) and is_null(node):
            # `IMAGE:` with nothing behind it is more often forgotten than meant; `IMAGE: null` is meant.
            forgotten = _is_exact(members[0]) and isinstance(node, Scalar) and node.text == ""
            if not forgotten:
                return None
        structs = [member for member in members if isinstance(member, inspect.StructType)]
        if isinstance(node, Table) and len(structs) > 1:
            return self._tagged(node, structs, path, line)
        others = [member for member in members if not isinstance(member, inspect.StructType)]
        if isinstance(node, Table) and structs:
            return self._value(node, structs[0], path, line, extra)
        return self._value(node, others[0] if others else structs[0], path, line, extra)

    def _tagged(self, node: Table, structs: list[inspect.StructType], path: str, line: int) -> Any:
        by_tag = {str(struct.tag): struct for struct in structs}
        field = structs[0].tag_field or "kind"
        tag = node.get(field)
        if isinstance(tag, Scalar) and tag.text in by_tag:
            return self._struct(node, by_tag[tag.text], path, line)
        choice = _listed(by_tag)
        if tag is not None:
            near = did_you_mean(tag.text, by_tag) if isinstance(tag, Scalar) else ""
            return self._wrong(tag.line, f"{path}.{field}", choice, tag, near)
        keys = {key for key, _, _ in node.entries}
        fits = [name for name, struct in by_tag.items() if keys & {one.name for one in struct.fields}]
        hint = f'; did you mean "{field}: {fits[0]}"?' if len(fits) == 1 else ""
        self._problems.add(line, path, f"expected {field}: {choice}{hint}")
        return INVALID

    def _struct(self, node: Node, type_: inspect.StructType, path: str, line: int) -> Any:
        fields = _fields(type_)
        if not isinstance(node, Table):
            return self._wrong(line, path, f"keys such as {_listed(list(fields)[:3])}", node)
        values: dict[str, Any] = {}
        if type_.tag_field:
            values[type_.tag_field] = type_.tag
        for key, key_line, child in node.entries:
            child_path = f"{path}.{key}" if path else key
            self.lines[child_path] = key_line
            field = fields.get(key)
            if field is not None:
                value = self._value(child, field.type, child_path, key_line, _NO_EXTRA)
                if value is not INVALID:
                    values[key] = value
            elif key != type_.tag_field:
                self._unknown_key(key, key_line, path, fields)
        for field in fields.values():
            if field.required and node.get(field.name) is None:
                self._problems.add(line, path, f'expected the key "{field.name}", which is missing')
        return values

    def _unknown_key(self, key: str, line: int, path: str, known: Iterable[str]) -> None:
        if any(word in key.casefold() for word in _SECRET):
            text = f"key {shown(key)} is refused: models.yaml holds no secrets; use a key file (identity) or the agent"
        else:
            text = f"unknown key {shown(key)}{did_you_mean(key, known)}"
        self._problems.add(line, path, text)

    def _dict(self, node: Node, type_: inspect.DictType, path: str, line: int) -> Any:
        if not isinstance(node, Table):
            return self._wrong(line, path, "a mapping of names", node)
        values: dict[str, Any] = {}
        for key, key_line, child in node.entries:
            child_path = f"{path}.{key}"
            self.lines[child_path] = key_line
            self._key(key, type_.key_type, child_path, key_line)
            value = self._value(child, type_.value_type, child_path, key_line, _NO_EXTRA)
            values[key] = value
        return values

    def _key(self, key: str, type_: inspect.Type, path: str, line: int) -> None:
        extra = _NO_EXTRA
        while isinstance(type_, inspect.Metadata):
            extra, type_ = type_.extra or extra, type_.type
        if isinstance(type_, inspect.LiteralType):
            known = [str(value) for value in type_.values]
            if key not in known:
                self._problems.expected(line, path, _listed(known), shown(key) + did_you_mean(key, known))
            return
        wrong = extra["rule"](key) if "rule" in extra else None
        if wrong:
            self._problems.expected(line, path, wrong, shown(key))

    def _tuple(self, node: Node, type_: inspect.VarTupleType, path: str, line: int) -> Any:
        if not isinstance(node, Sequence):
            return self._wrong(line, path, "a list, [in, brackets] or one - a line", node)
        if len(node.items) < (type_.min_length or 0):
            return self._wrong(line, path, f"at least {type_.min_length} item", node, " that is empty")
        values: list[Any] = []
        for index, child in enumerate(node.items):
            child_path = f"{path}.{index}"
            self.lines[child_path] = child.line
            value = self._value(child, type_.item_type, child_path, child.line, _NO_EXTRA)
            if value is INVALID:
                continue
            if value in values:
                self._problems.expected(child.line, child_path, "each item once", describe(child))
            values.append(value)
        return tuple(values)

    def _exact(self, node: Node, path: str, line: int, extra: Mapping[str, Any]) -> Any:
        if not isinstance(node, Scalar):
            return self._wrong(line, path, "one value (text or number)", node)
        if node.plain and not node.interpolated:
            word = node.text.casefold()
            if word in ("", "~", "null"):
                return self._wrong(line, path, 'a value ("" is empty text)', node)
            if word in BOOLEAN_WORDS:
                number = 1 if word in ("y", "yes", "on", "true") else 0
                expected = f'the exact text, "{node.text}" in quotes or {number}'
                return self._wrong(line, path, expected, node, ", which is a boolean in YAML")
        return self._ruled(node.text, node, path, line, extra)

    def _string(self, node: Scalar, path: str, line: int, extra: Mapping[str, Any]) -> Any:
        if node.plain and not node.interpolated:
            if is_null(node) or node.text == "":
                return self._wrong(line, path, _rule_text(extra) or "text", node)
            if node.text.casefold() in BOOLEAN_WORDS:
                return self._wrong(line, path, f'text, "{node.text}" in quotes', node, ", which is a boolean in YAML")
        return self._ruled(node.text, node, path, line, extra)

    def _ruled(self, text: str, node: Scalar, path: str, line: int, extra: Mapping[str, Any]) -> Any:
        wrong = extra["rule"](text) if "rule" in extra else None
        if wrong:
            return self._wrong_text(line, path, wrong, text)
        if extra.get("home") and (text == "~" or text.startswith("~/")):
            home = self._environ.get("HOME")
            if not home:
                return self._wrong_text(line, path, "an absolute path (HOME is not set, so ~ is nowhere)", text)
            return home.rstrip("/") + text[1:]
        return text

    def _word(self, node: Scalar, type_: inspect.Type, path: str, line: int) -> Any:
        text = node.text
        if isinstance(type_, inspect.LiteralType):
            known = [str(value) for value in type_.values]
            return text if text in known else self._wrong(line, path, _listed(known), node, did_you_mean(text, known))
        value: Any = INVALID
        if node.plain or node.interpolated:
            if isinstance(type_, inspect.BoolType):
                value = text in _TRUE if text in _TRUE | _FALSE else INVALID
            elif isinstance(type_, inspect.IntType):
                value = int(text) if _is_decimal(text) else INVALID
            elif isinstance(type_, inspect.FloatType):
                value = float(text) if _is_decimal(text) or _is_fraction(text) else INVALID
        if value is INVALID or not _in_bounds(value, type_):
            return self._wrong(line, path, _expected(type_), node)
        return value

    def _wrong(self, line: int, path: str, expected: str, node: Node, hint: str = "") -> Any:
        self._problems.expected(line, path, expected, describe(node) + hint)
        return INVALID

    def _wrong_text(self, line: int, path: str, expected: str, text: str) -> Any:
        self._problems.expected(line, path, expected, shown(text))
        return INVALID


def is_null(node: Node) -> bool:
    """`null` or `~`, or nothing at all, without quotes."""
    return isinstance(node, Scalar) and node.plain and not node.interpolated and (node.text in _NULLS or not node.text)


def _is_exact(type_: inspect.Type) -> bool:
    return isinstance(type_, inspect.Metadata) and bool((type_.extra or {}).get("exact"))


@lru_cache(maxsize=64)
def _fields_of(cls: type) -> dict[str, inspect.Field]:
    info = described(cls)
    assert isinstance(info, inspect.StructType)
    return {field.name: field for field in info.fields}


def _fields(type_: inspect.StructType) -> dict[str, inspect.Field]:
    return _fields_of(type_.cls)


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _rule_text(extra: Mapping[str, Any]) -> str | None:
    return extra["rule"]("") if "rule" in extra else None


def _is_decimal(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 16 and (digits == "0" or digits[0] != "0")


def _is_fraction(text: str) -> bool:
    whole, dot, rest = text.partition(".")
    return dot == "." and _is_decimal(whole) and rest.isascii() and rest.isdigit() and len(rest) < 16


def _in_bounds(value: Any, type_: inspect.Type) -> bool:
    if not isinstance(type_, (inspect.IntType, inspect.FloatType)):
        return True
    low = (type_.ge is None or value >= type_.ge) and (type_.gt is None or value > type_.gt)
    return low and (type_.le is None or value <= type_.le)


def _expected(type_: inspect.Type) -> str:
    if isinstance(type_, inspect.BoolType):
        return "true or false"
    if isinstance(type_, inspect.IntType):
        return "a whole number" + (f" from {type_.ge} to {type_.le}" if type_.le is not None else "")
    if isinstance(type_, inspect.FloatType):
        return "a number of seconds above 0"
    if isinstance(type_, inspect.LiteralType):
        return _listed([str(value) for value in type_.values])
    return "text"
