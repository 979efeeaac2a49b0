"""What a publish puts into the next commit: files first, then the manifests' new bytes."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from buildlib.core import manifest_edit, release
from buildlib.core.catalog import Model, Target
from buildlib.core.manifest import Chunk, Entry, read_entry, tinygrad_ref
from buildlib.core.manifest_edit import Change, Wanted
from buildlib.core.release import Storage
from buildlib.errors import InputChanged, RailRefused, TargetError
from buildlib.ports.target import Artifact, FileChange, PublishedFile, Request
from buildlib.store import files
from buildlib.targets import git_tree
from buildlib.targets.git_commands import Git
from buildlib.targets.git_tree import REGULAR, TreeEdit, TreeFile


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


def make_plan(git: Git, target: Target, request: Request, base: str, known: Mapping[str, str]) -> Plan:
    """Compares a commit with what is asked for. Stores nothing. Raises TargetError and RailRefused."""
    check_rails(git, target, request, base)
    directory = release.directory(target, request.model)
    tree = git_tree.files_at(git, base, directory, *target.manifests)
    planned = tuple(
        _file_plan(git, target, request.model, artifact, directory, tree, known) for artifact in request.artifacts
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
            edits += _stage_file(git, file)
    for manifest in plan.manifests:
        if manifest.new != manifest.old:
            edits.append(
                TreeEdit(
                    path=manifest.path, oid=git_tree.stage_plain(git, manifest.path, manifest.new), mode=manifest.mode
                )
            )
    return tuple(edits)


def _stage_file(git: Git, file: FilePlan) -> Iterator[TreeEdit]:
    artifact = file.artifact
    if file.storage == "lfs":
        oid = git_tree.stage_lfs(git, file.path, artifact.path, artifact.sha256, artifact.size)
        yield TreeEdit(path=file.path, oid=oid)
    elif file.storage == "plain":
        oid = git_tree.stage_plain(git, file.path, artifact.path)
        _read_back(git, oid, artifact.sha256, file.path)
        yield TreeEdit(path=file.path, oid=oid)
    else:
        directory = PurePosixPath(file.path).parent
        for chunk, piece in zip(file.chunks, _pieces(artifact.path), strict=True):
            path = str(directory / chunk.file_name)
            oid = git_tree.stage_plain(git, path, piece)
            _read_back(git, oid, chunk.sha256, path)
            yield TreeEdit(path=path, oid=oid)
        name = str(directory / release.chunk_manifest_name(artifact.file_name))
        yield TreeEdit(path=name, oid=git_tree.stage_plain(git, name, str(len(file.chunks)).encode()))
    for path in file.removed:
        yield TreeEdit(path=path, oid=None)


def _read_back(git: Git, oid: str, sha256: str, path: str) -> None:
    stored = hashlib.sha256(git_tree.blob(git, oid)).hexdigest()
    if stored != sha256:
        raise InputChanged("the artifact changed while it was copied", where=path, expected=sha256, got=stored)


def _file_plan(
    git: Git,
    target: Target,
    model: Model,
    artifact: Artifact,
    directory: str,
    tree: Mapping[str, TreeFile],
    known: Mapping[str, str],
) -> FilePlan:
    if files.hash_file(artifact.path) != artifact.sha256:
        raise TargetError(
            "the artifact's bytes are not those that were verified",
            where=str(artifact.path),
            expected=artifact.sha256,
            remedy="run doit again; it restores the file from the content store",
            guide="12",
        )
    path = f"{directory}/{artifact.file_name}"
    _check_case(path, git, tree)
    pieces = sorted(
        name
        for name in tree
        if name.startswith(directory + "/") and release.is_piece_of(name[len(directory) + 1 :], artifact.file_name)
    )
    storage = _storage(git, target, path, bool(pieces), artifact.size)
    there = git_tree.content(git, tree[path].oid, known) if path in tree else None
    chunks: tuple[Chunk, ...] = ()
    if storage == "chunks":
        names = release.chunk_names(artifact.file_name, artifact.size)
        chunks = tuple(
            Chunk(file_name=name, sha256=hashlib.sha256(piece).hexdigest())
            for name, piece in zip(names, _pieces(artifact.path), strict=True)
        )
        standing = {f"{directory}/{name}" for name in (*names, release.chunk_manifest_name(artifact.file_name))}
        present = (
            standing == set(pieces)
            and path not in tree
            and all(
                git_tree.content(git, tree[f"{directory}/{chunk.file_name}"].oid, known).sha256 == chunk.sha256
                for chunk in chunks
            )
        )
        removed = tuple(sorted({*pieces, *([path] if path in tree else [])} - standing))
        old_size = sum(git_tree.blob_size(git, tree[piece].oid) for piece in pieces) if pieces else None
    else:
        present = there is not None and (there.sha256, there.storage) == (artifact.sha256, storage) and not pieces
        removed = tuple(pieces)
        old_size = there.size if there else None
    return FilePlan(
        artifact=artifact,
        path=path,
        storage=storage,
        chunks=chunks,
        removed=removed,
        present=present,
        url=release.file_url(target, model, path),
        old_size=old_size,
    )


def _storage(git: Git, target: Target, path: str, in_chunks: bool, size: int) -> Storage:
    lfs = git_tree.is_lfs_path(git, path)
    storage: Storage = target.large_files or ("lfs" if lfs else "chunks" if in_chunks else "plain")
    if storage == "lfs" and not lfs:
        raise TargetError(
            "large_files is lfs, and .gitattributes does not send this path through git-lfs",
            where=path,
            remedy=f"git lfs track '*{PurePosixPath(path).suffix}', commit .gitattributes and push it",
        )
    if storage == "chunks" and lfs:
        raise TargetError(
            "large_files is chunks, and .gitattributes sends this path through git-lfs",
            where=path,
            remedy="set large_files: lfs, or take the path out of .gitattributes",
        )
    limit = release.host_limit(git.run("remote", "get-url", "--push", target.remote, check=False).text)
    if storage == "plain" and limit is not None and size > limit[1]:
        raise TargetError(
            f"{limit[0]} refuses plain files over {limit[1] // 2**20} MiB",
            where=path,
            got=f"{size / 2**20:.1f} MiB",
            remedy=f"set large_files: lfs or chunks for targets.{target.name} in models.yaml",
        )
    return storage


def _check_case(path: str, git: Git, tree: Mapping[str, TreeFile]) -> None:
    twins = [name for name in tree if name != path and name.casefold() == path.casefold()]
    if twins:
        raise TargetError(
            "a path that differs in upper and lower case only is there already",
            where=str(git.work_tree),
            expected=path,
            got=twins[0],
            remedy="spell the artifact's name as it is published",
        )


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


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        first = True
        while (piece := file.read(release.CHUNK_SIZE)) or first:
            first = False
            yield piece


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
