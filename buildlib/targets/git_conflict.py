"""Somebody else's work on the same entry is not overwritten unasked; it is named with commit and author."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from buildlib.core.catalog import Target
from buildlib.core.manifests.manifest import Entry, read_entry
from buildlib.errors import BuildError
from buildlib.ports.target import Check, Request
from buildlib.targets import conflict, git_plan
from buildlib.targets.git_commands import Git
from buildlib.targets.publication import ManifestPlan, Plan

Seen = Mapping[str, Mapping[str, Entry]]
"""manifest -> file name -> the entry as we first saw it in this run."""


def check(git: Git, target: Target, request: Request, plan: Plan, seen: Seen | None) -> None:
    """Raises TargetError where an entry is another's and newer, unless the request supersedes it.

    Newer is: changed while we were publishing (or since the clone was last level); not what we published last, where
    we did; built later than what we are about to publish.
    """
    if request.supersede:
        return
    wanted = {artifact.file_name: artifact.sha256 for artifact in request.artifacts}
    for path, entries in git_plan.entries_at(git, target, request.model, plan.base).items():
        for name, entry in entries.items():
            before = (seen or {}).get(path, {}).get(name)
            if conflict.is_conflict(request, entry, wanted, before):
                raise conflict.refusal(
                    request,
                    entry,
                    where=f"{path}:{entry.line}",
                    got=f"{entry.sha256[:12]}, {_author(git, path, entry.sha256, plan.base)}",
                    unpublished=_unpublished(git, request.model.name, path, entry.sha256, plan.base),
                    before=before,
                )


def hand_edits(root: Path, plan: Plan) -> Iterator[Check]:
    """Uncommitted edits in a manifest are kept, unless they are to the very entry that is published."""
    for manifest in plan.manifests:
        try:
            here = (root / manifest.path).read_bytes()
            theirs = here != manifest.old and _same_entry_edited(here, manifest, plan)
        except (OSError, BuildError):
            continue
        yield Check(
            name="hand edits",
            ok=not theirs,
            what=f"{manifest.path} holds an uncommitted edit of the same entry",
            remedy=f"commit it or restore it: git restore -- '{manifest.path}'",
        )


def free_path(root: Path, path: str) -> Check:
    """Holds where no file of somebody's lies at a path that a commit is about to add."""
    return Check(
        name="free path",
        ok=not (root / path).exists(),
        what=f"{path} is there already and not committed",
        remedy="move it away",
    )


def _same_entry_edited(here: bytes, manifest: ManifestPlan, plan: Plan) -> bool:
    for wanted in plan.change.wanted:
        if plan.change.kind != "set":
            return False
        now = read_entry(here, wanted.file_name, plan.change.short_name, ref=plan.change.ref, where=manifest.path)
        old = read_entry(manifest.old, wanted.file_name, plan.change.short_name, ref=plan.change.ref)
        if now.sha256 not in (old.sha256, wanted.sha256) or now.chunks not in (old.chunks, wanted.chunks):
            return True
    return False


def _author(git: Git, path: str, sha256: str, commit: str) -> str:
    told = git.text("log", "-1", "--format=%h by %an on %as", f"-S{sha256}", commit, "--", path)
    return f"commit {told}" if told else "by an unknown commit"


def _unpublished(git: Git, model: str, path: str, sha256: str, commit: str) -> bool:
    """True where the entry is what `doit unpublish` put back, here or elsewhere."""
    told = git.text("log", "-1", "--format=%(trailers:key=Unpublished,valueonly)", f"-S{sha256}", commit, "--", path)
    return model in told.split()
