"""What a publish puts into the next commit: files first, then the manifests' new bytes."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from buildlib.core import manifest_edit, release
from buildlib.core.catalog import Model, Target
from buildlib.core.manifest import Entry, read_entry, tinygrad_ref
from buildlib.core.manifest_edit import Change, Wanted
from buildlib.errors import RailRefused, TargetError
from buildlib.ports.target import FileChange, PublishedFile, Request
from buildlib.targets import git_tree
from buildlib.targets.git_commands import Git
from buildlib.targets.git_files import FilePlan, plan_file, stage_file
from buildlib.targets.git_tree import REGULAR, TreeEdit, TreeFile


@dataclass(frozen=True, kw_only=True)
class ManifestPlan:
    """One manifest, before and after."""

    path: str
    old: bytes
    new: bytes
    mode: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A publish on top of one commit."""

    base: str
    files: tuple[FilePlan, ...]
    manifests: tuple[ManifestPlan, ...]
    change: Change

    @property
    def empty(self) -> bool:
        """Everything stands already."""
        return all(file.present for file in self.files) and all(m.old == m.new for m in self.manifests)

    def diff(self) -> str:
        """The manifests' changes, as a unified diff with one line of surroundings."""
        return "".join(_diff(manifest) for manifest in self.manifests)

    def file_changes(self) -> tuple[FileChange, ...]:
        """Paths and sizes."""
        return tuple(
            FileChange(path=f.path, old_size=f.old_size, new_size=f.artifact.size, storage=f.storage)
            for f in self.files
            if not f.present
        )

    def published(self) -> tuple[PublishedFile, ...]:
        """The files as they will stand."""
        return tuple(
            PublishedFile(
                file_name=f.artifact.file_name,
                path=f.path,
                sha256=f.artifact.sha256,
                size=f.artifact.size,
                url=f.url,
                chunks=f.chunks,
            )
            for f in self.files
        )


def make_plan(git: Git, target: Target, request: Request, base: str, known: Mapping[str, str]) -> Plan:
    """Compares a commit with what is asked for. Stores nothing. Raises TargetError and RailRefused."""
    check_rails(git, target, request, base)
    directory = release.directory(target, request.model)
    tree = git_tree.files_at(git, base, directory, *target.manifests)
    planned = tuple(
        plan_file(git, target, request.model, artifact, directory, tree, known) for artifact in request.artifacts
    )
    manifests = {path: _manifest(git, tree, path) for path in target.manifests}
    change = change_for(request, planned)
    result = []
    for path, (old, mode) in manifests.items():
        result.append(ManifestPlan(path=path, old=old, new=change.apply(old, path), mode=mode))
    if change.kind == "set":
        planned = tuple(_with_manifest_url(file, result, request.model) for file in planned)
    return Plan(base=base, files=planned, manifests=tuple(result), change=change)


def change_for(request: Request, planned: tuple[FilePlan, ...]) -> Change:
    """The change that all manifests get."""
    bundle = request.model.bundle
    wanted = tuple(
        Wanted(
            file_name=file.artifact.file_name,
            sha256=file.artifact.sha256,
            url=file.url,
            chunks=file.chunks,
            build_time=request.build_time,
        )
        for file in planned
    )
    if request.new_bundle is not None:
        values = manifest_edit.bundle_values(request.model, wanted, request.build_time, request.new_bundle)
        return Change(kind="add", short_name=str(values["short_name"]), wanted=wanted, values=values)
    return Change(
        kind="set",
        short_name=bundle.short_name if bundle else None,
        ref=bundle.ref if bundle else None,
        wanted=wanted,
    )


def entries_at(git: Git, target: Target, model: Model, commit: str) -> dict[str, dict[str, Entry]]:
    """manifest -> file name -> entry, in a commit; what is missing is left out."""
    tree = git_tree.files_at(git, commit, *target.manifests)
    return {
        path: entries_in(git_tree.blob(git, tree[path].oid), path, model) for path in target.manifests if path in tree
    }


def any_entries(git: Git, target: Target, model: Model, commit: str) -> tuple[Entry, ...]:
    """A model's entries in a commit, one an artifact, from the first manifest that has it."""
    found: dict[str, Entry] = {}
    for entries in entries_at(git, target, model, commit).values():
        found = {**entries, **found}
    return tuple(found.values())


def entries_in(data: bytes, path: str, model: Model) -> dict[str, Entry]:
    """file name -> entry of a model's artifacts in one manifest; what is missing is left out."""
    found = {}
    bundle = model.bundle
    for name in model.artifacts.values():
        try:
            found[name] = read_entry(
                data, name, bundle.short_name if bundle else None, ref=bundle.ref if bundle else None, where=path
            )
        except TargetError:
            continue
    return found


def check_rails(git: Git, target: Target, request: Request, base: str) -> None:
    """What nothing overrides: samples stay in sandboxes, one tinygrad at one URL."""
    if request.confined is not None and not target.sandbox:
        raise RailRefused(
            f"{request.model.name} was {request.confined} and leaves this machine for a sandbox only",
            where=f"targets.{target.name}",
            remedy="publish an artifact compiled on its device, or to a target with `sandbox: true`",
        )
    theirs, where = published_tinygrad(git, target, base)
    if theirs is not None and theirs != request.tinygrad:
        raise RailRefused(
            "the published artifacts beside it were made with another tinygrad",
            where=where,
            expected=theirs[:12],
            got=(request.tinygrad or "unknown")[:12],
            remedy="start a catalog for the new tinygrad: doit catalog new",
        )


def published_tinygrad(git: Git, target: Target, base: str) -> tuple[str | None, str]:
    """The tinygrad that the catalog was made with, by its manifests or our own commits; None where nothing tells."""
    tree = git_tree.files_at(git, base, *target.manifests)
    for path in target.manifests:
        if path in tree and (ref := tinygrad_ref(git_tree.blob(git, tree[path].oid), path)):
            return ref, path
    directory = release.catalog_directory(target)
    told = git.text(
        "log", "-1", "--format=%(trailers:key=Tinygrad,valueonly)", "--grep=^Tinygrad: ", base, "--", directory or "."
    ).strip()
    return (told.split("\n")[0] or None), directory


def stage(git: Git, plan: Plan) -> tuple[TreeEdit, ...]:
    """Stores the plan's bytes as git objects, each read back by its hash; the edits that a tree needs."""
    edits: list[TreeEdit] = []
    for file in plan.files:
        if not file.present:
            edits += stage_file(git, file)
    for manifest in plan.manifests:
        if manifest.new != manifest.old:
            edits.append(
                TreeEdit(
                    path=manifest.path, oid=git_tree.stage_plain(git, manifest.path, manifest.new), mode=manifest.mode
                )
            )
    return tuple(edits)


def _manifest(git: Git, tree: Mapping[str, TreeFile], path: str) -> tuple[bytes, str]:
    found = tree.get(path)
    if found is None or not found.mode.startswith("100"):
        raise TargetError(
            "no such manifest in the repository" if found is None else "the manifest is no regular file",
            where=path,
            remedy="correct `manifests` of the target in models.yaml, or commit the manifest first",
        )
    return git_tree.blob(git, found.oid), found.mode or REGULAR


def _with_manifest_url(file: FilePlan, manifests: list[ManifestPlan], model: Model) -> FilePlan:
    """A file plan with the URL that the first manifest gives, where the target does not say one."""
    if file.url is not None:
        return file
    for manifest in manifests:
        entry = entries_in(manifest.new, manifest.path, model).get(file.artifact.file_name)
        if entry is not None and entry.url is not None:
            return dataclasses.replace(file, url=entry.url)
    return file


def _diff(manifest: ManifestPlan) -> str:
    """Unified, one line of surroundings. difflib sees only the part that differs: it garbles long repetitive files."""
    old, new = (data.decode().splitlines(keepends=True) for data in (manifest.old, manifest.new))
    if old == new:
        return ""
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    most = min(len(old), len(new)) - start
    same = next((i for i in range(most) if old[-1 - i] != new[-1 - i]), most)
    first = max(0, start - 1)
    before, after = (lines[first : len(lines) - max(0, same - 1)] for lines in (old, new))
    diff = difflib.unified_diff(before, after, f"a/{manifest.path}", f"b/{manifest.path}", n=1)
    return "".join(_shifted(line if line.endswith("\n") else line + "\n", first) for line in diff)


def _shifted(line: str, first: int) -> str:
    if not line.startswith("@@ "):
        return line
    return re.sub(r"(?<=[-+])\d+", lambda match: str(int(match.group()) + first), line)
