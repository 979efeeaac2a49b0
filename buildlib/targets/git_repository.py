"""A models repository in git: files and manifests in ONE commit, pushed; the work tree follows what the remote took.

The commit is made from a temporary index on top of the remote's head and pushed by its hash. Until the remote has it,
branch, index and work tree are as they were, so there is nothing to put back after a fault (docs/decisions/0031).
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from buildlib.core import release
from buildlib.core.catalog import Model
from buildlib.core.catalog import Target as TargetSettings
from buildlib.core.manifest_change import Change
from buildlib.errors import BuildError, Cancelled, TargetError
from buildlib.ports.events import Events, Silent
from buildlib.ports.target import Check, MakeCatalog, Observation, Published, PublishedFile, Request, TargetState
from buildlib.store import files, locks
from buildlib.targets import (
    git_aftermath,
    git_conflict,
    git_history,
    git_plan,
    git_preconditions,
    git_remote,
    git_tree,
    publication,
)
from buildlib.targets.git_commands import Git
from buildlib.targets.git_journal import PENDING, Journal, Settling, settle, worktree_oids
from buildlib.targets.git_known import Known
from buildlib.targets.git_preconditions import Repository, open_repository
from buildlib.targets.git_tree import TreeEdit
from buildlib.targets.publication import Plan

LOCK_WAIT = 600.0
"""Seconds that a publish waits for another one in the same clone."""

CATALOG = "+catalog"
"""Stands where a model's name would; no model can be called so."""

TRIES = 2
"""A publish starts anew once when somebody pushed in between."""


@dataclass(frozen=True, kw_only=True)
class _Proposal:
    """What is to become the next commit. plan: None where no new file goes with it."""

    base: str
    edits: tuple[TreeEdit, ...]
    message: str
    change: Change | None
    files: tuple[PublishedFile, ...]
    plan: Plan | None = None


class GitRepository:
    """The target kind `git`. root: the clone's directory, resolved by the caller."""

    def __init__(self, settings: TargetSettings, root: Path) -> None:
        self.name = settings.name
        self._settings = settings
        self._root = root

    def observe(self, model: Model) -> Observation:
        """Manifests as they stand in the work tree, files as they stand in the branch's commit; no network."""
        repository = open_repository(self._root)
        git, problems = repository.git, list[str]()
        entries = {}
        for path in self._settings.manifests:
            try:
                entries[path] = publication.entries_in((self._root / path).read_bytes(), path, model)
            except (OSError, BuildError) as error:
                entries[path] = {}
                problems.append(error.headline() if isinstance(error, BuildError) else f"{path}: {error.strerror}")
        found = {}
        if git.ok("rev-parse", "-q", "--verify", "HEAD^{commit}"):
            directory = release.directory(self._settings, model)
            tree, known = git_tree.files_at(git, "HEAD", directory), Known(repository).read()
            for name in model.artifacts.values():
                if (sha256 := git_history.file_sha256(git, tree, directory, name, known)) is not None:
                    found[name] = sha256
        return Observation(entries=entries, files=found, unpushed=self._pending(git, model), problems=tuple(problems))

    def inspect(self, request: Request) -> TargetState:
        """What publish would do. Asks the remote where it is (`ls-remote`, a dry push) and changes nothing."""
        repository = open_repository(self._root)
        git, settings = repository.git, self._settings
        checks = list(git_preconditions.local_checks(repository, settings))
        head = git.text("rev-parse", "HEAD")
        relation = "not compared with its remote"
        if all(check.ok for check in checks):
            relation, check = git_remote.ask(git, settings, head)
            checks += [check, git_preconditions.push_check(git, settings, head)]
        plan: Plan | None = None
        try:
            plan = git_plan.make_plan(git, settings, request, head, Known(repository).read())
            checks += self._plan_checks(git, plan)
            git_conflict.check(git, settings, request, plan, None)
        except TargetError as error:
            checks.append(Check(name="plan", ok=False, what=error.headline(), remedy=error.remedy))
        clean = "clean" if not git.text("status", "--porcelain", "--untracked-files=no") else "with changes of others"
        return TargetState(
            summary=f"{self._root.name} (branch {settings.branch}, {clean}, {relation})",
            checks=tuple(checks),
            files=plan.file_changes() if plan else (),
            diff=plan.diff() if plan else "",
            message=request.message,
            unpushed=self._pending(git, request.model),
        )

    def publish(self, request: Request, events: Events | None = None, cancel: Event | None = None) -> Published:
        """Publishes one model. Replayed once, from the start, when somebody else pushed in between."""
        seen: git_conflict.Seen | None = None

        def propose(repository: Repository, base: str, before: str) -> _Proposal:
            nonlocal seen
            git = repository.git
            plan = git_plan.make_plan(git, self._settings, request, base, Known(repository).read())
            seen = seen or git_plan.entries_at(git, self._settings, request.model, before)
            git_conflict.check(git, self._settings, request, plan, seen)
            if not plan.empty:
                git_preconditions.require(self._plan_checks(git, plan), str(self._root))
            return _Proposal(
                base=base,
                edits=() if plan.empty else git_plan.stage(git, plan),
                message=_message(request, plan),
                change=plan.change,
                files=plan.published(),
                plan=plan,
            )

        published = self._carry_out(f"publish:{request.model.name}", request.model.name, propose, events, cancel)
        return self._with_entries(published, request.model)

    def unpublish(
        self, model: Model, message: str, events: Events | None = None, cancel: Event | None = None
    ) -> Published:
        """Puts back the artifact and the entries that stood before the model's last publication."""

        def propose(repository: Repository, base: str, before: str) -> _Proposal:
            former = git_history.former(repository.git, self._settings, model, base)
            return _Proposal(
                base=base,
                edits=former.edits,
                message=f"{message}\n\nUnpublished: {model.name}",
                change=former.change,
                files=former.files,
            )

        published = self._carry_out(f"unpublish {model.name}", model.name, propose, events, cancel)
        return self._with_entries(published, model)

    def manifests(self) -> Mapping[str, bytes]:
        """The manifests of the branch's commit."""
        git = open_repository(self._root).git
        return git_plan.manifests_at(git, self._settings, "HEAD")

    def start_catalog(self, make: MakeCatalog, events: Events | None = None, cancel: Event | None = None) -> Published:
        """Adds a new catalog's manifests in a commit of their own."""

        def propose(repository: Repository, base: str, before: str) -> _Proposal:
            git = repository.git
            catalog = make(git_plan.manifests_at(git, self._settings, base))
            edits = git_plan.catalog_edits(git, base, catalog)
            git_preconditions.require(
                (git_conflict.free_path(self._root, edit.path) for edit in edits), str(self._root)
            )
            return _Proposal(base=base, edits=edits, message=catalog.message(), change=None, files=())

        return self._carry_out("catalog new", CATALOG, propose, events, cancel)

    def abandon(self, model: Model) -> str | None:
        """Drops a commit that did not reach the remote; its hash."""
        with self._locked(f"abandon {model.name}", Silent(), model.name) as repository:
            pending = self._pending(repository.git, model)
            self._forget(repository, model.name)
            return pending

    def _carry_out(
        self,
        purpose: str,
        subject: str,
        propose: Callable[[Repository, str, str], _Proposal],
        events: Events | None,
        cancel: Event | None,
    ) -> Published:
        """One commit from a proposal, pushed. The proposal is made anew where somebody pushed in between."""
        told: Events = events or Silent()
        settings = self._settings
        with self._locked(purpose, told, subject) as repository:
            git = repository.git
            for _ in range(TRIES):
                _stop(cancel)
                base, before = self._level(repository, subject, told)
                proposal = propose(repository, base, before)
                if not proposal.edits:
                    self._forget(repository, subject)
                    return Published(
                        changed=False,
                        commit=git_history.last_commit(git, proposal.files, base) if proposal.files else None,
                        files=proposal.files,
                    )
                commit = self._commit(repository, proposal, subject)
                _stop(cancel)
                Journal(repository.state, subject).write(self._settling(proposal, commit))
                told.step(subject, "publish", f"pushing {commit[:10]} to {settings.remote}/{settings.branch}")
                try:
                    if proposal.plan is not None:
                        git_remote.push_lfs(git, settings, proposal.plan)
                    git_remote.push(git, settings, base, commit, subject)
                except git_remote.Moved:
                    self._forget(repository, subject)
                    told.step(subject, "publish", f"{settings.remote} moved on; starting anew on its new head")
                    continue
                except git_remote.Refused:
                    self._forget(repository, subject)
                    raise
                return self._follow(repository, proposal, commit, subject, told)
        raise TargetError(
            f"somebody else keeps pushing to {settings.remote}/{settings.branch}",
            where=str(self._root),
            remedy="try again when they are done; nothing was changed",
        )

    @contextlib.contextmanager
    def _locked(self, purpose: str, events: Events, subject: str) -> Iterator[Repository]:
        """Alone in the clone, and after whatever a killed run left was ended."""
        repository = open_repository(self._root)
        with (
            locks.exclusive(
                repository.common_dir / "supercombo-build.lock",
                purpose,
                wait=LOCK_WAIT,
                on_wait=lambda holder: events.step(subject, "publish", f"waits for {holder}"),
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
            events.step(subject, "publish", f"fast-forward to {remote[:10]}")
        return remote, head

    def _plan_checks(self, git: Git, plan: Plan) -> Iterator[Check]:
        """What the plan itself needs of the repository."""
        if any(file.storage == "lfs" for file in plan.files):
            yield git_preconditions.lfs_check(git)
        written = {file.path for file in plan.files if file.storage != "chunks" and not file.present}
        have = worktree_oids(git, written)
        tree = git_tree.files_at(git, plan.base, *sorted(written)) if written else {}
        for file in plan.files:
            oids = have.get(file.path)
            mine = oids is not None and files.hash_file(self._root / file.path) == file.artifact.sha256
            known = oids is None or mine or (file.path in tree and tree[file.path].oid in oids)
            yield Check(
                name="artifact path",
                ok=known,
                what=f"{file.path} was changed or put there by hand",
                remedy=f"move it away, or restore it: git restore -- '{file.path}'",
            )
        yield from git_conflict.hand_edits(self._root, plan)

    def _commit(self, repository: Repository, proposal: _Proposal, subject: str) -> str:
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
        self, repository: Repository, proposal: _Proposal, commit: str, subject: str, events: Events
    ) -> Published:
        """Branch, index and work tree go where the remote is."""
        git, settings = repository.git, self._settings
        git.run("update-ref", git_remote.tracking(settings), commit)
        left = settle(git, Journal(repository.state), self._settling(proposal, commit))
        for path in left:
            events.warning(subject, f"{path} holds somebody's edits and was left as it is")
        self._forget(repository, subject)
        paths = git_tree.changed_paths(git, proposal.base, commit)
        Known(repository).note(git, commit, paths)
        return Published(
            changed=True,
            commit=commit,
            files=proposal.files,
            paths=tuple(sorted(paths)),
        )

    def _with_entries(self, published: Published, model: Model) -> Published:
        """With what the manifests say now, and said before our commit."""
        git, settings = Git(self._root), self._settings
        if not published.changed:
            return dataclasses.replace(published, entries=git_plan.any_entries(git, settings, model, "HEAD"))
        return dataclasses.replace(
            published,
            entries=git_plan.any_entries(git, settings, model, str(published.commit)),
            former=git_plan.any_entries(git, settings, model, f"{published.commit}^"),
        )

    def _settling(self, proposal: _Proposal, commit: str) -> Settling:
        return Settling(
            branch=self._settings.branch,
            base=proposal.base,
            commit=commit,
            change=proposal.change,
            manifests=self._settings.manifests,
        )

    def _pending(self, git: Git, model: Model) -> str | None:
        """Our commit for a model that the remote has not got, as far as is known here."""
        found = git.run("rev-parse", "-q", "--verify", _pending_ref(model.name), check=False)
        if found.status != 0 or git_remote.is_ancestor(git, found.text, git_remote.tracking(self._settings)):
            return None
        return found.text

    def _forget(self, repository: Repository, subject: str) -> None:
        Journal(repository.state, subject).clear()
        repository.git.run("update-ref", "-d", _pending_ref(subject), check=False)


def _message(request: Request, plan: Plan) -> str:
    """Subject, and trailers that say for machines what was published."""
    trailers = [f"Artifact: {file.artifact.file_name} sha256:{file.artifact.sha256}" for file in plan.files]
    if request.tinygrad is not None:
        trailers.append(f"Tinygrad: {request.tinygrad}")
    return request.message + "\n\n" + "\n".join(trailers)


def _pending_ref(subject: str) -> str:
    name = re.sub(r"\.(?=\.|lock$)", "%2e", subject)  # what git refuses in the name of a ref
    return f"{PENDING}{name}"


def _stop(cancel: Event | None) -> None:
    if cancel is not None and cancel.is_set():
        raise Cancelled("publish was stopped", remedy="nothing was changed; publish again")
