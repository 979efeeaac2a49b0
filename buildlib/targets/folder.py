"""A directory, such as a mounted share, with artifacts and manifests but no version control.

Files first, manifests last, each by rename. What is replaced is kept once under `.supercombo-build/`, beside a journal:
a fault puts it back at once, a kill at the next run, and `unpublish` uses it later.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event

from buildlib.core.catalog import Model
from buildlib.core.catalog import Target as TargetSettings
from buildlib.core.manifests import release
from buildlib.core.manifests.manifest import Entry, tinygrad_ref
from buildlib.core.manifests.manifest_change import Change
from buildlib.errors import BuildError, Cancelled, StoreError, TargetError
from buildlib.ports.events import Events, Silent
from buildlib.ports.target import Artifact, Check, MakeCatalog, Observation, Published, Request, TargetState
from buildlib.store import files, locks
from buildlib.targets import folder_journal, publication
from buildlib.targets.folder_files import FolderFiles
from buildlib.targets.folder_journal import Replaced
from buildlib.targets.publication import FilePlan, ManifestPlan, Plan

LOCK_WAIT = 600.0
CATALOG = "+catalog"
"""Stands in the journal where a model's name would; no model can be called so."""
STATE = ".supercombo-build"
"""Directory inside the share for the lock, the journal and what was replaced."""


class Folder:
    """The target kind `folder`. root: its directory. hash_file: the caller's may remember hashes of large files."""

    def __init__(
        self, settings: TargetSettings, root: Path, hash_file: Callable[[Path], str] = files.hash_file
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._root = root
        self._files = FolderFiles(root, hash_file)

    def observe(self, model: Model) -> Observation:
        """What stands there now."""
        self._require_mounted()
        entries, problems = {}, []
        for path in self._settings.manifests:
            try:
                entries[path] = publication.entries_in((self._root / path).read_bytes(), path, model)
            except (OSError, BuildError) as error:
                entries[path] = {}
                problems.append(error.headline() if isinstance(error, BuildError) else f"{path}: {error.strerror}")
        directory = release.directory(self._settings, model)
        found = {}
        for name in model.artifacts.values():
            if (sha256 := self._files.sha256(directory, name)) is not None:
                found[name] = sha256
        return Observation(entries=entries, files=found, problems=tuple(problems))

    def inspect(self, request: Request) -> TargetState:
        """What publish would do; reads only."""
        checks: list[Check] = []
        plan: Plan | None = None
        try:
            self._require_mounted()
            plan = self._plan(request)
            checks.append(self._space(plan))
            self._check_conflict(request)
        except TargetError as error:
            checks.append(Check(name="plan", ok=False, what=error.headline(), remedy=error.remedy))
        return TargetState(
            summary=f"{self._root.name} (a folder)",
            checks=tuple(checks),
            files=plan.file_changes() if plan else (),
            diff=plan.diff() if plan else "",
            message=request.message,
            published=plan.published() if plan else (),
        )

    def publish(self, request: Request, events: Events | None = None, cancel: Event | None = None) -> Published:
        """Publishes one model."""
        told: Events = events or Silent()
        with self._locked(f"publish:{request.model.name}", told, request.model.name) as state:
            plan = self._plan(request)
            self._check_conflict(request)
            former = self._entries(request.model)
            if plan.empty:
                return Published(changed=False, commit=None, files=plan.published(), entries=former)
            space = self._space(plan)
            if not space.ok:
                raise TargetError(space.what, where=str(self._root), remedy=space.remedy)
            written = [path for file in plan.files if not file.present for path in (*_paths(file), *file.removed)]
            changed = [manifest for manifest in plan.manifests if manifest.new != manifest.old]
            paths = (*written, *(manifest.path for manifest in changed))
            replaced = folder_journal.begin(state, self._root, request.model.name, paths, plan.change)
            try:
                for file in plan.files:
                    _stop(cancel)
                    if not file.present:
                        told.step(request.model.name, "publish", f"copying {file.path}")
                        self._files.write(file)
                for manifest in changed:
                    files.write(self._root / manifest.path, manifest.new)
            except BaseException:
                folder_journal.put_back(state, self._root, replaced)
                raise
            folder_journal.commit(state, replaced)
            return Published(
                changed=True,
                commit=None,
                files=plan.published(),
                paths=tuple(sorted(paths)),
                entries=self._entries(request.model),
                former=former,
            )

    def abandon(self, model: Model) -> str | None:
        """Nothing waits here: a publication stands or was put back."""
        with self._locked(f"abandon {model.name}", Silent(), model.name):
            return None

    def unpublish(
        self, model: Model, message: str, events: Events | None = None, cancel: Event | None = None
    ) -> Published:
        """Puts back what the last publication of the model replaced; manifests by entry, not as whole files."""
        told: Events = events or Silent()
        with self._locked(f"unpublish {model.name}", told, model.name) as state:
            _stop(cancel)
            last = folder_journal.last(state, model.name)
            if last is None:
                raise TargetError(
                    f"{model.name} has no publication to take back",
                    where=str(self._root),
                    remedy="publish the former artifact, if you have it",
                )
            before = self._entries(model)
            change = self._change_back(model, state, last)
            manifests = [
                (path, change.apply((self._root / path).read_bytes(), path)) for path in self._settings.manifests
            ]
            own = [path for path in last.paths if path not in self._settings.manifests]
            undo = folder_journal.begin(state, self._root, model.name, (*own, *self._settings.manifests), change)
            try:
                folder_journal.restore_files(state, self._root, last, own)
                for path, data in manifests:
                    files.write(self._root / path, data)
            except BaseException:
                folder_journal.put_back(state, self._root, undo)
                raise
            folder_journal.forget(state, undo, last)
            entries = self._entries(model)
            return Published(
                changed=True, commit=None, files=(), paths=tuple(sorted(last.paths)), entries=entries, former=before
            )

    def manifests(self) -> Mapping[str, bytes]:
        """The manifests as they stand in the folder."""
        self._require_mounted()
        return {path: self._manifest(path) for path in self._settings.manifests}

    def start_catalog(self, make: MakeCatalog, events: Events | None = None, cancel: Event | None = None) -> Published:
        """Writes a new catalog's manifests beside the old ones."""
        with self._locked("catalog new", events or Silent(), "catalog") as state:
            catalog = make(self.manifests())
            new = {one.path: one.data for one in catalog.manifests}
            there = {path: self._read(path) for path in new}
            publication.check_catalog_paths(catalog, there)
            if there == new:
                return Published(changed=False, commit=None, files=())
            _stop(cancel)
            change = Change(kind="set", short_name=None)
            undo = folder_journal.begin(state, self._root, CATALOG, tuple(new), change)
            try:
                for path, data in new.items():
                    files.write(self._root / path, data)
            except BaseException:
                folder_journal.put_back(state, self._root, undo)
                raise
            folder_journal.commit(state, undo)
            return Published(changed=True, commit=None, files=(), paths=tuple(sorted(new)))

    def _plan(self, request: Request) -> Plan:
        settings = self._settings
        publication.check_confined(settings, request)
        manifests = {path: self._manifest(path) for path in settings.manifests}
        for path, data in manifests.items():
            publication.check_tinygrad(request, tinygrad_ref(data, path), path)
        directory = release.directory(settings, request.model)
        planned = publication.placed_plans(request)
        if planned is None:
            planned = tuple(self._file_plan(request.model, artifact, directory) for artifact in request.artifacts)
        former = publication.taken_over(settings, request.model, self._read)
        change = publication.change_for(request, planned, former)
        result = [
            ManifestPlan(path=path, old=old, new=change.apply(old, path), mode="") for path, old in manifests.items()
        ]
        planned = tuple(publication.with_manifest_url(file, result, request.model) for file in planned)
        return Plan(base="", files=planned, manifests=tuple(result), change=change)

    def _file_plan(self, model: Model, artifact: Artifact, directory: str) -> FilePlan:
        if self._settings.large_files == "lfs":
            raise TargetError(
                "a folder has no git-lfs",
                where=f"targets.{self.name}.large_files",
                expected="plain or chunks",
                remedy="take large_files out, or publish to a git repository",
            )
        url = release.file_url(self._settings, model, f"{directory}/{artifact.file_name}")
        return self._files.plan(artifact, directory, self._settings.large_files, url)

    def _manifest(self, path: str) -> bytes:
        try:
            return (self._root / path).read_bytes()
        except OSError as error:
            raise TargetError(
                f"the manifest cannot be read: {error.strerror}",
                where=str(self._root / path),
                remedy="see that the share is mounted, or correct `manifests` of the target in models.yaml",
            ) from error

    def _read(self, path: str) -> bytes | None:
        return self._manifest(path) if (self._root / path).is_file() else None

    def _entries(self, model: Model) -> tuple[Entry, ...]:
        found = {path: publication.entries_in(self._manifest(path), path, model) for path in self._settings.manifests}
        return publication.former_entries(found)

    def _check_conflict(self, request: Request) -> None:
        wanted = {artifact.file_name: artifact.sha256 for artifact in request.artifacts}
        for entry in () if request.supersede else self._entries(request.model):
            if publication.is_conflict(request, entry, wanted):
                raise TargetError(
                    f'somebody else has published "{entry.file_name}" since',
                    where=f"{self._root}:{entry.line}",
                    expected=f"sha256 {request.last_published.get(entry.file_name, '?')[:12]}",
                    got=f"{entry.sha256[:12]}, built {entry.build_time or 'at an unknown time'}",
                    remedy=f"agree with them; to replace theirs: doit publish:{request.model.name} --supersede",
                )

    def _change_back(self, model: Model, state: Path, last: Replaced) -> Change:
        former = {}
        for path in self._settings.manifests:
            if (data := folder_journal.kept(state, last, path)) is not None:
                former[path] = publication.entries_in(data, path, model)
        return publication.change_back(model, publication.former_entries(former))

    def _space(self, plan: Plan) -> Check:
        needed = sum(file.artifact.size for file in plan.files if not file.present)
        free = shutil.disk_usage(self._root).free
        return Check(
            name="free space",
            ok=free > needed + (1 << 20),
            what=f"{free >> 20} MiB are free, {(needed >> 20) + 1} MiB are needed",
            remedy="make room on the share",
        )

    def _require_mounted(self) -> None:
        if not self._root.is_dir():
            why = "the folder is not there"
        elif self._settings.manifests and not any((self._root / path).is_file() for path in self._settings.manifests):
            why = "the folder has none of its manifests: the share is not mounted, or it is another folder"
        else:
            return
        raise TargetError(
            why,
            where=str(self._root),
            remedy="mount the share, or correct `repository` and `manifests` of the target in models.yaml",
        )

    @contextlib.contextmanager
    def _locked(self, purpose: str, events: Events, subject: str) -> Iterator[Path]:
        self._require_mounted()
        state = self._root / STATE
        try:
            state.mkdir(exist_ok=True)
        except OSError as error:
            raise TargetError(
                f"the folder cannot be written: {error.strerror}",
                where=str(self._root),
                remedy="mount the share for writing",
            ) from error
        waiting = lambda holder: events.step(subject, "publish", f"waits for {holder}")  # noqa: E731
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locks.exclusive(state / "lock", purpose, wait=LOCK_WAIT, on_wait=waiting))
            except OSError as error:
                raise StoreError(
                    f"the share cannot be locked: {error.strerror}",
                    where=str(state),
                    remedy="mount it with locks (SMB or NFS 4), and publish from one workstation at a time until then",
                ) from error
            folder_journal.mend(state, self._root)
            yield state


def _paths(file: FilePlan) -> tuple[str, ...]:
    directory = file.path.rpartition("/")[0]
    if file.storage != "chunks":
        return (file.path,)
    names = [chunk.file_name for chunk in file.chunks]
    return tuple(f"{directory}/{name}" for name in (*names, release.chunk_manifest_name(file.artifact.file_name)))


def _stop(cancel: Event | None) -> None:
    if cancel is not None and cancel.is_set():
        raise Cancelled("publish was stopped", remedy="nothing was changed; publish again")
