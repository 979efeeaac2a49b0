"""What stood before: the commit that published a model, and the artifact and entries that it replaced."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from buildlib.core.catalog import Model, Target
from buildlib.core.manifests import release
from buildlib.core.manifests.manifest_change import Change
from buildlib.errors import TargetError
from buildlib.ports.target import PublishedFile
from buildlib.targets import conflict, git_plan, git_tree, publication
from buildlib.targets.git_commands import Git
from buildlib.targets.git_tree import TreeEdit, TreeFile


@dataclass(frozen=True, kw_only=True)
class Former:
    """The way back from a publication."""

    edits: tuple[TreeEdit, ...]
    change: Change
    files: tuple[PublishedFile, ...]


def last_commit(git: Git, published: tuple[PublishedFile, ...], base: str) -> str | None:
    """The commit that last touched some files, whole or in chunks."""
    paths = [
        str(PurePosixPath(file.path).with_name(chunk.file_name)) for file in published for chunk in file.chunks
    ] or [file.path for file in published]
    return git.text("--literal-pathspecs", "log", "-1", "--format=%H", base, "--", *paths) or None


def file_sha256(
    git: Git, tree: Mapping[str, TreeFile], directory: str, name: str, known: Mapping[str, str]
) -> str | None:
    """sha256 of a file in a commit, whole or in chunks; None where it is not there."""
    path = f"{directory}/{name}"
    if path in tree:
        return git_tree.content(git, tree[path].oid, known).sha256
    pieces = sorted(
        p for p in tree if release.is_piece_of(p[len(directory) + 1 :], name) and not p.endswith("manifest")
    )
    if not pieces:
        return None
    joined = "+".join(tree[piece].oid for piece in pieces)
    if joined in known:
        return known[joined]
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(git_tree.blob(git, tree[piece].oid))
    return hasher.hexdigest()


def former(git: Git, target: Target, model: Model, head: str) -> Former:
    """What stood before the model's last publication. Raises TargetError where there was nothing, or no publication."""
    directory = release.directory(target, model)
    names = list(model.artifacts.values())
    tree = git_tree.files_at(git, head, directory, *target.manifests)
    mine = {path: file for path, file in tree.items() if _is_ours(path, directory, names)}
    commit = _last_publication(git, target, model, sorted(mine), head)
    told = git.text("log", "-1", "--format=%P%n%(trailers:only)", commit) if commit else ""
    parent, _, trailers = told.partition("\n")
    if not parent or "Artifact: " not in trailers:
        already = f"Unpublished: {model.name}" in trailers
        raise TargetError(
            f"{model.name} is unpublished already" if already else f"{model.name} has no publication to take back",
            where=directory,
            got=f"last changed by commit {commit[:10]}" if commit else "no file of it",
            remedy=f"see what was there: git log -- '{directory}'",
        )
    here = publication.former_entries(git_plan.entries_at(git, target, model, head))
    conflict.require_ours(model, here, conflict.published_by(trailers))
    old_tree = git_tree.files_at(git, parent, directory)
    old_mine = {path: file for path, file in old_tree.items() if _is_ours(path, directory, names)}
    entries = git_plan.entries_at(git, target, model, parent)
    change = publication.change_back(model, publication.former_entries(entries))
    edits = [
        TreeEdit(path=path, oid=old_mine[path].oid if path in old_mine else None, mode=file.mode)
        for path, file in {**mine, **old_mine}.items()
        if path not in old_mine or path not in mine or mine[path].oid != old_mine[path].oid
    ]
    for path in target.manifests:
        if path in tree:
            before = git_tree.blob(git, tree[path].oid)
            after = change.apply(before, path)
            if after != before:
                oid = git_tree.stage_plain(git, path, after)
                edits.append(TreeEdit(path=path, oid=oid, mode=tree[path].mode))
    files = tuple(
        PublishedFile(
            file_name=wanted.file_name,
            path=f"{directory}/{wanted.file_name}",
            sha256=wanted.sha256,
            size=0,
            url=wanted.url,
            chunks=wanted.chunks,
        )
        for wanted in change.wanted
    )
    return Former(edits=tuple(edits), change=change, files=files)


def _last_publication(git: Git, target: Target, model: Model, mine: list[str], head: str) -> str:
    """The commit that last touched the model's files, or, where files stand elsewhere, the last that names them."""
    if mine:
        return git.text("--literal-pathspecs", "log", "-1", "--format=%H", head, "--", *mine)
    said = [f"--grep=^Artifact: {_literal(name)} sha256:" for name in model.artifacts.values()]
    said.append(f"--grep=^Unpublished: {_literal(model.name)}$")
    return git.text("--literal-pathspecs", "log", "-1", "--format=%H", *said, head, "--", *target.manifests)


def _literal(name: str) -> str:
    return re.sub(r"([].[*^$\\])", r"\\\1", name)


def _is_ours(path: str, directory: str, names: list[str]) -> bool:
    name = path[len(directory) + 1 :] if path.startswith(directory + "/") else ""
    return any(name == wanted or release.is_piece_of(name, wanted) for wanted in names)
