"""The tables of docs/reference/models-yaml.md, made from the same classes as the parser and the schema.

`python -m buildlib.core.declaration.catalog_reference < OLD > NEW` renews what stands between
`<!-- keys of Model -->` and
`<!-- end -->` and leaves the rest alone.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import msgspec
from msgspec import inspect

from buildlib.core.declaration import catalog_file

_REGION = re.compile(r"(<!-- keys of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def renew(page: str) -> str:
    """The page with every table made anew. Raises AttributeError for a class that does not exist."""
    return _REGION.sub(lambda match: match.group(1) + table(match.group(2)) + match.group(3), page)


def table(class_name: str) -> str:
    """A markdown table: key, value, default, meaning. Keys that a class takes over from another are left out."""
    cls = getattr(catalog_file, class_name)
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    taken_over = {field.name for base in cls.__mro__[1:] for field in _own_fields(base)}
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    if info.tag_field:
        rows.append(f"| `{info.tag_field}` | `{info.tag}` | needed | |")
    for field in info.fields:
        if field.name not in taken_over:
            rows.append(f"| `{field.name}` | {_value(field.type)} | {_default(field)} | {_meaning(field.type)} |")
    return "\n".join(rows) + "\n"


def _own_fields(cls: type) -> tuple[msgspec.structs.FieldInfo, ...]:
    is_struct = issubclass(cls, msgspec.Struct) and cls is not msgspec.Struct
    return msgspec.structs.fields(cls) if is_struct else ()


def _default(field: inspect.Field) -> str:
    if field.required:
        return "needed"
    value: Any = field.default if field.default is not msgspec.NODEFAULT else None
    return "" if value is None or value == () else "`" + json.dumps(value).replace('"', "") + "`"


def _meaning(type_: inspect.Type) -> str:
    if isinstance(type_, inspect.Metadata):
        text = (type_.extra_json_schema or {}).get("description", "")
        return str(text).replace("|", "\\|")
    return ""


def _value(type_: inspect.Type) -> str:
    """A type in words."""
    if isinstance(type_, inspect.Metadata):
        return (type_.extra or {}).get("called") or _value(type_.type)
    if isinstance(type_, inspect.UnionType):
        words = [_value(one) for one in type_.types if not isinstance(one, inspect.NoneType)]
        null = " or null" if _null_means_something(type_) else ""
        return " or ".join(dict.fromkeys(words)) + null
    if isinstance(type_, inspect.StructType):
        return f"[{type_.cls.__name__}](#{type_.cls.__name__.lower()})"
    if isinstance(type_, inspect.DictType):
        return f"{_value(type_.key_type)}: {_value(type_.value_type)}, ..."
    if isinstance(type_, inspect.VarTupleType):
        return f"list of {_value(type_.item_type)}"
    if isinstance(type_, inspect.LiteralType):
        return ", ".join(f"`{value}`" for value in type_.values)
    if isinstance(type_, inspect.IntType):
        return "whole number" + (f", {type_.ge} to {type_.le}" if type_.le is not None else "")
    names = {inspect.FloatType: "number", inspect.BoolType: "`true`, `false`", inspect.StrType: "text"}
    return names.get(type(type_), "text")


def _null_means_something(type_: inspect.UnionType) -> bool:
    return any(isinstance(one, inspect.Metadata) and (one.extra or {}).get("exact") for one in type_.types)


if __name__ == "__main__":
    sys.stdout.write(renew(sys.stdin.read()))
