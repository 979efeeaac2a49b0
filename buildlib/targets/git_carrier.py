"""Carries a proposal into the remote: commit, push, and only then branch, index and work tree (docs/decisions/0031)."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from buildlib.core.catalog import Target as TargetSettings
from buildlib.core.manifests.manifest_change import Change
from buildlib.errors import Cancelled, TargetError
from buildlib.ports.events import Events, Silent
from buildlib.ports.target import Published, PublishedFile
from buildlib.store import locks
from buildlib.targets import git_aftermath, git_history, git_preconditions, git_remote, git_tree, git_work_tree
from buildlib.targets.git_commands import Git
from buildlib.targets.git_journal import PENDING, Journal, Settling, settle
from buildlib.targets.git_known import Known
from buildlib.targets.git_preconditions import Repository, open_repository
from buildlib.targets.git_tree import TreeEdit
from buildlib.targets.publication import Plan

LOCK_WAIT = 600.0
"""Seconds that a publish waits for another one in the same clone."""

TRIES = 2
"""A publish starts anew once when somebody pushed in between."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What is to become the next commit. plan: None where no new file goes with it."""

    base: str
    edits: tuple[TreeEdit, ...]
    message: str
    change: Change | None
    files: tuple[PublishedFile, ...]
    plan: Plan | None = None


def _shown(subject: str) -> str:
    """A model's name; of what is no model's, such as a catalog's, without the mark that tells it from one."""
    return subject.lstrip("+")


class Carrier:
    """One clone and its remote."""

    def __init__(self, settings: TargetSettings, root: Path) -> None:
        self._settings = settings
        self._root = root

    def carry_out(
        self,
        purpose: str,
        subject: str,
        propose: Callable[[Repository, str, str], Proposal],
        events: Events | None,
        cancel: Event | None,
    ) -> Published:
        """One commit from a proposal, pushed. The proposal is made anew where somebody pushed in between."""
        told: Events = events or Silent()
        settings, name = self._settings, _shown(subject)
        with self.locked(purpose, told, subject) as repository:
            git = repository.git
            for _ in range(TRIES):
                _stop(cancel)
                base, before = self._level(repository, subject, told)
                proposal = propose(repository, base, before)
                if not proposal.edits:
                    self.forget(repository, subject)
                    return Published(
                        changed=False,
                        commit=git_history.last_commit(git, proposal.files, base) if proposal.files else None,
                        files=proposal.files,
                    )
                paths = {edit.path for edit in proposal.edits}
                git_preconditions.require(iter([git_work_tree.unlinked(self._root, paths)]), str(self._root))
                commit = self._commit(repository, proposal, subject)
                _stop(cancel)
                Journal(repository.state, subject).write(self._settling(proposal, commit))
                told.step(name, "publish", f"pushing {commit[:10]} to {settings.remote}/{settings.branch}")
                try:
                    if proposal.plan is not None:
                        git_remote.push_lfs(git, settings, proposal.plan)
                    git_remote.push(git, settings, base, commit, f"doit abandon {name}" if name == subject else None)
                except git_remote.Moved:
                    self.forget(repository, subject)
                    told.step(name, "publish", f"{settings.remote} moved on; starting anew on its new head")
                    continue
                except git_remote.Refused:
                    self.forget(repository, subject)
                    raise
                return self._follow(repository, proposal, commit, subject, told)
        raise TargetError(
            f"somebody else keeps pushing to {settings.remote}/{settings.branch}",
            where=str(self._root),
            remedy="try again when they are done; nothing was changed",
        )

    @contextlib.contextmanager
    def locked(self, purpose: str, events: Events, subject: str) -> Iterator[Repository]:
        """Alone in the clone, and after whatever a killed run left was ended."""
        repository = open_repository(self._root)
        with (
            locks.exclusive(
                repository.common_dir / "supercombo-build.lock",
                purpose,
                wait=LOCK_WAIT,
                on_wait=lambda holder: events.step(_shown(subject), "publish", f"waits for {holder}"),
            ),
            git_aftermath.survived(repository, self._settings),
        ):
            git_aftermath.finish(repository)
            yield repository

    def _level(self, repository: Repository, subject: str, events: Events) -> tuple[str, str]:
        """Preconditions, fetch, fast-forward. The branch's commit after that and before it."""
        git, settings, where = repository.git, self._settings, str(self._root)
        git_preconditions.require(git_preconditions.local_checks(repository, settings), where)
        remote = git_remote.fetch(git, settings)
        git_aftermath.landed(repository, remote)
        head = git.text("rev-parse", "HEAD")
        git_preconditions.require(iter([git_remote.ancestry(git, settings, head, remote)]), where)
        if head != remote:
            git_preconditions.require(iter([git_aftermath.untouched(git, head, remote)]), where)
            settle(git, Journal(repository.state), Settling(branch=settings.branch, base=head, commit=remote))
            events.step(_shown(subject), "publish", f"fast-forward to {remote[:10]}")
        return remote, head

    def _commit(self, repository: Repository, proposal: Proposal, subject: str) -> str:
        """The commit, kept under our own ref; no branch moves."""
        git, scratch = repository.git, git_aftermath.scratch(repository.state)
        try:
            tree = git_tree.make_tree(git, proposal.base, proposal.edits, scratch / "index")
            commit = git_tree.make_commit(
                git,
                tree,
                proposal.base,
                proposal.message,
                author=self._settings.author,
                index=scratch / "index",
                message_file=scratch / "COMMIT_MESSAGE",
            )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        git.run("update-ref", _pending_ref(subject), commit)
        return commit

    def _follow(
        self, repository: Repository, proposal: Proposal, commit: str, subject: str, events: Events
    ) -> Published:
        """Branch, index and work tree go where the remote is."""
        git, settings = repository.git, self._settings
        git.run("update-ref", git_remote.tracking(settings), commit)
        left = settle(git, Journal(repository.state), self._settling(proposal, commit))
        for path in left:
            events.warning(subject, f"{path} holds somebody's edits and was left as it is")
        self.forget(repository, subject)
        paths = git_tree.changed_paths(git, proposal.base, commit)
        Known(repository).note(git, commit, paths)
        return Published(
            changed=True,
            commit=commit,
            files=proposal.files,
            paths=tuple(sorted(paths)),
        )

    def _settling(self, proposal: Proposal, commit: str) -> Settling:
        return Settling(
            branch=self._settings.branch,
            base=proposal.base,
            commit=commit,
            change=proposal.change,
            manifests=self._settings.manifests,
        )

    def ask(self, repository: Repository, *, sure: bool) -> None:
        """Asks the remote what it has got. Raises TargetError, with sure, where it does not answer."""
        try:
            git_aftermath.landed(repository, git_remote.fetch(repository.git, self._settings))
        except TargetError:
            if sure:
                raise

    def pending(self, git: Git, subject: str) -> str | None:
        """Our commit for a subject that the remote has not got, as far as is known here."""
        found = git.run("rev-parse", "-q", "--verify", _pending_ref(subject), check=False)
        if found.status != 0 or git_remote.is_ancestor(git, found.text, git_remote.tracking(self._settings)):
            return None
        return found.text

    def forget(self, repository: Repository, subject: str) -> None:
        """Drops our commit and what was noted for its settling."""
        Journal(repository.state, subject).clear()
        repository.git.run("update-ref", "-d", _pending_ref(subject), check=False)


def _pending_ref(subject: str) -> str:
    name = re.sub(r"\.(?=\.|lock$)", "%2e", subject)  # what git refuses in the name of a ref
    return f"{PENDING}{name}"


def _stop(cancel: Event | None) -> None:
    if cancel is not None and cancel.is_set():
        raise Cancelled("publish was stopped", remedy="nothing was changed; publish again")
