"""The work tree's side of a clone: what lies at a path, and bringing it to what a commit has there.

Git's own rules: a link is its text, and nothing is written or read beyond one, for it may lead out of the repository.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from buildlib.ports.target import Check
from buildlib.store import files
from buildlib.targets.git_commands import Git
from buildlib.targets.git_tree import TreeFile, blob

LINK = "120000"
SUBMODULE = "160000"


def beyond_link(root: Path, path: str) -> str | None:
    """The folder of a path that is a symbolic link in the work tree; None where all are folders or not there."""
    parents = [str(parent) for parent in PurePosixPath(path).parents][:-1]
    return next((parent for parent in reversed(parents) if (root / parent).is_symlink()), None)


def unlinked(root: Path, paths: Iterable[str]) -> Check:
    """Holds where the paths of a commit lie in the work tree itself, not behind somebody's link."""
    linked = next((found for path in sorted(paths) if (found := beyond_link(root, path)) is not None), None)
    return Check(
        name="folders",
        ok=linked is None,
        what=f"{linked} is a symbolic link in the work tree, and a publish does not write through it",
        remedy=f"put the folder back in its place: rm '{linked}' && git restore -- '{linked}'",
    )


def in_the_way(root: Path, path: str) -> bool:
    """True where a file could not be put at a path: a folder lies there, or a file where a folder of it must be."""
    if (root / path).is_dir() and not (root / path).is_symlink():
        return True
    parents = [root / parent for parent in PurePosixPath(path).parents][:-1]
    return any(parent.is_symlink() or (parent.exists() and not parent.is_dir()) for parent in parents)


def worktree_oids(git: Git, paths: set[str]) -> dict[str, frozenset[str]]:
    """path -> oids that git could give the work tree's file: with filters applied, and of its bytes as they are
    (a file committed before .gitattributes sent it through git-lfs). Paths that are no files or links are left out."""
    root = git.work_tree
    here = [path for path in sorted(paths) if beyond_link(root, path) is None]
    links = [path for path in here if (root / path).is_symlink()]
    there = [path for path in here if path not in links and (root / path).is_file()]
    found = {path: frozenset([_oid(git, os.fsencode((root / path).readlink()))]) for path in links}
    for path in [path for path in there if "\n" in path]:
        found[path] = frozenset(
            [git.text("hash-object", "--", path), git.text("hash-object", "--no-filters", "--", path)]
        )
    named = [path for path in there if "\n" not in path]
    if named:
        listed = "".join(f"{path}\n" for path in named).encode("utf-8", "surrogateescape")
        filtered = git.run("hash-object", "--stdin-paths", stdin=listed).text.split("\n")
        exact = git.run("hash-object", "--no-filters", "--stdin-paths", stdin=listed).text.split("\n")
        found |= {path: frozenset(pair) for path, *pair in zip(named, filtered, exact, strict=True)}
    return found


def _oid(git: Git, data: bytes) -> str:
    return git.run("hash-object", "--no-filters", "--stdin", stdin=data).text


def is_as(root: Path, file: TreeFile, oids: frozenset[str] | None) -> bool:
    """True where the work tree has a commit's file. oids: from `worktree_oids`."""
    if file.mode == SUBMODULE:
        return (root / file.path).is_dir()
    return file.oid in (oids or ()) and (file.mode == LINK or not (root / file.path).is_symlink())


def put(git: Git, commit: str, file: TreeFile) -> bool:
    """Makes the work tree's file what a commit has; False where somebody's folder or file is in the way."""
    place = git.work_tree / file.path
    if file.mode == SUBMODULE:  # as git without --recurse-submodules: an empty folder
        with contextlib.suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
        return place.is_dir()
    with contextlib.suppress(OSError):
        if not place.is_symlink():
            place.rmdir()  # an empty folder is nothing to git
    if in_the_way(git.work_tree, file.path):
        return False
    if file.mode == LINK and _link(place, blob(git, file.oid)):
        return True
    with files.replacing(place, mode=0o755 if file.mode == "100755" else 0o644) as output:
        git.stream(output, "cat-file", "--filters", f"{commit}:{file.path}")
    return True


def _link(place: Path, text: bytes) -> bool:
    """Makes a link in one step; False where the disk has none: then it is a file with the text, as git does it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name[:80]}.", suffix=".tmp", dir=place.parent) as scratch:
        made = Path(scratch) / "link"
        try:
            made.symlink_to(os.fsdecode(text))
        except OSError:
            return False
        made.replace(place)
    return True


def take_away(git: Git, file: TreeFile) -> None:
    """Removes a file that a commit no longer has, and the folders that it leaves empty."""
    place = git.work_tree / file.path
    if file.mode != SUBMODULE:
        place.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        if file.mode == SUBMODULE:
            place.rmdir()
        for parent in list(PurePosixPath(file.path).parents)[:-1]:
            (git.work_tree / parent).rmdir()
