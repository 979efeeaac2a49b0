"""YAML text to a tree that knows its lines and keeps every scalar as it was written.

Built from the parser's events, not by PyYAML's constructor: `010`, `1e3` and `yes` stay text until the key says what
they must be, duplicate keys are seen, no object is ever constructed, and aliases cannot grow without bound.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from buildlib.core.declaration.interpolation import Unresolved, interpolate
from buildlib.core.declaration.names import odd_characters
from buildlib.core.declaration.problems import Problems, printable, shown

MAX_CHARACTERS = 4 * 1024 * 1024
MAX_DEPTH = 20
MAX_NODES = 500_000

# Controls, halves of characters, and the line ends that YAML counts and no editor does.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Scalar:
    """text: exact. plain: written without quotes, so it may be a number, a boolean or null."""

    text: str
    plain: bool
    line: int
    interpolated: bool = False
    size = 1


@dataclass(slots=True)
class Sequence:
    """A list."""

    line: int
    items: list[Node] = field(default_factory=list)
    size: int = 1


@dataclass(slots=True)
class Table:
    """A mapping; entries are (key, line of the key, value), keys unique."""

    line: int
    entries: list[tuple[str, int, Node]] = field(default_factory=list)
    size: int = 1

    def get(self, key: str) -> Node | None:
        return next((node for name, _, node in self.entries if name == key), None)


Node = Scalar | Sequence | Table


def read_tree(text: str, problems: Problems, environ: Mapping[str, str]) -> Table | None:
    """The file's mapping. None, and at least one problem, when the text is no YAML or no mapping."""
    if not _text_is_fit(text, problems):
        return None
    builder = _Builder(problems, environ)
    try:
        for event in yaml.parse(text.removeprefix("\ufeff"), Loader=_Loader):
            if not builder.take(event):
                return None
    except yaml.YAMLError as error:
        _add_syntax_error(error, text, problems)
        return None
    if builder.root is None or (isinstance(builder.root, Scalar) and builder.root.text in ("", "~", "null")):
        problems.add(0, "", "expected models, devices and so on, got an empty file")
        return None
    if not isinstance(builder.root, Table):
        problems.expected(builder.root.line, "", "keys such as models:", describe(builder.root))
        return None
    return builder.root


def describe(node: Node) -> str:
    """What a node is, for the "got" of a message."""
    if isinstance(node, Table):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    if node.text == "" and node.plain:
        return "nothing"
    return printable(node.text[:60]) if node.plain and len(node.text) <= 60 else shown(node.text)


def _text_is_fit(text: str, problems: Problems) -> bool:
    if len(text) > MAX_CHARACTERS:
        problems.expected(0, "", f"at most {MAX_CHARACTERS:,} characters", f"{len(text):,}")
        return False
    fit = True
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        stripped = line.lstrip(" ")
        if stripped.startswith("\t"):
            problems.add(number, "", "expected spaces before a key, got a tab")
            fit = False
        unfit = None if line.isprintable() else _UNFIT.search(line)
        if unfit:
            problems.expected(number, "", "printable characters", f"U+{ord(unfit.group()):04X}")
            fit = False
    return fit


def _add_syntax_error(error: yaml.YAMLError, text: str, problems: Problems) -> None:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        what = " ".join(filter(None, (error.context, error.problem)))
        line = mark.line + 1 if mark else 0
    else:
        position = getattr(error, "position", None)
        what = getattr(error, "reason", "")
        line = text.count("\n", 0, position) + 1 if isinstance(position, int) else 0
    problems.add(line, "", f"no YAML: {printable(what) or 'unreadable text'}")


@dataclass(slots=True)
class _Open:
    node: Sequence | Table
    anchor: str | None
    key: str | None = None
    key_line: int = 0
    has_key: bool = False
    seen: dict[str, int] = field(default_factory=dict)


class _Builder:
    """Takes events one by one. `take` returns False when going on makes no sense."""

    def __init__(self, problems: Problems, environ: Mapping[str, str]) -> None:
        self.root: Node | None = None
        self._problems = problems
        self._environ = environ
        self._open: list[_Open] = []
        self._anchors: dict[str, Node] = {}
        self._documents = 0
        self._nodes = 0

    def take(self, event: Any) -> bool:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            return self._start(event)
        if isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            done = self._open.pop()
            if done.anchor:
                self._anchors[done.anchor] = done.node
            return self._place(done.node, done.node.line, 1)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._problems.add(line, "", "expected one document, got a second ---")
                return False
        return True

    def _where(self) -> str:
        return ".".join(part.key for part in self._open if part.key is not None)

    def _scalar(self, event: Any) -> bool:
        line = event.start_mark.line + 1
        if self._open and isinstance(self._open[-1].node, Table) and not self._open[-1].has_key:
            return self._key(event, line)
        self._refuse_tag(event, line)
        plain = not event.style and event.tag is None
        node = Scalar(event.value, plain, line)
        if "$" in node.text:
            try:
                node.text = interpolate(node.text, self._environ)
                node.interpolated = node.text != event.value
            except Unresolved as error:
                self._problems.add(line, self._where(), str(error))
        if event.anchor:
            self._anchors[event.anchor] = node
        return self._place(node, line, 1)

    def _key(self, event: Any, line: int) -> bool:
        parent, key = self._open[-1], event.value
        self._refuse_tag(event, line)
        if event.anchor:
            self._anchors[event.anchor] = Scalar(key, True, line)
        if key == "<<" and not event.style:
            self._problems.add(line, self._where(), "merge keys (<<) are not used here; use defaults or a profile")
            parent.seen[key] = line
        elif key in parent.seen:
            first = parent.seen[key]
            self._problems.add(line, self._where(), f"key {shown(key)} is here twice, first in line {first}")
        odd = odd_characters(key)
        if odd:
            self._problems.expected(line, self._where(), "a key of printable characters", shown(key))
        parent.key, parent.key_line, parent.has_key = key, line, True
        return True

    def _start(self, event: Any) -> bool:
        line = event.start_mark.line + 1
        if self._open and isinstance(self._open[-1].node, Table) and not self._open[-1].has_key:
            self._problems.expected(line, self._where(), "a word as a key", "a list or a mapping")
            return False
        self._refuse_tag(event, line)
        if len(self._open) >= MAX_DEPTH:
            self._problems.add(line, "", f"more than {MAX_DEPTH} levels deep")
            return False
        node = Table(line) if isinstance(event, yaml.MappingStartEvent) else Sequence(line)
        self._anchors.pop(event.anchor or "", None)
        self._open.append(_Open(node, event.anchor))
        return True

    def _alias(self, event: Any) -> bool:
        line = event.start_mark.line + 1
        target = self._anchors.get(event.anchor)
        if target is None:
            open_ = any(part.anchor == event.anchor for part in self._open)
            what = "holds itself" if open_ else "stands for nothing before it"
            self._problems.add(line, self._where(), f"alias *{printable(event.anchor)} {what}")
            return False
        if self._open and isinstance(self._open[-1].node, Table) and not self._open[-1].has_key:
            self._problems.expected(line, self._where(), "a word as a key", f"the alias *{printable(event.anchor)}")
            return False
        return self._place(target, line, target.size)

    def _place(self, node: Node, line: int, weight: int) -> bool:
        self._nodes += weight
        if self._nodes > MAX_NODES:
            self._problems.add(line, "", f"more than {MAX_NODES:,} values, counting what aliases stand for")
            return False
        if not self._open:
            self.root = node
            return True
        parent = self._open[-1]
        parent.node.size += node.size
        if isinstance(parent.node, Sequence):
            parent.node.items.append(node)
            return True
        key = parent.key or ""
        if key not in parent.seen:
            parent.seen[key] = parent.key_line
            parent.node.entries.append((key, parent.key_line, node))
        parent.key, parent.has_key = None, False
        return True

    def _refuse_tag(self, event: Any, line: int) -> None:
        if event.tag not in (None, "!"):
            self._problems.add(line, self._where(), f"YAML tags such as {shown(event.tag)} are not used here")
