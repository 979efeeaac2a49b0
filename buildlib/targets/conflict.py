"""Whose work an entry is: ours, somebody else's, or what `doit unpublish` put back."""

from __future__ import annotations

from collections.abc import Mapping

from buildlib.core.catalog import Model
from buildlib.core.manifests.manifest import Entry
from buildlib.errors import TargetError
from buildlib.ports.target import Request


def is_conflict(request: Request, entry: Entry, wanted: Mapping[str, str], before: Entry | None = None) -> bool:
    """True where an entry is another's work: not what we published last, or, where we never did, built later.

    before: the entry as this run saw it first, where it may have been changed since.
    """
    if entry.sha256 == wanted.get(entry.file_name, entry.sha256):
        return False
    if any(entry.sha256 == begun.get(entry.file_name) for begun in request.cut_off):
        return False
    if before is not None and before.sha256 != entry.sha256:
        return True
    ours = request.last_published.get(entry.file_name)
    if ours is not None:
        return ours != entry.sha256
    return entry.build_time is not None and entry.build_time > request.build_time


def refusal(
    request: Request, entry: Entry, *, where: str, got: str, unpublished: bool, before: Entry | None = None
) -> TargetError:
    """The error for an entry that is another's work, or what `doit unpublish` put back. before: as `is_conflict`."""
    expected = request.last_published.get(entry.file_name) or (before.sha256 if before else "?")
    again = f"doit publish:{request.model.name} --supersede"
    return TargetError(
        f'"{entry.file_name}" was unpublished since'
        if unpublished
        else f'somebody else has published "{entry.file_name}" since',
        where=where,
        expected=f"sha256 {expected[:12]}",
        got=got,
        remedy=f"to publish it again: {again}" if unpublished else f"agree with them; to replace theirs: {again}",
    )


def published_by(message: str) -> dict[str, str]:
    """file name -> sha256 that a commit of ours published, by its trailers."""
    lines = (line.removeprefix("Artifact: ") for line in message.splitlines() if line.startswith("Artifact: "))
    return {name: sha256 for name, _, sha256 in (line.rpartition(" sha256:") for line in lines)}


def require_ours(model: Model, entries: tuple[Entry, ...], published: Mapping[str, str]) -> None:
    """Raises TargetError where an entry is no longer what the publication that is to be taken back left there.

    published: file name -> sha256.
    """
    for entry in entries:
        ours = published.get(entry.file_name)
        if ours is not None and entry.sha256 != ours:
            raise TargetError(
                f'somebody else has published "{entry.file_name}" since',
                where=f"line {entry.line} of a manifest",
                expected=f"sha256 {ours[:12]}",
                got=entry.sha256[:12],
                remedy=f"agree with them; theirs is not taken back by `doit unpublish {model.name}`",
            )
