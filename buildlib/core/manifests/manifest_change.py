"""What a publish does to every manifest of a target, as one value that a journal can hold. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from buildlib.core.manifests.manifest import Manifest, read_entry
from buildlib.core.manifests.manifest_edit import Wanted, add_bundle, edit_entry, remove_bundle
from buildlib.core.manifests.manifest_style import Splice, Style, apply
from buildlib.errors import TargetError


def has_bundle(data: bytes, short_name: str | None, where: str = "manifest") -> bool:
    """True where a bundle of that name is there."""
    return any(bundle.short_name == short_name for bundle in Manifest(data, where).bundles())


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change for all manifests.

    kind "set": the entries in wanted, in the bundle of that name. "add": the same, where the bundle is not there yet
    all of it from values. "remove": the bundle. former: manifest -> the one before it (its catalog's, made with another
    tinygrad), whose bundle is taken over by "set" where this one lacks it.
    """

    kind: Literal["set", "add", "remove"]
    short_name: str | None
    ref: str | None = None
    wanted: tuple[Wanted, ...] = ()
    values: Mapping[str, object] = field(default_factory=dict)
    former: Mapping[str, bytes] = field(default_factory=dict)

    def apply(self, data: bytes, where: str) -> bytes:
        """The manifest after the change; the same bytes where it is already made. Raises TargetError."""
        there = has_bundle(data, self.short_name, where)
        if self.kind == "remove":
            return remove_bundle(data, str(self.short_name), ref=self.ref, where=where) if there else data
        if not there and self.kind == "add":
            return add_bundle(data, self.values, where=where)
        if not there and where in self.former and has_bundle(self.former[where], self.short_name, where):
            data = take_over(data, self.former[where], str(self.short_name), ref=self.ref, where=where)
        for wanted in self.wanted:
            data = edit_entry(data, wanted, self.short_name, ref=self.ref, where=where)
        return data


def undo(change: Change, before: bytes, where: str) -> Change:
    """The change that takes another one back in a manifest that others have edited since. before: its bytes then.

    Raises TargetError where the manifest of then does not have what was changed.
    """
    name, ref = change.short_name, change.ref
    if Manifest(before, where).bundle_list is not None and not has_bundle(before, name, where):
        return Change(kind="remove", short_name=name, ref=ref)
    entries = [read_entry(before, one.file_name, name, ref=ref, where=where) for one in change.wanted]
    wanted = tuple(map(Wanted.of, entries))
    return Change(kind="set", short_name=name, ref=ref, wanted=wanted, former={where: before})


def is_made(change: Change, data: bytes, where: str) -> bool:
    """True where all that a change wants is in a manifest as it left it: nobody has changed those entries since."""
    for one in change.wanted:
        if read_entry(data, one.file_name, change.short_name, ref=change.ref, where=where).sha256 != one.sha256:
            return False
    return change.kind != "remove" or not has_bundle(data, change.short_name, where)


def take_over(data: bytes, former: bytes, short_name: str, *, ref: str | None = None, where: str = "manifest") -> bytes:
    """The manifest with a bundle of a former one, word for word, where it stood among the bundles that both have."""
    manifest, old = Manifest(data, where), Manifest(former, f"{where} (the catalog before)")
    wanted, listed, source = old.bundle(short_name, ref), manifest.bundle_list, old.bundle_list
    if listed is None or source is None:
        raise TargetError("a plain list has no bundles to add to", where=where, expected='a list under "bundles"')
    text = old.text[wanted.start : wanted.end]
    if not listed.items:
        before = old.text[source.start + 1 : source.items[0].start]
        after = old.text[source.items[-1].end : source.end - 1]
        return apply(manifest.text, [Splice(listed.start + 1, listed.end - 1, before + text + after)]).encode()
    have = [(bundle.short_name, bundle.ref) for bundle in manifest.bundles()]
    earlier = [(bundle.short_name, bundle.ref) for bundle in old.bundles()][: source.items.index(wanted)]
    place = 1 + max((have.index(one) for one in earlier if one in have), default=-1)
    return apply(manifest.text, [Style(manifest.text).inserted_item(listed, place, text)]).encode()
