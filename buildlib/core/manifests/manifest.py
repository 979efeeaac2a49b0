"""Manifests (selector and fetcher JSON): find a model's entry and read it. `manifest_edit` changes them.

Pure. Forms that are understood (facts, section 4): bundles in snake_case and camelCase, one file
or chunks, with or without `metadata`; and plain lists of {file name, sha256}.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from buildlib.core.manifests import json_source
from buildlib.core.manifests.json_source import Member, Node
from buildlib.errors import TargetError

MOST_CANDIDATES = 8
NAMES = ("filename", "name", "file")
"""Folded keys that hold a file's name."""
_READ = (*NAMES, "shortname", "internalname", "sha256", "url", "uri", "buildtime", "chunks", "downloaduri", "download")
_ONE = "remove the one that devices do not read"
_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """One piece of a large artifact. sha256: 64 hex digits of the piece alone."""

    file_name: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What a manifest says of one artifact. line: of its object, from 1. sha256 is in lower case."""

    file_name: str
    sha256: str
    url: str | None = None
    chunks: tuple[Chunk, ...] = ()
    build_time: str | None = None
    bundle: str | None = None
    line: int = 1


@dataclass(frozen=True, kw_only=True)
class BundleInfo:
    """A bundle's identity. files: names of its artifacts (metadata and chunks are not among them)."""

    short_name: str
    display_name: str
    ref: str | None
    line: int
    files: tuple[str, ...]


def folded(key: str) -> str:
    """One spelling for `file_name`, `fileName` and `file name`."""
    return re.sub(r"[^a-z0-9]", "", key.lower())


def field(node: Node | None, *names: str) -> Member | None:
    """An object's member under the first of these folded names."""
    if node is not None:
        for name in names:
            for member in node.members:
                if folded(member.key) == name:
                    return member
    return None


def text_field(node: Node | None, *names: str) -> str | None:
    """The string under one of these folded names."""
    member = field(node, *names)
    return member.node.scalar if member is not None and isinstance(member.node.scalar, str) else None


@functools.lru_cache(maxsize=8)
def _parsed(data: bytes, where: str) -> tuple[str, Node]:
    """Remembered: one publish asks the same few manifests twenty times."""
    text = json_source.decode(data, where)
    return text, json_source.parse(text, where)


@dataclass(frozen=True)
class Place:
    """Where an entry stands. owner holds the name; holder holds sha256 and url (the same object in a plain list)."""

    bundle: Node | None
    owner: Node
    holder: Node
    hash: Member


class Manifest:
    """A manifest that has been read. `where` is its path, for messages."""

    def __init__(self, data: bytes, where: str) -> None:
        self.where = where
        self.text, self.root = _parsed(data, where)

    def line(self, node: Node) -> int:
        """Line number of a value."""
        return json_source.line_of(self.text, node.start)

    @property
    def bundle_list(self) -> Node | None:
        """The array of bundles; None for a plain list."""
        listed = field(self.root, "bundles")
        if listed is not None and listed.node.kind == "array":
            return listed.node
        if self.root.kind == "array" and any(field(item, "models") for item in self.root.items):
            return self.root
        return None

    def bundles(self) -> tuple[BundleInfo, ...]:
        """Every bundle, in the file's order."""
        listed = self.bundle_list
        return tuple(
            BundleInfo(
                short_name=short_name_of(node) or "",
                display_name=text_field(node, "displayname") or short_name_of(node) or "",
                ref=text_field(node, "ref"),
                line=self.line(node),
                files=tuple(name for name, _ in _artifacts(node)),
            )
            for node in (listed.items if listed else ())
        )

    def bundle(self, short_name: str, ref: str | None = None) -> Node:
        """The one bundle of this name (and ref, where two share the name). Raises TargetError with candidates."""
        listed = self.bundle_list
        items = listed.items if listed else ()
        found = [node for node in items if short_name_of(node) == short_name]
        if len(found) > 1 and ref is not None:
            found = [node for node in found if text_field(node, "ref") == ref]
        if len(found) == 1:
            return found[0]
        if found:
            lines = ", ".join(str(self.line(node)) for node in found)
            raise TargetError(
                f'bundle "{short_name}" is ambiguous',
                where=self.where,
                expected="one bundle",
                got=f"{len(found)}, on lines {lines}",
                remedy="give the model's bundle a `ref` in models.yaml that only one of them has",
            )
        names = {short_name_of(node) or "?": self.line(node) for node in items}
        near = difflib.get_close_matches(short_name, names, n=3, cutoff=0.4)
        shown = near or list(names)[:MOST_CANDIDATES]
        raise TargetError(
            f'no bundle "{short_name}"',
            where=self.where,
            got=_listed(f"{name} (line {names[name]})" for name in shown) or "no bundles at all",
            remedy="correct `bundle.short_name` in models.yaml, or add the model: doit publish-new MODEL",
        )

    def find(self, file_name: str, short_name: str | None, ref: str | None = None) -> Place:
        """The one entry of an artifact's file name within a bundle (or in a plain list, where bundles do not exist)."""
        bundle: Node | None = None
        if self.bundle_list is None:
            scopes: list[Node | None] = [None]
        elif short_name is not None:
            bundle = self.bundle(short_name, ref)
            scopes = [bundle]
        else:
            scopes = list(self.bundle_list.items)
        found: list[tuple[Node | None, Node]] = []
        for scope in scopes:
            found += [(scope, node) for name, node in _artifacts(scope or self.root) if name == file_name]
        if len(found) == 1:
            return self._place(*found[0])
        place = f'in bundle "{short_name}"' if bundle is not None else "in the manifest"
        if found:
            raise TargetError(
                f'"{file_name}" is ambiguous {place}',
                where=self.where,
                expected="one entry",
                got=_listed(f"line {self.line(node)}{_of(scope)}" for scope, node in found),
                remedy="say which with `bundle.short_name` in models.yaml, or remove the entry that is too many",
            )
        raise TargetError(
            f'no entry for "{file_name}" {place}',
            where=self.where if bundle is None else f"{self.where}:{self.line(bundle)}",
            got=_listed(self._candidates(file_name, bundle)) or "no entries at all",
            remedy="correct the artifact's name or its bundle in models.yaml, or add the model: doit publish-new MODEL",
        )

    def entry(self, place: Place) -> Entry:
        """What is written at a place."""
        chunks = field(place.owner, "chunks")
        return Entry(
            file_name=text_field(place.owner, *NAMES) or "",
            sha256=str(place.hash.node.scalar).lower(),
            url=text_field(place.holder, "url", "uri"),
            chunks=tuple(
                Chunk(file_name=text_field(item, *NAMES) or "", sha256=(text_field(item, "sha256") or "").lower())
                for item in (chunks.node.items if chunks else ())
            ),
            build_time=text_field(place.bundle, "buildtime"),
            bundle=short_name_of(place.bundle) if place.bundle else None,
            line=self.line(place.owner),
        )

    def _place(self, bundle: Node | None, owner: Node) -> Place:
        download = field(owner, "downloaduri", "download")
        holder = download.node if download is not None and download.node.kind == "object" else owner
        for node in filter(None, (bundle, owner, holder)):
            self._check_readable(node)
        found = field(holder, "sha256")
        if found is None or not isinstance(found.node.scalar, str):
            raise TargetError(
                "the entry has no sha256",
                where=f"{self.where}:{self.line(owner)}",
                expected='a member "sha256" with a string',
                remedy="complete the entry by hand, then publish again",
            )
        return Place(bundle, owner, holder, found)

    def _check_readable(self, node: Node) -> None:
        """Raises TargetError for a member that readers could take differently, or that no file can hold."""
        seen: dict[str, str] = {}
        for member in node.members:
            where = f"{self.where}:{json_source.line_of(self.text, member.key_start)}"
            first = seen.setdefault(folded(member.key), member.key)
            if first != member.key and folded(member.key) in _READ:
                raise TargetError(f'"{first}" and "{member.key}" are one and the same', where=where, remedy=_ONE)
            if isinstance(member.node.scalar, str) and _HALF.search(member.node.scalar):
                raise TargetError(f'"{member.key}" holds half a character', where=where, remedy="write it anew")

    def _candidates(self, file_name: str, bundle: Node | None) -> Iterator[str]:
        here = list(_artifacts(bundle or self.root)) if bundle or self.bundle_list is None else []
        yield from (f"{name} (line {self.line(node)})" for name, node in here)
        listed = self.bundle_list
        for other in listed.items if listed else ():
            if other is not bundle:
                for name, node in _artifacts(other):
                    if name == file_name:
                        yield f"{name} (line {self.line(node)}{_of(other)})"


def read_entry(
    data: bytes, file_name: str, short_name: str | None, *, ref: str | None = None, where: str = "manifest"
) -> Entry:
    """What a manifest says of an artifact. Raises TargetError: missing or ambiguous (with candidates), or not JSON."""
    manifest = Manifest(data, where)
    return manifest.entry(manifest.find(file_name, short_name, ref))


def tinygrad_ref(data: bytes, where: str = "manifest") -> str | None:
    """The tinygrad commit that all artifacts of a catalog were compiled against; None where it is not told."""
    return text_field(Manifest(data, where).root, "tinygradref")


def _artifacts(scope: Node) -> Iterator[tuple[str, Node]]:
    """Objects that name a file with a hash, chunks apart; one under `metadata` only where no other has the name."""
    direct = list(_named(scope, False))
    names = {name for name, _ in direct}
    yield from direct
    yield from ((name, node) for name, node in _named(scope, True) if name not in names)


def _named(node: Node, metadata: bool, inside: bool = False) -> Iterator[tuple[str, Node]]:
    name = text_field(node, *NAMES)
    has_hash = field(node, "sha256") or field(node, "downloaduri", "download")
    if name is not None and has_hash and inside == metadata:
        yield name, node
    for member in node.members:
        if folded(member.key) != "chunks":
            yield from _named(member.node, metadata, inside or folded(member.key) == "metadata")
    for item in node.items:
        yield from _named(item, metadata, inside)


def short_name_of(node: Node) -> str | None:
    """A bundle's short (or internal) name."""
    return text_field(node, "shortname", "internalname")


def _of(scope: Node | None) -> str:
    return f' of "{short_name_of(scope)}"' if scope is not None else ""


def _listed(candidates: Iterable[str]) -> str:
    shown = list(candidates)
    more = f" and {len(shown) - MOST_CANDIDATES} more" if len(shown) > MOST_CANDIDATES else ""
    return ", ".join(shown[:MOST_CANDIDATES]) + more
