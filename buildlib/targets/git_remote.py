"""The remote's side of a publish: where its branch is, and what became of a push."""

from __future__ import annotations

import re
import time

from buildlib.core.catalog import Target
from buildlib.errors import OutcomeUnknown, TargetError
from buildlib.ports.target import Check
from buildlib.targets.git_commands import Done, Git
from buildlib.targets.publication import Plan

ASKED_AGAIN = 5
PAUSE = 2.0
"""After a connection broke in the middle of a push: how often the remote is asked, and seconds between."""


class Moved(Exception):
    """The remote's branch has commits that ours does not sit on."""


class Refused(TargetError):
    """The remote answered, and did not take it. Nothing changed there."""


def tracking(target: Target) -> str:
    """Our memory of the remote's branch."""
    return f"refs/remotes/{target.remote}/{target.branch}"


def fetch(git: Git, target: Target) -> str:
    """The remote's commit, fetched. Raises TargetError."""
    done = git.run(
        "fetch", "-q", "--no-tags", target.remote, f"+refs/heads/{target.branch}:{tracking(target)}", check=False
    )
    if done.status != 0:
        raise git.failed(
            done,
            f"{target.remote}/{target.branch} cannot be fetched",
            f"see that it can be reached and has the branch: git fetch {target.remote} {target.branch}",
        )
    return git.text("rev-parse", tracking(target))


def ancestry(git: Git, target: Target, head: str, remote: str) -> Check:
    """Holds where head is the remote's commit or an ancestor of it, so that going forward loses nothing."""
    if head == remote or is_ancestor(git, head, remote):
        return Check(name="level", ok=True, what="")
    if is_ancestor(git, remote, head):
        if git.run("merge-base", "--fork-point", tracking(target), head, check=False).text == head:
            return Check(
                name="level",
                ok=False,
                what=f"{target.remote}/{target.branch} was set back behind what it had",
                remedy=f"agree with whoever did it, then git reset --keep {target.remote}/{target.branch}",
            )
        count = int(git.text("rev-list", "--count", f"{remote}..{head}"))
        return Check(
            name="level",
            ok=False,
            what=f"{count} commits of yours are not pushed yet" if count > 1 else "a commit of yours is not pushed yet",
            remedy=f"push (git push {target.remote} {target.branch}) or move to another branch",
        )
    return Check(
        name="level",
        ok=False,
        what=f"{target.branch} and {target.remote}/{target.branch} have diverged (or the remote was rewritten)",
        remedy=f"compare (git log {target.remote}/{target.branch}), then git rebase or git reset by hand",
    )


def ask(git: Git, target: Target, head: str) -> tuple[str, Check]:
    """How the branch stands to the remote's, in words, without fetching anything."""
    done = git.run("ls-remote", target.remote, f"refs/heads/{target.branch}", check=False)
    remote = done.text.split("\t")[0]
    if not remote:
        why = f": {done.last_words}" if done.status else ""
        return f"{target.remote} not reached", Check(
            name="level",
            ok=False,
            what=f"{target.remote}/{target.branch} cannot be fetched{why}",
            remedy=f"see that it can be reached and has the branch: git fetch {target.remote} {target.branch}",
        )
    if remote == head:
        return f"level with {target.remote}", Check(name="level", ok=True, what="")
    if not git.ok("cat-file", "-e", f"{remote}^{{commit}}"):
        return f"behind {target.remote}; publish fetches first", Check(name="level", ok=True, what="")
    check = ancestry(git, target, head, remote)
    return (f"behind {target.remote}; publish goes forward first" if check.ok else check.what), check


def is_ancestor(git: Git, one: str, other: str) -> bool:
    """True when one is other or an ancestor of it."""
    return git.ok("merge-base", "--is-ancestor", one, other)


def push(git: Git, target: Target, base: str, commit: str, give_up: str | None) -> None:
    """Returns when the remote has the commit. Raises Moved, Refused, OutcomeUnknown.

    Only onto base: a branch that was set back behind it meanwhile does not get back what somebody took away.
    give_up: what drops the commit, for the remedy.
    """
    branch = f"refs/heads/{target.branch}"
    lease = f"--force-with-lease={branch}:{base}"
    done = git.run("push", "-q", "--no-follow-tags", lease, target.remote, f"{commit}:{branch}", check=False)
    told = git.run("rev-parse", "-q", "--verify", tracking(target), check=False).text
    if done.status == 0 or told == commit:  # git notes it as soon as the remote says so, whatever breaks after that
        return
    remote = _settled(git, target, base, broken=_is_broken(done))
    if remote is None or (remote == base and _is_broken(done)):
        again = f"the same again when {target.remote} can be reached"
        raise OutcomeUnknown(
            f"committed as {commit[:10]}, and not known to be pushed",
            where=str(git.work_tree),
            got=done.last_words,
            remedy=f"{again}, or {give_up}" if give_up else again,
        )
    if remote == commit:
        return
    if remote == base:
        raise Refused(
            f"{target.remote} refused the push",
            where=str(git.work_tree),
            got=done.last_words,
            remedy="see that the key or token may write there and what its hooks want; nothing was changed",
        )
    if not is_ancestor(git, commit, fetch(git, target)):
        raise Moved


def _settled(git: Git, target: Target, base: str, *, broken: bool) -> str | None:
    """The remote's commit, "" where it has no such branch, None where it does not say.

    After a broken connection it is asked for a while: the remote may still be taking the commit in.
    """
    remote: str | None = None
    for turn in range(ASKED_AGAIN if broken else 1):
        if turn:
            time.sleep(PAUSE)
        asked = git.run("ls-remote", target.remote, f"refs/heads/{target.branch}", check=False)
        remote = asked.text.split("\t")[0] if asked.status == 0 else None
        if remote not in (None, base):
            break
    return remote


def _is_broken(done: Done) -> bool:
    """True where git ended without the remote's word on the commit."""
    return "! [" not in done.stderr and (done.status < 0 or _BROKEN.search(done.stderr) is not None)


_BROKEN = re.compile(
    r"hung up unexpectedly|unexpected disconnect|early EOF|broken pipe|timed out|closed by remote host"
    r"|connection (was )?(reset|closed|lost|aborted)|operation too slow|RPC failed; (HTTP 5|curl (18|28|52|55|56|92))",
    re.IGNORECASE,
)


def push_lfs(git: Git, target: Target, plan: Plan) -> None:
    """Large files go before the commit that names them. Raises Refused."""
    oids = [file.artifact.sha256 for file in plan.files if file.storage == "lfs" and not file.present]
    done = git.run("lfs", "push", "--object-id", target.remote, *oids, check=False) if oids else None
    if done is not None and done.status != 0:
        raise Refused(
            "the LFS server did not take the artifact",
            where=str(git.work_tree),
            got=done.last_words,
            remedy="see `git lfs env` and the server's quota; nothing was changed",
        )
