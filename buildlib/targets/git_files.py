"""One artifact in a git tree: whole, as an LFS pointer, or in chunks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from buildlib.core.catalog import Model, Target
from buildlib.core.manifests import release
from buildlib.core.manifests.manifest import Chunk
from buildlib.core.manifests.release import Storage
from buildlib.errors import InputChanged, TargetError
from buildlib.ports.target import Artifact
from buildlib.targets import git_tree
from buildlib.targets.git_commands import Git
from buildlib.targets.git_tree import TreeEdit, TreeFile
from buildlib.targets.outgoing import check_bytes, chunk_paths, chunks_of, pieces_of
from buildlib.targets.publication import FilePlan


def stage_file(git: Git, file: FilePlan) -> Iterator[TreeEdit]:
    """Stores an artifact's bytes as git objects, each read back by its hash. Raises InputChanged, TargetError."""
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
        for chunk, piece in zip(file.chunks, pieces_of(artifact.path), strict=True):
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


def plan_file(
    git: Git,
    target: Target,
    model: Model,
    artifact: Artifact,
    directory: str,
    tree: Mapping[str, TreeFile],
    known: Mapping[str, str],
) -> FilePlan:
    """What an artifact needs in a tree. Raises TargetError where the bytes are wrong or the storage does not fit."""
    check_bytes(artifact)
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
        chunks = chunks_of(artifact)
        standing = chunk_paths(artifact, directory, chunks)
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
