"""Writing into a JSON text in the hand of whoever wrote it: same newline, indentation, spacing and escapes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from buildlib.core.manifests.json_source import Member, Node


@dataclass(frozen=True, slots=True)
class Splice:
    """text[start:end] becomes new."""

    start: int
    end: int
    new: str


def apply(text: str, splices: Iterable[Splice]) -> str:
    """The text with all splices made; they must not overlap."""
    pieces: list[str] = []
    done = 0
    for splice in sorted(splices, key=lambda splice: (splice.start, splice.end)):
        assert splice.start >= done, "overlapping edits"
        pieces += [text[done : splice.start], splice.new]
        done = splice.end
    return "".join([*pieces, text[done:]])


class Style:
    """How one file is written."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._ascii = text.isascii() and "\\u" in text

    def string(self, node: Node, value: str) -> Splice:
        """Another string in a value's place, with its slashes as they are written there."""
        text = self._dumps(value)
        escaped = "\\/" in self._text[node.start : node.end]
        return Splice(node.start, node.end, text.replace("/", "\\/") if escaped else text)

    def value(self, node: Node, value: object) -> Splice:
        """Another value in a value's place, laid out over lines if its surroundings are."""
        indent = self._indent_at(node.start)
        return Splice(node.start, node.end, self.render(value, indent, self._unit(node), one_line=not self._lines()))

    def added_member(self, owner: Node, key: str, value: object) -> Splice:
        """A member after the last one of an object."""
        last = owner.members[-1]
        if len(owner.members) > 1:
            gap = self._text[owner.members[-2].node.end : last.key_start]
        else:
            lead = self._text[owner.start + 1 : last.key_start]
            gap = "," + lead if "\n" in lead else ", "
        colon = self._text[last.key_end : last.node.start]
        indent = self._indent_at(last.key_start)
        rendered = self.render(value, indent, self._unit(owner), one_line="\n" not in gap)
        return Splice(last.node.end, last.node.end, f"{gap}{self._dumps(key)}{colon}{rendered}")

    def removed_member(self, owner: Node, member: Member) -> Splice:
        """A member and the comma that set it apart."""
        index = owner.members.index(member)
        if index:
            return Splice(owner.members[index - 1].node.end, member.node.end, "")
        if len(owner.members) > 1:
            return Splice(member.key_start, owner.members[1].key_start, "")
        return Splice(owner.start + 1, owner.end - 1, "")

    def removed_item(self, array: Node, item: Node) -> Splice:
        """An array's item and the comma that set it apart."""
        index = array.items.index(item)
        if index:
            return Splice(array.items[index - 1].end, item.end, "")
        if len(array.items) > 1:
            return Splice(item.start, array.items[1].start, "")
        return Splice(array.start + 1, array.end - 1, "")

    def chosen_items(self, array: Node, chosen: list[Node]) -> list[Splice]:
        """Only some items of an array; what stood between them and before the first one stays."""
        if not chosen:
            return [Splice(array.start + 1, array.end - 1, "")] if array.items else []
        ends = [array.start + 1, *(item.end for item in array.items)]
        before = {item.start: end for item, end in zip(array.items, ends, strict=False)}
        first, last = array.items[0], array.items[-1]
        splices = [Splice(first.start, chosen[0].start, "")]
        splices += [Splice(one.end, before[two.start], "") for one, two in pairwise(chosen)]
        return [*splices, Splice(chosen[-1].end, last.end, "")]

    def inserted_item(self, array: Node, place: int, text: str) -> Splice:
        """An item, already written, at a place of an array that has some."""
        if place == 0:
            gap = self._gap(array)
            return Splice(array.items[0].start, array.items[0].start, text + gap)
        before = array.items[place - 1]
        return Splice(before.end, before.end, self._gap(array) + text)

    def _gap(self, array: Node) -> str:
        if len(array.items) > 1:
            return self._text[array.items[-2].end : array.items[-1].start]
        return "," + self._text[array.start + 1 : array.items[0].start]

    def first_member(self, owner: Node, key: str, value: object) -> Splice:
        """A member before the first one of an object that has some."""
        first = owner.members[0]
        lead = self._text[owner.start + 1 : first.key_start]
        colon = self._text[first.key_end : first.node.start]
        gap = lead if "\n" in lead else " "
        return Splice(first.key_start, first.key_start, f"{self._dumps(key)}{colon}{self._dumps(value)},{gap}")

    def added_items(self, array: Node, rendered: list[str]) -> Splice:
        """Items, already written, after the last one of an array that has some."""
        last, gap = array.items[-1], self._gap(array)
        return Splice(last.end, last.end, "".join(gap + text for text in rendered))

    def copied(self, node: Node, splices: list[Splice]) -> str:
        """A value's text with some splices made in it."""
        moved = [Splice(splice.start - node.start, splice.end - node.start, splice.new) for splice in splices]
        return apply(self._text[node.start : node.end], moved)

    def like(self, node: Node, value: Mapping[str, object]) -> str:
        """An object laid out as an existing one is, member by member; members that it lacks come last."""
        return self._like(value, node, self._indent_at(node.start), self._unit(node))

    def render(self, value: object, indent: str, unit: str, *, one_line: bool) -> str:
        """A new value. indent: of the line it starts on."""
        if isinstance(value, Mapping) and value:
            items = [
                f"{self._dumps(key)}: {self.render(v, indent + unit, unit, one_line=one_line)}"
                for key, v in value.items()
            ]
            return self._wrap("{", items, "}", indent, unit, one_line)
        if isinstance(value, (list, tuple)) and value:
            items = [self.render(item, indent + unit, unit, one_line=one_line) for item in value]
            return self._wrap("[", items, "]", indent, unit, one_line)
        return self._dumps(value)

    def _like(self, value: object, node: Node, indent: str, unit: str) -> str:
        text = self._text[node.start : node.end]
        one_line = "\n" not in text
        if isinstance(value, Mapping) and value and node.kind == "object" and node.members:
            order = [member.key for member in node.members if member.key in value]
            order += [key for key in value if key not in order]
            models = {member.key: member.node for member in node.members}
            first = node.members[0]
            colon = self._text[first.key_end : first.node.start]
            items = []
            for key in order:
                model = models.get(key)
                shown = (
                    self._like(value[key], model, indent + unit, unit)
                    if model is not None
                    else self.render(value[key], indent + unit, unit, one_line=one_line)
                )
                items.append(f"{self._dumps(key)}{colon}{shown}")
            if one_line:
                pad = self._text[node.start + 1 : first.key_start]
                return "{" + pad + ", ".join(items) + pad + "}"
            return self._wrap("{", items, "}", indent, unit, one_line)
        if isinstance(value, (list, tuple)) and value and node.kind == "array" and node.items:
            items = [self._like(item, node.items[0], indent + unit, unit) for item in value]
            return self._wrap("[", items, "]", indent, unit, one_line)
        return self.render(value, indent, unit, one_line=one_line and node.kind in ("object", "array") and bool(text))

    def _wrap(self, opening: str, items: list[str], closing: str, indent: str, unit: str, one_line: bool) -> str:
        if one_line:
            return opening + ", ".join(items) + closing
        line = self._newline + indent
        return opening + ",".join(line + unit + item for item in items) + line + closing

    def _dumps(self, value: object) -> str:
        return json.dumps(value, ensure_ascii=self._ascii)

    def _lines(self) -> bool:
        return "\n" in self._text.strip()

    def _indent_at(self, offset: int) -> str:
        """Blanks that start the line of an offset."""
        start = self._text.rfind("\n", 0, offset) + 1
        line = self._text[start:offset].lstrip("\ufeff")
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _unit(self, node: Node) -> str:
        """One step of indentation, as seen between a container and what is in it, else as the file starts."""
        inner = node.members[0].key_start if node.members else node.items[0].start if node.items else None
        if inner is not None and "\n" in self._text[node.start : inner]:
            outer = self._indent_at(node.start)
            found = self._indent_at(inner)
            if found.startswith(outer) and found != outer:
                return found[len(outer) :]
        for line in self._text.splitlines():
            stripped = line.lstrip(" \t\ufeff")
            if stripped and line[: len(line) - len(stripped)].strip("\ufeff"):
                return line[: len(line) - len(stripped)].strip("\ufeff")
        return "  "
