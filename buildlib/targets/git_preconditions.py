"""A models repository as it should be before a publish: each deviation is one line with its remedy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from buildlib.core.catalog import Target
from buildlib.errors import TargetError
from buildlib.ports.target import Check
from buildlib.targets.git_commands import MISLEADING, Git
from buildlib.targets.git_tree import parse_author

OLDEST_GIT = (2, 36)
_UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisection",
}


@dataclass(frozen=True, kw_only=True)
class Repository:
    """Where git keeps things. git_dir: of this work tree; common_dir: of all its work trees."""

    git: Git
    git_dir: Path
    common_dir: Path

    @property
    def state(self) -> Path:
        """Our own directory inside git's: journal, temporary index, known hashes."""
        return self.git_dir / "supercombo-build"


def open_repository(path: Path) -> Repository:
    """The repository at a path. Raises TargetError where there is none, or the environment points git elsewhere."""
    if not path.is_dir():
        raise TargetError(
            "the models repository is not there",
            where=str(path),
            remedy="mount the share or clone the repository, or correct `repository` of the target in models.yaml",
        )
    for variable in MISLEADING:
        if variable in os.environ:
            raise TargetError(
                f"{variable} is set and would point git at another repository",
                got=os.environ[variable],
                remedy=f"unset {variable}",
            )
    git = Git(path)
    told = git.run("rev-parse", "--show-toplevel", "--absolute-git-dir", "--git-common-dir", check=False)
    if told.status != 0:
        raise TargetError(
            "not a git work tree",
            where=str(path),
            got=told.last_words,
            remedy="clone the models repository there (a bare one has no work tree), or correct `repository`",
        )
    top, git_dir, common = told.text.split("\n")
    if not path.samefile(top):
        raise TargetError(
            "not the top of a git work tree",
            where=str(path),
            expected=top,
            remedy="correct `repository` of the target in models.yaml",
        )
    return Repository(git=git, git_dir=Path(git_dir), common_dir=(path / common).resolve())


def local_checks(repository: Repository, target: Target) -> Iterator[Check]:
    """What can be seen without the network, most basic first."""
    git = repository.git
    yield _git_version(git)
    yield _under_way(repository)  # before the branch: a rebase detaches HEAD
    yield _branch(git, target)
    lock = repository.git_dir / "index.lock"
    yield Check(
        name="index",
        ok=not lock.exists(),
        what="another git command is at work (index.lock)",
        remedy=f"let it end; if none runs, remove {lock}",
    )
    yield _staged(git)
    yield Check(
        name="whole history",
        ok=git.text("rev-parse", "--is-shallow-repository") == "false",
        what="the clone is shallow",
        remedy="git fetch --unshallow",
    )
    yield _identity(git, target)
    yield Check(
        name="remote",
        ok=git.ok("remote", "get-url", target.remote),
        what=f'no remote called "{target.remote}"',
        remedy=f"git remote add {target.remote} URL, or correct `remote` of the target in models.yaml",
    )


def lfs_check(git: Git) -> Check:
    """git-lfs is installed, and its filter is configured."""
    ok = git.ok("lfs", "version") and git.ok("config", "filter.lfs.clean")
    return Check(
        name="git-lfs",
        ok=ok,
        what="the artifact's path goes through git-lfs, which is not installed",
        remedy="install git-lfs (apt install git-lfs, brew install git-lfs), then `git lfs install`",
    )


def push_check(git: Git, target: Target, head: str) -> Check:
    """The remote would take a push from us, as far as it says without one."""
    done = git.run("push", "--dry-run", "--no-verify", target.remote, f"{head}:refs/heads/{target.branch}", check=False)
    return Check(
        name="push right",
        # Behind, which publish mends by itself: the refusal is git's own, after the remote let us in.
        ok=done.status == 0 or "! [rejected]" in done.stderr,
        what=f"{target.remote} does not take a push: {done.last_words}",
        remedy="see that the key or token may write there: git push --dry-run",
    )


def require(checks: Iterator[Check], where: str) -> None:
    """Raises TargetError for the first check that does not hold."""
    for check in checks:
        if not check.ok:
            raise TargetError(check.what, where=where, remedy=check.remedy)


def _git_version(git: Git) -> Check:
    told = git.text("version")
    match = re.search(r"(\d+)\.(\d+)", told)
    found = (int(match.group(1)), int(match.group(2))) if match else (0, 0)
    return Check(
        name="git version",
        ok=found >= OLDEST_GIT,
        what=f"{told} is too old",
        remedy=f"install git {OLDEST_GIT[0]}.{OLDEST_GIT[1]} or newer",
    )


def _branch(git: Git, target: Target) -> Check:
    head = git.run("symbolic-ref", "-q", "--short", "HEAD", check=False)
    if head.status != 0:
        return Check(
            name="branch",
            ok=False,
            what=f'HEAD is detached, expected branch "{target.branch}"',
            remedy=f"git switch {target.branch}",
        )
    if head.text == target.branch and not git.ok("rev-parse", "-q", "--verify", "HEAD^{commit}"):
        return Check(
            name="branch",
            ok=False,
            what=f'branch "{target.branch}" has no commit yet',
            remedy="commit the manifests and push them first",
        )
    return Check(
        name="branch",
        ok=head.text == target.branch,
        what=f'the work tree is on branch "{head.text}", expected "{target.branch}"',
        remedy=f"git switch {target.branch}, or correct `branch` of the target in models.yaml",
    )


def _under_way(repository: Repository) -> Check:
    found = [what for name, what in _UNDER_WAY.items() if (repository.git_dir / name).exists()]
    what = found[0] if found else "a merge or rebase"
    return Check(
        name="nothing under way",
        ok=not found,
        what=f"{what} is under way",
        remedy=f"finish it or give it up: git {what.split()[-1].replace('bisection', 'bisect')} --abort"
        if "bisect" not in what
        else "git bisect reset",
    )


def _staged(git: Git) -> Check:
    listed = git.run("diff-index", "--cached", "--name-only", "-z", "HEAD", check=False)
    names = [name.decode("utf-8", "replace") for name in listed.stdout.split(b"\0") if name]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Check(
        name="nothing staged",
        ok=not names,
        what=f"changes are staged: {shown}",
        remedy="commit them, or unstage them: git restore --staged .",
    )


def _identity(git: Git, target: Target) -> Check:
    if target.author is not None:
        parse_author(target.author)
    named = git.ok("config", "user.name") and git.ok("config", "user.email")
    by_environment = all(
        f"GIT_{role}_{part}" in os.environ for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")
    )
    return Check(
        name="identity",
        ok=named or by_environment or target.author is not None,
        what="git does not know who commits",
        remedy="git config user.name NAME && git config user.email ADDRESS, or set `author` of the target",
    )
