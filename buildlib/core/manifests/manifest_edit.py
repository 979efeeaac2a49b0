"""Editing manifests: bytes in, bytes out, and only the bytes that must change change.

Pure. Key order, indentation, one-line objects, CRLF, byte order mark, final newline and escapes stay as their editors
left them, since a publish is reviewed as a diff.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from buildlib.core.catalog import Model
from buildlib.core.manifests.json_source import Member, Node
from buildlib.core.manifests.manifest import NAMES, Chunk, Entry, Manifest, Place, field, folded
from buildlib.core.manifests.manifest_style import Splice, Style, apply
from buildlib.errors import TargetError


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What an entry should say. url None: as it is. build_time (UTC, `2026-08-23T22:01:27Z`) moves only with the rest.

    chunks: the pieces, or () for one whole file.
    """

    file_name: str
    sha256: str
    url: str | None = None
    chunks: tuple[Chunk, ...] = ()
    build_time: str | None = None

    @classmethod
    def of(cls, entry: Entry) -> Wanted:
        """What an entry says, to be said again."""
        return cls(
            file_name=entry.file_name,
            sha256=entry.sha256,
            url=entry.url,
            chunks=entry.chunks,
            build_time=entry.build_time,
        )


def edit_entry(
    data: bytes, wanted: Wanted, short_name: str | None, *, ref: str | None = None, where: str = "manifest"
) -> bytes:
    """The manifest with one entry as wanted and every other byte as it was; the same bytes where nothing differs."""
    manifest = Manifest(data, where)
    place = manifest.find(wanted.file_name, short_name, ref)
    style = Style(manifest.text)
    splices: list[Splice] = []
    if manifest.entry(place).sha256 != wanted.sha256:
        splices.append(style.string(place.hash.node, wanted.sha256))
    url = field(place.holder, "url", "uri")
    if url is not None and wanted.url is not None and not same_url(str(url.node.scalar), wanted.url):
        splices.append(style.string(url.node, wanted.url))
    splices += _chunk_splices(style, place, wanted.chunks)
    build_time = field(place.bundle, "buildtime")
    if splices and build_time is not None and wanted.build_time not in (None, build_time.node.scalar):
        splices.append(style.string(build_time.node, str(wanted.build_time)))
    return apply(manifest.text, splices).encode()


def same_url(one: str, other: str) -> bool:
    """True where two URLs differ in the case of their percent escapes at most."""
    return one == other or _upper_escapes(one) == _upper_escapes(other)


def add_bundle(data: bytes, values: Mapping[str, object], *, where: str = "manifest") -> bytes:
    """The manifest with one more bundle at the end, in the hand of the last one.

    values: a bundle in snake_case with at least short_name, display_name and models (facts, section 4). What the last
    bundle has and values lacks (`runner`, `is_20hz`, ...) is taken from it; `index` is one more than the highest.
    Raises TargetError when a bundle of that name or index is already there, or the manifest is a plain list.
    """
    manifest = Manifest(data, where)
    listed = manifest.bundle_list
    if listed is None:
        raise TargetError("a plain list has no bundles to add to", where=where, expected='a list under "bundles"')
    for bundle in manifest.bundles():
        if bundle.short_name == values["short_name"]:
            raise TargetError(
                f'bundle "{bundle.short_name}" is already there',
                where=f"{where}:{bundle.line}",
                remedy="publish it as it is: doit publish:MODEL",
            )
    style = Style(manifest.text)
    template = listed.items[-1] if listed.items else None
    complete = {**_inherited(template), "index": _next_index(listed), **values}
    if template is None:
        spelled: object = [complete]
        return apply(manifest.text, [style.value(listed, spelled)]).encode()
    spelled = _spelled_like(complete, template)
    assert isinstance(spelled, Mapping)
    return apply(manifest.text, [style.added_items(listed, [style.like(template, spelled)])]).encode()


def bundle_values(
    model: Model, wanted: tuple[Wanted, ...], build_time: str, extra: Mapping[str, object]
) -> dict[str, object]:
    """The values of a model's new bundle, in snake_case. extra: more of them, or others (a person's own words).

    Raises TargetError when models.yaml says too little: the bundle's short name, or the target's URL.
    """
    bundle = model.bundle
    if bundle is None:
        raise TargetError(
            "a new bundle needs a name",
            where=f"models.{model.name}.bundle",
            remedy="give the model a `bundle` with at least `short_name` in models.yaml",
        )
    models = []
    for entry in wanted:
        if entry.url is None:
            raise TargetError(
                "a new bundle needs the URL of its files",
                where=f"models.{model.name}.target",
                remedy="set `url` of the target in models.yaml",
            )
        artifact: dict[str, object] = {
            "file_name": entry.file_name,
            "download_uri": {"url": entry.url, "sha256": entry.sha256},
        }
        if entry.chunks:
            artifact["chunks"] = [{"file_name": chunk.file_name, "sha256": chunk.sha256} for chunk in entry.chunks]
        models.append({"type": model.kind, "artifact": artifact})
    told = {
        "ref": bundle.ref,
        "environment": bundle.environment,
        "generation": bundle.generation,
        "minimum_selector_version": bundle.minimum_selector_version,
        "overrides": dict(bundle.overrides) or None,
    }
    return {
        "short_name": bundle.short_name,
        "display_name": model.display_name,
        **{key: value for key, value in told.items() if value is not None},
        "runner": "tinygrad",
        "build_time": build_time,
        "models": models,
        **extra,
    }


def remove_bundle(data: bytes, short_name: str, *, ref: str | None = None, where: str = "manifest") -> bytes:
    """The manifest without one bundle. Raises TargetError when it is missing or ambiguous."""
    manifest = Manifest(data, where)
    node = manifest.bundle(short_name, ref)
    listed = manifest.bundle_list
    assert listed is not None
    return apply(manifest.text, [Style(manifest.text).removed_item(listed, node)]).encode()


def set_tinygrad_ref(data: bytes, commit: str, *, where: str = "manifest") -> bytes:
    """The manifest with another `tinygrad_ref`; one without the member stays as it is."""
    manifest = Manifest(data, where)
    there = field(manifest.root, "tinygradref")
    if there is None or there.node.scalar == commit:
        return data
    return apply(manifest.text, [Style(manifest.text).string(there.node, commit)]).encode()


def with_tinygrad_ref(data: bytes, commit: str, *, where: str = "manifest") -> bytes:
    """The manifest with this `tinygrad_ref`, as its first member where it had none. A bare list has no place for it."""
    manifest = Manifest(data, where)
    if manifest.root.kind != "object" or field(manifest.root, "tinygradref") or not manifest.root.members:
        return set_tinygrad_ref(data, commit, where=where)
    return apply(manifest.text, [Style(manifest.text).first_member(manifest.root, "tinygrad_ref", commit)]).encode()


_INHERITED = ("is20hz", "isbig", "environment", "runner", "minimumselectorversion", "generation")
_CAMEL = {"short_name": "internalName", "url": "uri", "is_20hz": "is20hz"}


def _inherited(template: Node | None) -> dict[str, object]:
    found: dict[str, object] = {}
    for member in template.members if template else ():
        if folded(member.key) in _INHERITED:
            found[_snake(member.key)] = member.node.plain()
    return found


def _snake(key: str) -> str:
    known = {"is20hz": "is_20hz"}
    return known.get(folded(key)) or re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).lower()


def _next_index(listed: Node) -> int:
    found = [field(item, "index") for item in listed.items]
    return 1 + max(
        (member.node.scalar for member in found if member and isinstance(member.node.scalar, int)), default=-1
    )


def _spelled_like(value: object, template: Node) -> object:
    """snake_case keys as the template spells them, at every depth."""
    camel = any(member.key in ("internalName", "displayName", "fileName") for member in _all_members(template))
    return _spelled(value, camel)


def _all_members(node: Node) -> Iterator[Member]:
    yield from node.members
    for child in node.children():
        yield from _all_members(child)


def _spelled(value: object, camel: bool) -> object:
    if isinstance(value, Mapping):
        return {_key(str(key), camel): _spelled(inner, camel) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_spelled(inner, camel) for inner in value]
    return value


def _key(key: str, camel: bool) -> str:
    if not camel:
        return key
    first, *rest = key.split("_")
    return _CAMEL.get(key) or first + "".join(word.capitalize() for word in rest)


def _chunk_splices(style: Style, place: Place, chunks: tuple[Chunk, ...]) -> list[Splice]:
    there = field(place.owner, "chunks")
    if there is None or there.node.kind != "array":
        if not chunks:
            return []
        name_key = _key_like(place.owner, "filename", "file_name")
        values = [{name_key: chunk.file_name, "sha256": chunk.sha256} for chunk in chunks]
        return [style.added_member(place.owner, "chunks", values)]
    if not chunks:
        return [style.removed_member(place.owner, there)]
    splices: list[Splice] = []
    items = there.node.items
    for item, chunk in zip(items, chunks, strict=False):
        splices += _chunk_values(style, item, chunk)
    if not items:
        name_key = _key_like(place.owner, "filename", "file_name")
        values = [{name_key: chunk.file_name, "sha256": chunk.sha256} for chunk in chunks]
        splices.append(style.value(there.node, values))
    elif len(chunks) < len(items):
        splices.append(Splice(items[len(chunks) - 1].end, items[-1].end, ""))
    elif len(chunks) > len(items):
        new = [style.copied(items[-1], _chunk_values(style, items[-1], chunk)) for chunk in chunks[len(items) :]]
        splices.append(style.added_items(there.node, new))
    return splices


def _chunk_values(style: Style, item: Node, chunk: Chunk) -> list[Splice]:
    splices = []
    for names, value in ((NAMES, chunk.file_name), (("sha256",), chunk.sha256)):
        member = field(item, *names)
        if member is not None and str(member.node.scalar).lower() != value.lower():
            splices.append(style.string(member.node, value))
    return splices


def _key_like(owner: Node, name: str, default: str) -> str:
    member = field(owner, name)
    return member.key if member else default


def _upper_escapes(url: str) -> str:
    return re.sub(r"%[0-9a-fA-F]{2}", lambda match: match.group().upper(), url)
