"""A models repository in git: files and manifests in ONE commit, pushed; the work tree follows what the remote took.

The commit is made from a temporary index on top of the remote's head and pushed by its hash. Until the remote has it,
branch, index and work tree are as they were, so there is nothing to put back after a fault (docs/decisions/0031).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event

from buildlib.core.catalog import Model
from buildlib.core.catalog import Target as TargetSettings
from buildlib.core.manifests import release
from buildlib.errors import BuildError, TargetError
from buildlib.ports.events import Events, Silent
from buildlib.ports.target import Check, MakeCatalog, Observation, Published, Request, TargetState
from buildlib.store import files
from buildlib.targets import (
    git_conflict,
    git_history,
    git_plan,
    git_preconditions,
    git_remote,
    git_tree,
    publication,
)
from buildlib.targets.git_carrier import Carrier, Proposal
from buildlib.targets.git_commands import Git
from buildlib.targets.git_journal import is_sparse, small_blob
from buildlib.targets.git_known import Known
from buildlib.targets.git_preconditions import Repository, open_repository
from buildlib.targets.git_work_tree import unlinked, worktree_oids
from buildlib.targets.publication import Plan

CATALOG = "+catalog"
"""Stands where a model's name would; no model can be called so."""


class GitRepository:
    """The target kind `git`. root: the clone's directory, resolved by the caller."""

    def __init__(self, settings: TargetSettings, root: Path) -> None:
        self.name = settings.name
        self._settings = settings
        self._root = root
        self._carrier = Carrier(settings, root)

    def observe(self, model: Model) -> Observation:
        """Manifests as they stand in the work tree, files as they stand in the branch's commit; no network."""
        repository = open_repository(self._root)
        git, problems = repository.git, list[str]()
        entries = {}
        for path in self._settings.manifests:
            try:
                entries[path] = publication.entries_in(self._manifest(git, path), path, model)
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
        unpushed = self._carrier.pending(git, model.name)
        return Observation(entries=entries, files=found, unpushed=unpushed, problems=tuple(problems))

    def inspect(self, request: Request) -> TargetState:
        """What publish would do. Asks the remote where it is (`ls-remote`, a dry push) and changes nothing."""
        repository = open_repository(self._root)
        git, settings = repository.git, self._settings
        checks = list(git_preconditions.local_checks(repository, settings))
        head = git.run("rev-parse", "-q", "--verify", "HEAD", check=False).text  # none before the first commit
        relation = "not compared with its remote"
        if all(check.ok for check in checks):
            relation, check = git_remote.ask(git, settings, head)
            checks += [check, *([git_preconditions.push_check(git, settings, head)] if check.ok else [])]
        plan: Plan | None = None
        try:
            plan = git_plan.make_plan(git, settings, request, head, Known(repository).read())
            checks += self._plan_checks(git, plan)
            git_conflict.check(git, settings, request, plan, None)
        except TargetError as error:
            checks.append(Check(name="plan", ok=False, what=error.headline(), remedy=error.remedy))
        status = git.run("status", "--porcelain", "--untracked-files=no", check=False)
        clean = "clean" if not (status.status or status.text) else "with changes of others"
        return TargetState(
            summary=f"{self._root.name} (branch {settings.branch}, {clean}, {relation})",
            checks=tuple(checks),
            files=plan.file_changes() if plan else (),
            diff=plan.diff() if plan else "",
            message=request.message,
            unpushed=self._carrier.pending(git, request.model.name),
            published=plan.published() if plan else (),
        )

    def publish(self, request: Request, events: Events | None = None, cancel: Event | None = None) -> Published:
        """Publishes one model. Replayed once, from the start, when somebody else pushed in between."""
        seen: git_conflict.Seen | None = None

        def propose(repository: Repository, base: str, before: str) -> Proposal:
            nonlocal seen
            git = repository.git
            plan = git_plan.make_plan(git, self._settings, request, base, Known(repository).read())
            seen = seen or git_plan.entries_at(git, self._settings, request.model, before)
            git_conflict.check(git, self._settings, request, plan, seen)
            if not plan.empty:
                git_preconditions.require(self._plan_checks(git, plan), str(self._root))
            return Proposal(
                base=base,
                edits=() if plan.empty else git_plan.stage(git, plan),
                message=_message(request, plan),
                change=plan.change,
                files=plan.published(),
                plan=plan,
            )

        published = self._carrier.carry_out(
            f"publish:{request.model.name}", request.model.name, propose, events, cancel
        )
        return self._with_entries(published, request.model)

    def unpublish(
        self, model: Model, message: str, events: Events | None = None, cancel: Event | None = None
    ) -> Published:
        """Puts back the artifact and the entries that stood before the model's last publication."""

        def propose(repository: Repository, base: str, before: str) -> Proposal:
            former = git_history.former(repository.git, self._settings, model, base)
            return Proposal(
                base=base,
                edits=former.edits,
                message=f"{message}\n\nUnpublished: {model.name}",
                change=former.change,
                files=former.files,
            )

        published = self._carrier.carry_out(f"unpublish {model.name}", model.name, propose, events, cancel)
        return self._with_entries(published, model)

    def manifests(self) -> Mapping[str, bytes]:
        """The manifests of the branch's commit."""
        git = open_repository(self._root).git
        return git_plan.manifests_at(git, self._settings, "HEAD")

    def start_catalog(self, make: MakeCatalog, events: Events | None = None, cancel: Event | None = None) -> Published:
        """Adds a new catalog's manifests in a commit of their own."""

        def propose(repository: Repository, base: str, before: str) -> Proposal:
            git = repository.git
            catalog = make(git_plan.manifests_at(git, self._settings, base))
            edits = git_plan.catalog_edits(git, base, catalog)
            git_preconditions.require(
                (git_conflict.free_path(self._root, edit.path) for edit in edits), str(self._root)
            )
            return Proposal(base=base, edits=edits, message=catalog.message(), change=None, files=())

        return self._carrier.carry_out("catalog new", CATALOG, propose, events, cancel)

    def abandon(self, model: Model, *, sure: bool = False) -> str | None:
        """Drops a commit that did not reach the remote; its hash. One that did, as the remote now says, is settled."""
        with self._carrier.locked(f"abandon {model.name}", Silent(), model.name) as repository:
            if self._carrier.pending(repository.git, model.name) is not None:
                self._carrier.ask(repository, sure=sure)
            pending = self._carrier.pending(repository.git, model.name)
            self._carrier.forget(repository, model.name)
            return pending

    def _manifest(self, git: Git, path: str) -> bytes:
        """As it stands in the work tree, or in the commit where the work tree leaves it out on purpose."""
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            data = small_blob(git, "HEAD", path) if is_sparse(git) else None
            if data is None:
                raise
            return data

    def _plan_checks(self, git: Git, plan: Plan) -> Iterator[Check]:
        """What the plan itself needs of the repository."""
        if any(file.storage == "lfs" for file in plan.files):
            yield git_preconditions.lfs_check(git)
        yield unlinked(self._root, [*(file.path for file in plan.files), *(one.path for one in plan.manifests)])
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


def _message(request: Request, plan: Plan) -> str:
    """Subject, and trailers that say for machines what was published."""
    trailers = [f"Artifact: {file.artifact.file_name} sha256:{file.artifact.sha256}" for file in plan.files]
    if request.tinygrad is not None:
        trailers.append(f"Tinygrad: {request.tinygrad}")
    return request.message + "\n\n" + "\n".join(trailers)
