"""What all kinds of target share: a publication planned as files first, then the manifests' new bytes."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from buildlib.core.catalog import Model, Target
from buildlib.core.manifests import manifest_edit, release
from buildlib.core.manifests.catalog_release import NewCatalog
from buildlib.core.manifests.manifest import Chunk, Entry, read_entry
from buildlib.core.manifests.manifest_change import Change, has_bundle
from buildlib.core.manifests.manifest_edit import Wanted
from buildlib.core.manifests.release import Storage
from buildlib.errors import RailRefused, TargetError
from buildlib.ports.target import Artifact, FileChange, PublishedFile, Request


@dataclass(frozen=True, kw_only=True)
class FilePlan:
    """One artifact. path: of the whole file; pieces: of what stands in the tree for it. present: it does already."""

    artifact: Artifact
    path: str
    storage: Storage
    chunks: tuple[Chunk, ...]
    removed: tuple[str, ...]
    present: bool
    url: str | None
    old_size: int | None


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


def placed_plans(request: Request) -> tuple[FilePlan, ...] | None:
    """Plans for artifacts that stand in another target: nothing to write. None where they do not."""
    if request.placed is None:
        return None
    there = {file.file_name: file for file in request.placed}
    return tuple(
        FilePlan(
            artifact=artifact,
            path=there[artifact.file_name].path,
            storage="plain",
            chunks=there[artifact.file_name].chunks,
            removed=(),
            present=True,
            url=there[artifact.file_name].url,
            old_size=None,
        )
        for artifact in request.artifacts
    )


def taken_over(target: Target, model: Model, read: Callable[[str], bytes | None]) -> dict[str, bytes]:
    """manifest -> its predecessor's bytes, for those that lack the model's bundle while the predecessor has it.

    read: a file of the target, None where it is not there. Raises TargetError where a predecessor is missing.
    """
    found: dict[str, bytes] = {}
    if model.bundle is None:
        return found
    name = model.bundle.short_name
    for path, former_path in zip(target.manifests, target.succeeds, strict=False):
        data = read(path)
        if data is None or has_bundle(data, name, path):
            continue
        former = read(former_path)
        if former is None:
            raise TargetError(
                "the manifest of the catalog before is not there",
                where=former_path,
                remedy=f"correct `succeeds` of targets.{target.name} in models.yaml",
            )
        if has_bundle(former, name, former_path):
            found[path] = former
    return found


def change_for(request: Request, planned: tuple[FilePlan, ...], former: Mapping[str, bytes] | None = None) -> Change:
    """The change that all manifests get. former: from `taken_over`."""
    bundle = request.model.bundle
    planned = tuple(_with_moved_url(file, request.model, former or {}) for file in planned)
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
        former=former or {},
    )


def _with_moved_url(file: FilePlan, model: Model, former: Mapping[str, bytes]) -> FilePlan:
    """A file of a new catalog is not where the former catalog's URL points."""
    if file.url is not None:
        return file
    for path, data in former.items():
        entry = entries_in(data, path, model).get(file.artifact.file_name)
        if entry is not None and entry.url is not None:
            moved = release.moved_url(entry.url, file.path)
            if moved is None:
                raise TargetError(
                    "the former catalog's URL does not show where the new file will be",
                    where=f"{path}:{entry.line}",
                    got=entry.url,
                    remedy="set `url` of the target in models.yaml",
                )
            return dataclasses.replace(file, url=moved)
    return file


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


def with_manifest_url(file: FilePlan, manifests: list[ManifestPlan], model: Model) -> FilePlan:
    """A file plan with the URL that the first manifest gives, where the target does not say one."""
    if file.url is not None:
        return file
    for manifest in manifests:
        entry = entries_in(manifest.new, manifest.path, model).get(file.artifact.file_name)
        if entry is not None and entry.url is not None:
            return dataclasses.replace(file, url=entry.url)
    return file


def former_entries(entries: Mapping[str, Mapping[str, Entry]]) -> tuple[Entry, ...]:
    """One entry an artifact, from the first manifest that has it."""
    found: dict[str, Entry] = {}
    for one in entries.values():
        found = {**one, **found}
    return tuple(found.values())


def change_back(model: Model, former: tuple[Entry, ...]) -> Change:
    """The change that brings former entries back; the bundle goes where there were none."""
    bundle = model.bundle
    short_name, ref = (bundle.short_name, bundle.ref) if bundle else (None, None)
    if not former:
        return Change(kind="remove", short_name=short_name, ref=ref)
    wanted = tuple(map(Wanted.of, former))
    return Change(kind="set", short_name=short_name, ref=ref, wanted=wanted)


def check_catalog_paths(catalog: NewCatalog, there: Mapping[str, bytes | None]) -> None:
    """Raises TargetError where a new catalog's manifest would replace another file. there: path -> its bytes."""
    for one in catalog.manifests:
        if there.get(one.path) not in (None, one.data):
            raise TargetError(
                "the new catalog's manifest is there already, with other content",
                where=one.path,
                remedy="if somebody has started this catalog, point the target in models.yaml at it",
            )


def check_confined(target: Target, request: Request) -> None:
    """Samples and artifacts for another backend stay in sandboxes. Raises RailRefused."""
    if request.confined is not None and not target.sandbox:
        raise RailRefused(
            f"{request.model.name} was {request.confined} and leaves this machine for a sandbox only",
            where=f"targets.{target.name}",
            remedy="publish an artifact compiled on its device, or to a target with `sandbox: true`",
        )


def check_tinygrad(request: Request, theirs: str | None, where: str) -> None:
    """Bytes at one URL are never replaced by bytes for another tinygrad. theirs: None where nothing tells."""
    if theirs is not None and theirs != request.tinygrad:
        raise RailRefused(
            "the published artifacts beside it were made with another tinygrad",
            where=where,
            expected=theirs[:12],
            got=(request.tinygrad or "unknown")[:12],
            remedy="start a catalog for the new tinygrad: doit catalog new",
        )


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
