"""A repository on Hugging Face: files and manifests in one commit, made by the hub itself, whole or not at all.

There is no clone: what the hub was last seen to hold is kept here, so that observing needs no network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from threading import Event

from buildlib.core.catalog import Model
from buildlib.core.catalog import Target as TargetSettings
from buildlib.core.manifests import release
from buildlib.core.manifests.manifest import Entry, tinygrad_ref
from buildlib.errors import BuildError, Cancelled, TargetError
from buildlib.ports.events import Events, Silent
from buildlib.ports.target import Artifact, Check, MakeCatalog, Observation, Published, Request, TargetState
from buildlib.targets import conflict, publication
from buildlib.targets.hub import Hub, HubCommit, Moved, Operations
from buildlib.targets.hub_memory import Memory, Seen, artifact_path, entries_of
from buildlib.targets.outgoing import check_bytes
from buildlib.targets.publication import FilePlan, ManifestPlan, Plan

TRIES = 2
"""A publish starts anew once when somebody committed in between."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Proposal:
    message: str
    operations: Operations
    published: Published


class HuggingFace:
    """The target kind `huggingface`. state: a directory of ours, for what was last seen."""

    def __init__(self, settings: TargetSettings, state: Path, endpoint: str | None = None) -> None:
        self.name = settings.name
        self._settings = settings
        self._hub = Hub(settings.repository, settings.branch, endpoint)
        self._memory = Memory(settings, self._hub, state / "seen.json")

    def observe(self, model: Model) -> Observation:
        """What was seen last."""
        seen = self._memory.remembered()
        if seen is None:
            empty: dict[str, dict[str, Entry]] = {path: {} for path in self._settings.manifests}
            return Observation(entries=empty, files={}, problems=(f"{self._hub.repository} was not looked at yet",))
        entries, problems = {}, []
        for path in self._settings.manifests:
            try:
                entries[path] = publication.entries_in(seen.manifests[path], path, model)
            except (KeyError, BuildError) as error:
                entries[path] = {}
                problems.append(error.headline() if isinstance(error, BuildError) else f"{path}: no such manifest")
        paths = {name: artifact_path(self._settings, model, name) for name in model.artifacts.values()}
        found = {name: seen.files[path] for name, path in paths.items() if path in seen.files}
        return Observation(entries=entries, files=found, problems=tuple(problems))

    def inspect(self, request: Request) -> TargetState:
        """What publish would do; reads only."""
        checks: list[Check] = []
        plan, base = None, "not reached"
        try:
            base = self._hub.head()
            seen = self._memory.look(base, request.model)
            plan = self._plan(request, seen)
            self._check_conflict(request, seen)
        except TargetError as error:
            checks.append(Check(name="plan", ok=False, what=error.headline(), remedy=error.remedy))
        return TargetState(
            summary=f"{self._hub.repository} (branch {self._hub.branch}, {base[:10]})",
            checks=tuple(checks),
            files=plan.file_changes() if plan else (),
            diff=plan.diff() if plan else "",
            message=request.message,
            published=plan.published() if plan else (),
        )

    def publish(self, request: Request, events: Events | None = None, cancel: Event | None = None) -> Published:
        """Publishes one model. Replayed once, from the start, when somebody else committed in between."""

        def propose(base: str) -> _Proposal:
            seen = self._memory.look(base, request.model)
            plan = self._plan(request, seen)
            self._check_conflict(request, seen)
            operations = Operations(
                add={f.path: (f.artifact.path, f.artifact.sha256) for f in plan.files if not f.present},
                write={m.path: m.new for m in plan.manifests if m.new != m.old},
                copy={},
            )
            published = Published(
                changed=True, commit=None, files=plan.published(), former=entries_of(seen, request.model)
            )
            return _Proposal(message=self._message(request, plan), operations=operations, published=published)

        return self._carry_out(request.model, propose, events or Silent(), cancel)

    def abandon(self, model: Model, *, sure: bool = False) -> str | None:
        """Nothing waits here: the hub has a commit or has not."""
        return None

    def unpublish(
        self, model: Model, message: str, events: Events | None = None, cancel: Event | None = None
    ) -> Published:
        """Puts back what stood before the model's last publication; the hub still has the former file."""

        def propose(base: str) -> _Proposal:
            last, parent = self._last_publication(model)
            seen, old = self._memory.look(base, model), self._memory.look(parent, model, remember=False)
            conflict.require_ours(model, entries_of(seen, model), conflict.published_by(last.message))
            former = {path: publication.entries_in(data, path, model) for path, data in old.manifests.items()}
            change = publication.change_back(model, publication.former_entries(former))
            after = {path: change.apply(data, path) for path, data in seen.manifests.items()}
            operations = Operations(
                add={},
                write={path: data for path, data in after.items() if data != seen.manifests[path]},
                copy={path: parent for path, sha256 in old.files.items() if seen.files.get(path) != sha256},
                delete=tuple(path for path in seen.files if path not in old.files),
            )
            return _Proposal(
                message=f"{message}\n\nUnpublished: {model.name}",
                operations=operations,
                published=Published(changed=True, commit=None, files=(), former=entries_of(seen, model)),
            )

        return self._carry_out(model, propose, events or Silent(), cancel)

    def manifests(self) -> Mapping[str, bytes]:
        """The manifests of the branch's commit."""
        base = self._hub.head()
        return {path: self._memory.manifest(base, path) for path in self._settings.manifests}

    def start_catalog(self, make: MakeCatalog, events: Events | None = None, cancel: Event | None = None) -> Published:
        """Adds a new catalog's manifests in a commit of their own."""

        def propose(base: str) -> _Proposal:
            catalog = make({path: self._memory.manifest(base, path) for path in self._settings.manifests})
            there = {one.path: self._hub.read(base, one.path) for one in catalog.manifests}
            publication.check_catalog_paths(catalog, there)
            new = {one.path: one.data for one in catalog.manifests if there[one.path] is None}
            return _Proposal(
                message=catalog.message(),
                operations=Operations(add={}, write=new, copy={}),
                published=Published(changed=True, commit=None, files=()),
            )

        return self._carry_out(None, propose, events or Silent(), cancel)

    def _carry_out(
        self, model: Model | None, propose: Callable[[str], _Proposal], events: Events, cancel: Event | None
    ) -> Published:
        for _ in range(TRIES):
            _stop(cancel)
            base = self._hub.head()
            proposal = propose(base)
            if not proposal.operations.paths:
                return self._settled(proposal, model, base, changed=False)
            _stop(cancel)
            subject = model.name if model is not None else self.name
            events.step(subject, "publish", f"committing to {self._hub.repository}/{self._hub.branch}")
            try:
                commit = self._hub.commit(base, proposal.message, proposal.operations)
            except Moved:
                events.step(subject, "publish", f"{self._hub.repository} moved on; starting anew on its new head")
                continue
            return self._settled(proposal, model, commit, changed=True)
        raise TargetError(
            f"somebody else keeps committing to {self._hub.repository}",
            remedy="try again when they are done; nothing was changed",
        )

    def _settled(self, proposal: _Proposal, model: Model | None, commit: str, *, changed: bool) -> Published:
        """Reads back what the hub holds now, and remembers it."""
        done = proposal.published
        if model is not None:
            seen = self._memory.look(commit, model)
            sent = proposal.operations.add
            wrong = [file for file in done.files if file.path in sent and seen.files.get(file.path) != file.sha256]
            if wrong:
                raise TargetError(
                    "the hub holds other bytes than were sent",
                    where=wrong[0].path,
                    expected=wrong[0].sha256,
                    got=seen.files.get(wrong[0].path, "no such file"),
                    remedy=f"doit unpublish {model.name}, then publish again",
                )
            done = dataclasses.replace(done, entries=entries_of(seen, model))
        if not changed:
            return dataclasses.replace(done, changed=False, commit=commit, former=())
        return dataclasses.replace(done, commit=commit, paths=proposal.operations.paths)

    def _plan(self, request: Request, seen: Seen) -> Plan:
        settings, model = self._settings, request.model
        publication.check_confined(settings, request)
        publication.check_tinygrad(request, *self._tinygrad(seen))
        planned = publication.placed_plans(request)
        if planned is None:
            planned = tuple(self._file_plan(request, artifact, seen) for artifact in request.artifacts)
        read = {**seen.manifests, **{path: self._hub.read(seen.commit, path) for path in settings.succeeds}}
        change = publication.change_for(request, planned, publication.taken_over(settings, model, read.get))
        result = [
            ManifestPlan(path=path, old=old, new=change.apply(old, path), mode="")
            for path, old in seen.manifests.items()
        ]
        planned = tuple(publication.with_manifest_url(file, result, model) for file in planned)
        return Plan(base=seen.commit, files=planned, manifests=tuple(result), change=change)

    def _file_plan(self, request: Request, artifact: Artifact, seen: Seen) -> FilePlan:
        if self._settings.large_files not in (None, "lfs"):
            raise TargetError(
                "Hugging Face takes large files whole",
                where=f"targets.{self.name}.large_files",
                expected="lfs, or nothing",
                got=self._settings.large_files,
                remedy="take large_files out of the target",
            )
        check_bytes(artifact)
        path = artifact_path(self._settings, request.model, artifact.file_name)
        url = release.file_url(self._settings, request.model, path)
        if url is None and (not self._settings.manifests or request.new_bundle is not None):
            url = self._hub.url(path)
        return FilePlan(
            artifact=artifact,
            path=path,
            storage="lfs",
            chunks=(),
            removed=(),
            present=seen.files.get(path) == artifact.sha256,
            url=url,
            old_size=self._hub.files(seen.commit, (path,))[path].size if path in seen.files else None,
        )

    def _tinygrad(self, seen: Seen) -> tuple[str | None, str]:
        """The tinygrad that the catalog was made with, by its manifests or our own commits; None where none tells."""
        for path, data in seen.manifests.items():
            if ref := tinygrad_ref(data, path):
                return ref, path
        directory = release.fixed_part(self._settings.directory)
        for commit in self._hub.commits():
            if f"Catalog: {directory}" in commit.message.splitlines():
                return _trailer(commit, "Tinygrad: "), directory
        return None, directory

    def _check_conflict(self, request: Request, seen: Seen) -> None:
        if request.supersede:
            return
        wanted = {artifact.file_name: artifact.sha256 for artifact in request.artifacts}
        for path, data in seen.manifests.items():
            for entry in publication.entries_in(data, path, request.model).values():
                if conflict.is_conflict(request, entry, wanted):
                    raise conflict.refusal(
                        request,
                        entry,
                        where=f"{path}:{entry.line}",
                        got=f"{entry.sha256[:12]}, {self._author(seen.commit, path)}",
                        unpublished=self._was_unpublished(request.model, path, entry),
                    )

    def _was_unpublished(self, model: Model, path: str, entry: Entry) -> bool:
        """True where an entry is what `doit unpublish` put back, here or elsewhere."""
        for commit in self._hub.commits():
            if _is_publication(commit, model):
                return False
            if f"Unpublished: {model.name}" in commit.message.splitlines():
                then = publication.entries_in(self._hub.read(commit.id, path) or b"[]", path, model)
                return entry.file_name in then and then[entry.file_name].sha256 == entry.sha256
        return False

    def _author(self, base: str, path: str) -> str:
        changed = self._hub.files(base, (path,), changes=True)[path].commit
        for commit in self._hub.commits():
            if commit.id == changed:
                return f"commit {commit.id[:10]} by {', '.join(commit.authors)}: {commit.title}"
        return f"commit {(changed or base)[:10]}"

    def _last_publication(self, model: Model) -> tuple[HubCommit, str]:
        """The model's last publication and the commit before it. Raises TargetError where there is none."""
        for commit, parent in pairwise(self._hub.commits()):
            if f"Unpublished: {model.name}" in commit.message.splitlines():
                raise TargetError(f"{model.name} is unpublished already", where=self._hub.repository)
            if _is_publication(commit, model):
                return commit, parent.id
        raise TargetError(
            f"{model.name} has no publication to take back",
            where=self._hub.repository,
            remedy="publish the former artifact, if you have it",
        )

    def _message(self, request: Request, plan: Plan) -> str:
        trailers = [f"Artifact: {file.artifact.file_name} sha256:{file.artifact.sha256}" for file in plan.files]
        if request.tinygrad is not None:
            trailers.append(f"Tinygrad: {request.tinygrad}")
            trailers.append(f"Catalog: {release.fixed_part(self._settings.directory)}")
        return request.message + "\n\n" + "\n".join(trailers)


def _is_publication(commit: HubCommit, model: Model) -> bool:
    return any(name in conflict.published_by(commit.message) for name in model.artifacts.values())


def _trailer(commit: HubCommit, key: str) -> str | None:
    return next((line.removeprefix(key) for line in commit.message.splitlines() if line.startswith(key)), None)


def _stop(cancel: Event | None) -> None:
    if cancel is not None and cancel.is_set():
        raise Cancelled("publish was stopped", remedy="nothing was changed; publish again")
