"""A models repository in git: files and manifests in ONE commit, pushed; the work tree follows what the remote took.

The commit is made from a temporary index on top of the remote's head and pushed by its hash. Until the remote has it,
branch, index and work tree are as they were, so there is nothing to put back after a fault (docs/decisions/0031).
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import msgspec

from buildlib.core import release
from buildlib.core.catalog import Model
from buildlib.core.catalog import Target as TargetSettings
from buildlib.core.lfs_pointer import POINTER_LIMIT
from buildlib.core.manifest_edit import Change
from buildlib.errors import BuildError, Cancelled, TargetError
from buildlib.ports.events import Events, Silent
from buildlib.ports.target import Check, Observation, Published, Request, TargetState
from buildlib.store import files, locks
from buildlib.targets import git_aftermath, git_conflict, git_history, git_plan, git_preconditions, git_tree
from buildlib.targets.git_commands import Git
from buildlib.targets.git_journal import PENDING, Journal, Settling, settle, worktree_oids
from buildlib.targets.git_plan import Plan
from buildlib.targets.git_preconditions import Repository, open_repository

LOCK_WAIT = 600.0
"""Seconds that a publish waits for another one in the same clone."""

REPLAYS = 1
"""How often a publish starts anew because somebody pushed in between."""


class _Moved(Exception):
    """The remote's branch has got commits that ours does not sit on."""


@dataclass(frozen=True, kw_only=True)
class _Made:
    """A commit on top of base, not pushed yet."""

    base: str
    commit: str
    change: Change


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
                entries[path] = git_plan.entries_in((self._root / path).read_bytes(), path, model)
            except (OSError, BuildError) as error:
                entries[path] = {}
                problems.append(error.headline() if isinstance(error, BuildError) else f"{path}: {error.strerror}")
        known = _Known(repository)
        found = {}
        if git.ok("rev-parse", "-q", "--verify", "HEAD^{commit}"):
            directory = release.directory(self._settings, model)
            tree = git_tree.files_at(git, "HEAD", directory)
            for name in model.artifacts.values():
                if (sha256 := git_history.file_sha256(git, tree, directory, name, known.read())) is not None:
                    found[name] = sha256
        pending = self._pending(git, model)
        return Observation(entries=entries, files=found, unpushed=pending, problems=tuple(problems))

    def inspect(self, request: Request) -> TargetState:
        """What publish would do. Asks the remote where it is (`ls-remote`, a dry push) and changes nothing."""
        repository = open_repository(self._root)
        git = repository.git
        checks = list(git_preconditions.local_checks(repository, self._settings))
        head = git.text("rev-parse", "HEAD")
        relation = "not compared with its remote"
        if all(check.ok for check in checks):
            relation, check = self._relation_without_fetch(git, head)
            checks += [check, git_preconditions.push_check(git, self._settings, head)]
        plan: Plan | None = None
        try:
            plan = git_plan.make_plan(git, self._settings, request, head, _Known(repository).read())
            checks += self._plan_checks(git, plan)
            git_conflict.check(git, self._settings, request, plan, None)
        except TargetError as error:
            checks.append(Check(name="plan", ok=False, what=error.headline(), remedy=error.remedy))
        clean = "clean" if not git.text("status", "--porcelain", "--untracked-files=no") else "with changes of others"
        return TargetState(
            summary=f"{self._root.name} (branch {self._settings.branch}, {clean}, {relation})",
            checks=tuple(checks),
            files=plan.file_changes() if plan else (),
            diff=plan.diff() if plan else "",
            message=request.message,
            unpushed=self._pending(git, request.model),
        )

    def publish(self, request: Request, events: Events | None = None, cancel: Event | None = None) -> Published:
        """Publishes one model. Replayed once, from the start, when somebody else pushed in between."""
        told: Events = events or Silent()
        subject = request.model.name
        with self._locked(f"publish:{subject}", told, subject) as repository:
            git = repository.git
            seen: git_conflict.Seen | None = None
            for replay in range(REPLAYS + 1):
                _stop(cancel)
                base, before = self._prepare(repository, subject, told)
                plan = git_plan.make_plan(git, self._settings, request, base, _Known(repository).read())
                seen = seen or git_conflict.seen_at(git, self._settings, request.model, before)
                git_conflict.check(git, self._settings, request, plan, seen)
                if plan.empty:
                    self._forget(git, request.model)
                    return Published(
                        changed=False, commit=git_history.last_commit(git, plan, base), files=plan.published()
                    )
                git_preconditions.require(iter(self._plan_checks(git, plan)), str(self._root))
                made = self._make(repository, plan, request.model, _message(request, plan))
                _stop(cancel)
                try:
                    self._push(repository, made, plan, request.model, told)
                except _Moved:
                    if replay == REPLAYS:
                        break
                    told.step(subject, "publish", f"{self._settings.remote} moved on; starting anew on its new head")
                    continue
                self._settle(repository, made, told, subject)
                return Published(
                    changed=True,
                    commit=made.commit,
                    files=plan.published(),
                    paths=tuple(sorted(git_tree.changed_paths(git, made.base, made.commit))),
                )
        raise TargetError(
            f"somebody else keeps pushing to {self._settings.remote}/{self._settings.branch}",
            where=str(self._root),
            remedy="publish again when they are done; nothing was changed",
        )

    def abandon(self, model: Model) -> str | None:
        """Drops a commit that did not reach the remote; its hash."""
        with self._locked(f"abandon {model.name}", Silent(), model.name) as repository:
            pending = self._pending(repository.git, model)
            self._forget(repository.git, model)
            return pending

    def unpublish(
        self, model: Model, message: str, events: Events | None = None, cancel: Event | None = None
    ) -> Published:
        """Puts back the artifact and the entries that stood before the model's last publication."""
        told: Events = events or Silent()
        with self._locked(f"unpublish {model.name}", told, model.name) as repository:
            git = repository.git
            for replay in range(REPLAYS + 1):
                _stop(cancel)
                base, _ = self._prepare(repository, model.name, told)
                former = git_history.former(git, self._settings, model, base)
                told_why = f"{message}\n\nUnpublished: {model.name}"
                made = self._commit(repository, base, former.edits, told_why, former.change, model)
                try:
                    self._push(repository, made, None, model, told)
                except _Moved:
                    if replay == REPLAYS:
                        break
                    continue
                self._settle(repository, made, told, model.name)
                return Published(
                    changed=True,
                    commit=made.commit,
                    files=former.files,
                    paths=tuple(sorted(git_tree.changed_paths(git, base, made.commit))),
                )
        raise TargetError("somebody else keeps pushing", where=str(self._root), remedy="unpublish again later")

    # -- before the commit -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self, purpose: str, events: Events, subject: str) -> Iterator[Repository]:
        repository = open_repository(self._root)
        waiting: Callable[[str], None] = lambda holder: events.step(subject, "publish", f"waits for {holder}")  # noqa: E731
        lock = repository.common_dir / "supercombo-build.lock"
        with (
            locks.exclusive(lock, purpose, wait=LOCK_WAIT, on_wait=waiting),
            git_aftermath.survived(repository, self._settings),
        ):
            self._mend(repository)
            yield repository

    def _mend(self, repository: Repository) -> None:
        """Ends what a killed run left."""
        journal = Journal(repository.state)
        if (settling := journal.read()) is None:
            return
        git = repository.git
        here = git.run("rev-parse", "-q", "--verify", f"refs/heads/{settling.branch}", check=False).text
        if here in (settling.base, settling.commit):
            settle(git, journal, settling)
        else:
            journal.clear()  # somebody has moved the branch since, by hand; it is theirs now

    def _prepare(self, repository: Repository, subject: str, events: Events) -> tuple[str, str]:
        """Preconditions, fetch, fast-forward. The branch's commit after it and before it."""
        git, settings, where = repository.git, self._settings, str(self._root)
        git_preconditions.require(git_preconditions.local_checks(repository, settings), where)
        head = git.text("rev-parse", "HEAD")
        remote = self._fetch(git)
        if head == remote:
            return head, head
        if not git.ok("merge-base", "--is-ancestor", head, remote):
            raise TargetError(self._not_behind(git, head, remote), where=where, remedy=self._remedy(git, head, remote))
        self._settle_forward(repository, head, remote, events, subject)
        return remote, head

    def _fetch(self, git: Git) -> str:
        settings = self._settings
        tracking = f"refs/remotes/{settings.remote}/{settings.branch}"
        done = git.run(
            "fetch", "-q", "--no-tags", settings.remote, f"+refs/heads/{settings.branch}:{tracking}", check=False
        )
        if done.status != 0:
            raise git.failed(
                done,
                f"{settings.remote}/{settings.branch} cannot be fetched",
                f"see that it can be reached and has the branch: git fetch {settings.remote} {settings.branch}",
            )
        return git.text("rev-parse", tracking)

    def _not_behind(self, git: Git, head: str, remote: str) -> str:
        settings = self._settings
        if git.ok("merge-base", "--is-ancestor", remote, head):
            count = git.text("rev-list", "--count", f"{remote}..{head}")
            return f"{count} commit(s) of yours are not pushed yet"
        return f"{settings.branch} and {settings.remote}/{settings.branch} have diverged (or the remote was rewritten)"

    def _remedy(self, git: Git, head: str, remote: str) -> str:
        settings = self._settings
        if git.ok("merge-base", "--is-ancestor", remote, head):
            return f"push them (git push {settings.remote} {settings.branch}) or move them to another branch"
        return f"compare (git log {settings.remote}/{settings.branch}), then git rebase or git reset by hand"

    def _settle_forward(self, repository: Repository, head: str, remote: str, events: Events, subject: str) -> None:
        """Fast-forward, refused where it would run over somebody's uncommitted work."""
        git = repository.git
        paths = git_tree.changed_paths(git, head, remote)
        self._require_untouched(git, head, remote, paths)
        left = settle(
            git,
            Journal(repository.state),
            Settling(branch=self._settings.branch, base=head, commit=remote),
        )
        events.step(
            subject, "publish", f"fast-forward to {remote[:10]}" + (f", left {', '.join(left)}" if left else "")
        )

    def _require_untouched(self, git: Git, base: str, commit: str, paths: set[str]) -> None:
        check = _untouched(git, base, commit, paths)
        git_preconditions.require(iter([check]), str(self._root))

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
        yield from git_conflict.hand_edits(self._root, self._settings, plan)

    def _relation_without_fetch(self, git: Git, head: str) -> tuple[str, Check]:
        settings = self._settings
        done = git.run("ls-remote", settings.remote, f"refs/heads/{settings.branch}", check=False)
        remote = done.text.split("\t")[0]
        reached = Check(
            name="level",
            ok=bool(remote),
            what=f"{settings.remote} has no branch {settings.branch}, or cannot be reached: {done.last_words}",
            remedy=f"git fetch {settings.remote} {settings.branch}",
        )
        if not remote:
            return f"{settings.remote} not reached", reached
        if remote == head:
            return f"level with {settings.remote}", reached
        if not git.ok("cat-file", "-e", f"{remote}^{{commit}}"):
            return f"behind {settings.remote}; publish fetches first", reached
        if git.ok("merge-base", "--is-ancestor", head, remote):
            return f"behind {settings.remote}; publish goes forward first", reached
        what, remedy = self._not_behind(git, head, remote), self._remedy(git, head, remote)
        return what, Check(name="level", ok=False, what=what, remedy=remedy)

    # -- the commit, its push, and after -----------------------------------------------------------------------------

    def _make(self, repository: Repository, plan: Plan, model: Model, message: str) -> _Made:
        edits = git_plan.stage(repository.git, plan)
        return self._commit(repository, plan.base, edits, message, plan.change, model)

    def _commit(
        self,
        repository: Repository,
        base: str,
        edits: tuple[git_tree.TreeEdit, ...],
        message: str,
        change: Change,
        model: Model,
    ) -> _Made:
        git, state = repository.git, repository.state
        scratch = git_aftermath.scratch(state)
        index, message_file = scratch / "index", scratch / "COMMIT_MESSAGE"
        try:
            tree = git_tree.make_tree(git, base, edits, index)
            commit = git_tree.make_commit(
                git,
                tree,
                base,
                message,
                author=self._settings.author,
                index=index,
                message_file=message_file,
            )
            git.run("update-ref", _pending_ref(model), commit)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return _Made(base=base, commit=commit, change=change)

    def _push(self, repository: Repository, made: _Made, plan: Plan | None, model: Model, events: Events) -> None:
        """Returns when the remote has the commit. Raises _Moved, or TargetError (dropped where the remote refused)."""
        git, settings = repository.git, self._settings
        if plan is not None:
            self._push_lfs(git, plan, model)
        events.step(model.name, "publish", f"pushing {made.commit[:10]} to {settings.remote}/{settings.branch}")
        done = git.run(
            "push",
            "-q",
            "--no-follow-tags",
            settings.remote,
            f"{made.commit}:refs/heads/{settings.branch}",
            check=False,
        )
        if done.status == 0:
            return
        asked = git.run("ls-remote", settings.remote, f"refs/heads/{settings.branch}", check=False)
        if asked.status != 0:
            raise git.failed(
                done,
                f"committed as {made.commit[:10]}, and not known to be pushed",
                f"doit publish:{model.name} again when {settings.remote} can be reached, or doit abandon {model.name}",
            )
        remote = asked.text.split("\t")[0]
        if remote == made.commit:
            return
        if remote != made.base:
            if self._fetch(git) == made.commit or git.ok("merge-base", "--is-ancestor", made.commit, remote):
                return
            self._forget(git, model)
            raise _Moved
        self._forget(git, model)
        raise git.failed(
            done,
            f"{settings.remote} refused the push",
            "see that the key or token may write there and what its hooks want; nothing was changed",
        )

    def _push_lfs(self, git: Git, plan: Plan, model: Model) -> None:
        """Large files go before the commit that names them."""
        oids = [file.artifact.sha256 for file in plan.files if file.storage == "lfs" and not file.present]
        if not oids:
            return
        done = git.run("lfs", "push", "--object-id", self._settings.remote, *oids, check=False)
        if done.status != 0:
            self._forget(git, model)
            raise git.failed(
                done,
                "the LFS server did not take the artifact",
                "see `git lfs env` and the server's quota; nothing was changed",
            )

    def _settle(self, repository: Repository, made: _Made, events: Events, subject: str) -> None:
        git, settings = repository.git, self._settings
        git.run("update-ref", f"refs/remotes/{settings.remote}/{settings.branch}", made.commit)
        left = settle(
            git,
            Journal(repository.state),
            Settling(
                branch=settings.branch,
                base=made.base,
                commit=made.commit,
                change=made.change,
                manifests=settings.manifests,
            ),
        )
        git.run("update-ref", "-d", f"{PENDING}{subject}", check=False)
        _Known(repository).note(git, made.commit, git_tree.changed_paths(git, made.base, made.commit))
        for path in left:
            events.warning(subject, f"{path} holds somebody's edits and was left as it is")

    def _pending(self, git: Git, model: Model) -> str | None:
        """Our commit for a model that the remote has not got, as far as is known here."""
        found = git.run("rev-parse", "-q", "--verify", _pending_ref(model), check=False)
        if found.status != 0:
            return None
        tracking = f"refs/remotes/{self._settings.remote}/{self._settings.branch}"
        landed = git.ok("merge-base", "--is-ancestor", found.text, tracking)
        return None if landed else found.text

    def _forget(self, git: Git, model: Model) -> None:
        git.run("update-ref", "-d", _pending_ref(model), check=False)


class _Known:
    """Blob oid -> sha256 of plain artifacts, so that a large blob is hashed once. A cache: losing it costs time."""

    def __init__(self, repository: Repository) -> None:
        self._path = repository.state / "blobs.json"

    def read(self) -> dict[str, str]:
        """What is known; nothing where the file is missing or broken."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        except (OSError, msgspec.DecodeError):
            return {}

    def note(self, git: Git, commit: str, paths: set[str]) -> None:
        """Adds the large plain files of a commit."""
        known = self.read()
        for file in git_tree.files_at(git, commit, *sorted(paths)).values():
            if file.oid not in known and git_tree.blob_size(git, file.oid) > POINTER_LIMIT:
                known[file.oid] = hashlib.sha256(git_tree.blob(git, file.oid)).hexdigest()
        files.write(self._path, msgspec.json.encode(known))


def _untouched(git: Git, base: str, commit: str, paths: set[str]) -> Check:
    have = worktree_oids(git, paths)
    old = git_tree.files_at(git, base, *sorted(paths)) if paths else {}
    new = git_tree.files_at(git, commit, *sorted(paths)) if paths else {}
    touched = sorted(
        path for path, oids in have.items() if not oids & {tree[path].oid for tree in (old, new) if path in tree}
    )
    return Check(
        name="fast-forward",
        ok=not touched,
        what=f"uncommitted work would be lost in a fast-forward: {', '.join(touched[:3])}",
        remedy="commit it, or set it aside: git stash",
    )


def _message(request: Request, plan: Plan) -> str:
    """Subject, and trailers that say for machines what was published."""
    trailers = [f"Artifact: {file.artifact.file_name} sha256:{file.artifact.sha256}" for file in plan.files]
    if request.tinygrad is not None:
        trailers.append(f"Tinygrad: {request.tinygrad}")
    return request.message + "\n\n" + "\n".join(trailers)


def _pending_ref(model: Model) -> str:
    return f"{PENDING}{model.name}"


def _stop(cancel: Event | None) -> None:
    if cancel is not None and cancel.is_set():
        raise Cancelled("publish was stopped", remedy="nothing was changed; publish again")
