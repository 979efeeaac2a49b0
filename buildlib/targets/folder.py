"""A directory, such as a mounted share, with artifacts and manifests but no version control.

Files first, manifests last, each by rename. What is replaced is kept once under `.supercombo-build/`, beside a journal:
a fault puts it back at once, a kill at the next run, and `unpublish` uses it later.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event

from buildlib.core.catalog import Model
from buildlib.core.catalog import Target as TargetSettings
from buildlib.core.manifests import release
from buildlib.core.manifests.manifest import Entry, tinygrad_ref
from buildlib.core.manifests.manifest_change import Change
from buildlib.errors import BuildError, Cancelled, TargetError
from buildlib.ports.events import Events, Silent
from buildlib.ports.target import Artifact, Check, MakeCatalog, Observation, Published, Request, TargetState
from buildlib.store import files
from buildlib.targets import conflict, folder_journal, publication
from buildlib.targets.folder_files import FolderFiles, mode_of, paths_of
from buildlib.targets.folder_journal import Replaced
from buildlib.targets.folder_lock import STATE, locked, require_mounted, require_there, tell_left
from buildlib.targets.inside import check_inside
from buildlib.targets.publication import FilePlan, ManifestPlan, Plan

CATALOG = "+catalog"
"""Stands in the journal where a model's name would; no model can be called so."""


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
        require_mounted(self._root, self._settings)
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
            require_mounted(self._root, self._settings)
            plan = self._plan(request)
            checks.append(self._space(plan))
            self._check_conflict(request, self._root / STATE)
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
        with locked(self._root, self._settings, f"publish:{request.model.name}", told, request.model.name) as state:
            plan = self._plan(request)
            self._check_conflict(request, state)
            former = self._entries(request.model)
            if plan.empty:
                return Published(changed=False, commit=None, files=plan.published(), entries=former)
            space = self._space(plan)
            if not space.ok:
                raise TargetError(space.what, where=str(self._root), remedy=space.remedy)
            written = [file for file in plan.files if not file.present]
            changed = [manifest for manifest in plan.manifests if manifest.new != manifest.old]
            wrote = {path: sha256 for file in written for path, sha256 in paths_of(file).items()}
            wrote |= {manifest.path: _sha256(manifest.new) for manifest in changed}
            with self._all_or_nothing(state, request.model.name, wrote, plan.change, told) as replaced:
                for file in written:
                    _stop(cancel)
                    require_there(state)
                    told.step(request.model.name, "publish", f"copying {file.path}")
                    self._files.write(file)
                for manifest in changed:
                    require_there(state)
                    self._write_manifest(manifest, plan.change, request.model)
            folder_journal.commit(state, replaced)
            return Published(
                changed=True,
                commit=None,
                files=plan.published(),
                paths=tuple(sorted(wrote)),
                entries=self._entries(request.model),
                former=former,
            )

    def abandon(self, model: Model, *, sure: bool = False) -> str | None:
        """Nothing waits here: a publication stands or was put back."""
        with locked(self._root, self._settings, f"abandon {model.name}", Silent(), model.name):
            return None

    def unpublish(
        self, model: Model, message: str, events: Events | None = None, cancel: Event | None = None
    ) -> Published:
        """Puts back what the last publication of the model replaced; manifests by entry, not as whole files."""
        told: Events = events or Silent()
        with locked(self._root, self._settings, f"unpublish {model.name}", told, model.name) as state:
            _stop(cancel)
            last = folder_journal.last(state, model.name)
            if last is None:
                raise TargetError(
                    f"{model.name} has no publication to take back",
                    where=str(self._root),
                    remedy="publish the former artifact, if you have it",
                )
            before = self._entries(model)
            conflict.require_ours(model, before, {one.file_name: one.sha256 for one in last.change.wanted})
            change = self._change_back(model, state, last)
            own = [path for path in last.paths if path not in self._settings.manifests]
            wrote = folder_journal.restoring(state, last, own)
            wrote |= {path: _sha256(change.apply(self._manifest(path), path)) for path in self._settings.manifests}
            with self._all_or_nothing(state, model.name, wrote, change, told, takes_back=last.number) as took:
                folder_journal.restore_files(state, self._root, last, own)
                for path in self._settings.manifests:
                    self._write(path, change.apply(self._manifest(path), path))
            entries = self._entries(model)
            folder_journal.forget(state, took, last, entries)
            return Published(
                changed=True, commit=None, files=(), paths=tuple(sorted(last.paths)), entries=entries, former=before
            )

    def manifests(self) -> Mapping[str, bytes]:
        """The manifests as they stand in the folder."""
        require_mounted(self._root, self._settings)
        return {path: self._manifest(path) for path in self._settings.manifests}

    def start_catalog(self, make: MakeCatalog, events: Events | None = None, cancel: Event | None = None) -> Published:
        """Writes a new catalog's manifests beside the old ones."""
        told: Events = events or Silent()
        with locked(self._root, self._settings, "catalog new", told, "catalog") as state:
            catalog = make(self.manifests())
            new = {one.path: one.data for one in catalog.manifests}
            there = {path: self._read(path) for path in new}
            publication.check_catalog_paths(catalog, there)
            if there == new:
                return Published(changed=False, commit=None, files=())
            _stop(cancel)
            change = Change(kind="set", short_name=None)
            wrote = {path: _sha256(data) for path, data in new.items()}
            with self._all_or_nothing(state, CATALOG, wrote, change, told) as started:
                for path, data in new.items():
                    self._write(path, data)
            folder_journal.commit(state, started)
            return Published(changed=True, commit=None, files=(), paths=tuple(sorted(new)))

    @contextlib.contextmanager
    def _all_or_nothing(
        self,
        state: Path,
        model: str,
        wrote: Mapping[str, str],
        change: Change,
        events: Events,
        *,
        takes_back: int | None = None,
    ) -> Iterator[Replaced]:
        """The journal of one publication; whatever goes wrong in the block is put back. wrote: see `Replaced`."""
        check_inside(self._root, wrote)
        manifests = tuple(path for path in wrote if path in self._settings.manifests)
        begun = folder_journal.begin(
            state, self._root, model, wrote, change, manifests=manifests, takes_back=takes_back
        )
        try:
            yield begun
        except BaseException:
            if state.is_dir():
                tell_left(folder_journal.put_back(state, self._root, begun), events, model)
            raise

    def _write_manifest(self, manifest: ManifestPlan, change: Change, model: Model) -> None:
        """Writes a manifest's new bytes; what others have written into it since it was read stays."""
        here = self._manifest(manifest.path)
        if here == manifest.old:
            self._write(manifest.path, manifest.new)
            return
        before, now = (publication.entries_in(data, manifest.path, model) for data in (manifest.old, here))
        moved = [entry for name, entry in now.items() if dataclasses.replace(entry, line=0) != _unplaced(before, name)]
        if moved or set(before) - set(now):
            raise TargetError(
                "somebody else changed the same entry in this moment",
                where=f"{self._root / manifest.path}" + (f":{moved[0].line}" if moved else ""),
                got=moved[0].sha256[:12] if moved else "no entry any more",
                remedy="agree with them, then publish again",
            )
        self._write(manifest.path, change.apply(here, manifest.path))

    def _write(self, path: str, data: bytes) -> None:
        files.write(self._root / path, data, mode=mode_of(self._root / path))

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

    def _entries(self, model: Model, *paths: str) -> tuple[Entry, ...]:
        read = paths or self._settings.manifests
        found = {path: publication.entries_in(self._manifest(path), path, model) for path in read}
        return publication.former_entries(found)

    def _check_conflict(self, request: Request, state: Path) -> None:
        wanted = {artifact.file_name: artifact.sha256 for artifact in request.artifacts}
        said = (
            ()
            if request.supersede
            else [(path, self._entries(request.model, path)) for path in self._settings.manifests]
        )
        for path, entry in ((path, entry) for path, entries in said for entry in entries):
            if conflict.is_conflict(request, entry, wanted):
                raise conflict.refusal(
                    request,
                    entry,
                    where=f"{self._root / path}:{entry.line}",
                    got=f"{entry.sha256[:12]}, built {entry.build_time or 'at an unknown time'}",
                    unpublished=folder_journal.was_taken_back(state, request.model.name, entry),
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


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _unplaced(entries: Mapping[str, Entry], name: str) -> Entry | None:
    return dataclasses.replace(entries[name], line=0) if name in entries else None


def _stop(cancel: Event | None) -> None:
    if cancel is not None and cancel.is_set():
        raise Cancelled("publish was stopped", remedy="nothing was changed; publish again")
