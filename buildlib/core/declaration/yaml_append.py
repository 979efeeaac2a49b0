"""Appends an entry to one mapping of a YAML text and leaves every other byte as it was.

The entry is inserted as text where the mapping ends, and the result is parsed to prove that only that entry came in.
Layouts where text cannot simply be inserted (`models: {a: {...}}`) are rewritten by ruamel.yaml, which keeps comments.
"""

from __future__ import annotations

import io
from collections.abc import Mapping

import yaml

from buildlib.errors import UsageError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def append_entry(text: str, section: str, name: str, values: Mapping[str, object], *, path: str) -> str:
    """The text with `name: values` as the last entry of `section`. Raises UsageError where it is there already or the
    text is no YAML mapping."""
    before = _load(text, path)
    held = before.get(section)
    if isinstance(held, dict) and name in held:
        raise UsageError(f"{section}.{name} is there already", where=path, remedy="choose another name")
    if held is not None and not isinstance(held, dict):
        raise UsageError(f"{section} is no mapping", where=path, remedy="correct it first")
    wanted = {**before, section: {**(held or {}), name: dict(values)}}
    for attempt in (_insert, _rewrite):
        after = attempt(text, section, name, values)
        if after is not None and _same(_load(after, path), wanted, section):
            return after
    raise UsageError(f"nothing can be appended to {section} by itself", where=path, remedy="add the model by hand")


def _load(text: str, path: str) -> dict[str, object]:
    try:
        value = yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader, in C where there is one
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = path if line is None else f"{path}:{line + 1}"
        raise UsageError("no YAML", where=where, remedy="correct it first") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError("no YAML mapping", where=path, remedy="correct it first")
    return value


def _same(after: dict[str, object], wanted: dict[str, object], section: str) -> bool:
    held, asked = after.get(section), wanted[section]
    order = isinstance(held, dict) and isinstance(asked, dict) and list(held) == list(asked)
    return after == wanted and order


def _insert(text: str, section: str, name: str, values: Mapping[str, object]) -> str | None:
    """Text insertion; None where the layout does not allow it."""
    lines = text.splitlines(keepends=True)
    newline = "\r\n" if text.count("\r\n") * 2 > len(lines) else "\n"
    root = yaml.compose(text, Loader=_LOADER)
    pairs = root.value if isinstance(root, yaml.MappingNode) and not root.flow_style else []
    if root is not None and not pairs:
        return None
    at = next((index for index, (key, _) in enumerate(pairs) if key.value == section), None)
    if at is None:
        spaced = [] if not lines or not lines[-1].strip() else [newline]
        head = [f"{section}:{newline}", *_entry(name, values, 2, newline)]
        return "".join([*_ended(lines, newline), *spaced, *head])
    key, held = pairs[at]
    nodes = held.value if isinstance(held, yaml.MappingNode) else []
    if isinstance(held, yaml.MappingNode) and held.flow_style and not nodes:
        opened = _without_braces(lines, held)
        return None if opened is None else _insert(opened, section, name, values)
    if nodes and held.flow_style:
        return None
    if not nodes and (held.value or isinstance(held, yaml.MappingNode)):
        return None
    indent = nodes[0][0].start_mark.column if nodes else key.start_mark.column + 2
    last = pairs[at + 1][0].start_mark.line if at + 1 < len(pairs) else len(lines)
    end = _end_of(lines, key.start_mark.line + 1, last, indent)
    entry = _entry(name, values, indent, newline)
    if _are_spaced(lines, [node.start_mark.line for node, _ in nodes]):
        entry = [newline, *entry]
    return "".join([*_ended(lines[:end], newline), *entry, *lines[end:]])


def _without_braces(lines: list[str], empty: yaml.MappingNode) -> str | None:
    """The text without the `{}` of an empty mapping; None where that spans lines or holds an anchor or a tag."""
    start, end = empty.start_mark, empty.end_mark
    line = lines[start.line]
    braces = line[start.column : end.column]
    if start.line != end.line or not (braces.startswith("{") and braces.endswith("}")) or braces[1:-1].strip():
        return None
    behind = line[end.column :]
    opened = line[: start.column].rstrip(" ") + (behind if behind.strip() else behind.lstrip(" "))
    return "".join([*lines[: start.line], opened, *lines[start.line + 1 :]])


def _end_of(lines: list[str], first: int, last: int, indent: int) -> int:
    """Line behind the section's last line: blank lines and comments of the next section stay behind the entry."""
    end = last
    while end > first:
        line = lines[end - 1]
        body = line.strip()
        outer = body.startswith("#") and len(line) - len(line.lstrip()) < indent
        if body and not outer and body not in ("...", "---"):
            break
        end -= 1
    return end


def _are_spaced(lines: list[str], starts: list[int]) -> bool:
    """True when entries are parted by blank lines; alone, an entry follows the rule of one that is."""
    behind = [lines[start - 1] for start in starts[1:]]
    return bool(behind) and sum(not line.strip() for line in behind) * 2 >= len(behind)


def _ended(lines: list[str], newline: str) -> list[str]:
    if lines and not lines[-1].endswith(("\n", "\r")):
        return [*lines[:-1], lines[-1] + newline]
    return lines


def _entry(name: str, values: Mapping[str, object], indent: int, newline: str) -> list[str]:
    rendered = yaml.safe_dump(
        {name: dict(values)}, sort_keys=False, allow_unicode=True, width=1 << 20, default_flow_style=False
    )
    return [" " * indent + line + newline for line in rendered.splitlines()]


def _rewrite(text: str, section: str, name: str, values: Mapping[str, object]) -> str | None:
    """By ruamel.yaml's round trip: comments stay, layout may be evened out."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    editor = YAML(typ="rt")
    editor.preserve_quotes = True
    editor.width = 1 << 20
    editor.indent(mapping=2, sequence=4, offset=2)
    try:
        root = editor.load(text)
        if root is None:
            return None
        if not root.get(section):
            root[section] = {}
        root[section][name] = dict(values)
        out = io.StringIO()
        editor.dump(root, out)
    except (YAMLError, ValueError, TypeError, AttributeError):
        return None
    return out.getvalue()
