"""What a killed run leaves beside the journal: lock files of git commands that died with it, and scratch files.

Git's lock files are removed only where our own mark says that a run of ours died, and only when they do not go away by
themselves: the git command may have outlived us. Nobody else's lock is touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from buildlib.core.catalog import Target
from buildlib.ports.target import Check
from buildlib.store import files
from buildlib.targets.git_commands import Git
from buildlib.targets.git_journal import PENDING, Journal, settle
from buildlib.targets.git_preconditions import Repository
from buildlib.targets.git_tree import TreeFile, changed_paths, files_at
from buildlib.targets.git_work_tree import beyond_link, in_the_way, is_as, worktree_oids

PATIENCE = 10.0
"""Seconds that a lock file may still belong to a git command that lives; ours hold theirs for milliseconds."""


@contextlib.contextmanager
def survived(repository: Repository, target: Target) -> Iterator[None]:
    """Marks a run; where the mark of a dead one is found, clears up after it first. Call under the clone's lock."""
    mark = repository.state / "running"
    if mark.exists():
        _clear(repository, target)
    for torn in repository.state.glob(".*.tmp"):  # ours alone, under the lock
        torn.unlink(missing_ok=True)
    files.write(mark, str(os.getpid()).encode())
    try:
        yield
    finally:
        # A git command that was killed under us left its lock: then the mark stays, for the next run.
        if not _locks(repository, target):
            mark.unlink(missing_ok=True)


def finish(repository: Repository) -> None:
    """Ends the settling that a killed run had begun. Call inside `survived`."""
    journal = Journal(repository.state)
    if (settling := journal.read()) is None:
        return
    here = repository.git.run("rev-parse", "-q", "--verify", f"refs/heads/{settling.branch}", check=False).text
    if here == settling.base:
        settle(repository.git, journal, settling)
    elif here and repository.git.ok("merge-base", "--is-ancestor", settling.commit, here):
        # Somebody may have pulled since: git goes forward over an index that still waits for its half.
        settle(repository.git, journal, replace(settling, commit=here))
    else:
        journal.clear()  # somebody has moved the branch since, by hand; it is theirs now


def landed(repository: Repository, remote: str) -> None:
    """Settles what a run had pushed before it was killed. remote: the remote's commit, fetched.

    A plain fast-forward would refuse where a manifest holds uncommitted edits; here it is known what was changed in it.
    """
    git = repository.git
    for journal in Journal.foretold(repository.state):
        pushed = journal.read()
        if pushed is None or not git.ok("merge-base", "--is-ancestor", pushed.commit, remote):
            continue
        if git.text("rev-parse", f"refs/heads/{pushed.branch}") == pushed.base:
            settle(git, Journal(repository.state), pushed)
        journal.clear()


def untouched(git: Git, base: str, commit: str) -> Check:
    """Holds where a fast-forward runs over nobody's uncommitted work."""
    paths = changed_paths(git, base, commit)
    have, root = worktree_oids(git, paths), git.work_tree
    trees = [files_at(git, one, *sorted(paths)) if paths else {} for one in (base, commit)]
    own = {path for path in have if not any(path in tree and is_as(root, tree[path], have[path]) for tree in trees)}
    touched = sorted(own | {path for path in trees[1] if _is_blocked(root, path, set(have) - own, trees[0])})
    return Check(
        name="fast-forward",
        ok=not touched,
        what=f"uncommitted work would be lost in a fast-forward: {', '.join(touched[:3])}",
        remedy="commit it, or set it aside: git stash",
    )


def _is_blocked(root: Path, path: str, going: set[str], before: Mapping[str, TreeFile]) -> bool:
    """True where somebody's folder, file or link lies in a path's way. going: tracked files that may give way."""
    linked = beyond_link(root, path)
    if linked is not None:
        return linked not in going
    if not in_the_way(root, path) or path in before:
        return False
    if (root / path).is_dir():
        return not all(
            str(found.relative_to(root)) in going for found in (root / path).rglob("*") if not found.is_dir()
        )
    return not any(str(parent) in going for parent in PurePosixPath(path).parents)


def scratch(state: Path) -> Path:
    """A new directory for a temporary index and the like."""
    state.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="scratch-", dir=state))


def _clear(repository: Repository, target: Target) -> None:
    deadline = time.monotonic() + PATIENCE
    while (left := _locks(repository, target)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for lock in left:
        lock.unlink(missing_ok=True)
    for old in repository.state.glob("scratch-*"):
        shutil.rmtree(old, ignore_errors=True)
    for old in repository.git_dir.glob("objects/pack/tmp_*"):
        with contextlib.suppress(OSError):
            old.unlink()


def _locks(repository: Repository, target: Target) -> list[Path]:
    """Lock files of the indexes and refs that a publish writes."""
    common = repository.common_dir
    wanted = [
        repository.git_dir / "index.lock",
        repository.git_dir / "HEAD.lock",
        common / "packed-refs.lock",
        common / f"refs/heads/{target.branch}.lock",
        common / f"refs/remotes/{target.remote}/{target.branch}.lock",
        *(common / PENDING).glob("*.lock"),
    ]
    return [lock for lock in wanted if lock.exists()]
