"""Artifacts in one target and manifests in another: files first, downloaded back, and only then the manifests.

For the moment in which one file has replaced another at its URL and the manifests still name the former one, devices
refuse the download and ask again. A fault in that moment puts the former file back; a kill is ended by the next run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from threading import Event

from buildlib.core.catalog import Model
from buildlib.core.manifests.manifest import Entry
from buildlib.errors import BuildError, OutcomeUnknown, TargetError
from buildlib.ports.events import Events, Silent
from buildlib.ports.target import (
    Check,
    MakeCatalog,
    Observation,
    Published,
    PublishedFile,
    Request,
    Target,
    TargetState,
)
from buildlib.targets.publication import former_entries

FetchBack = Callable[[Entry, tuple[Entry, ...]], None]
"""Downloads a file by its URL and compares it. Arguments: what it should be; what the manifests name until now."""


class Split:
    """Two targets as one. files: opened without manifests. fetch_back: raises TargetError for other bytes."""

    def __init__(self, name: str, files: Target, manifests: Target, fetch_back: FetchBack) -> None:
        self.name = name
        self._files = files
        self._manifests = manifests
        self._fetch_back = fetch_back

    def observe(self, model: Model) -> Observation:
        """Files of the one, entries of the other."""
        files, manifests = self._files.observe(model), self._manifests.observe(model)
        return Observation(
            entries=manifests.entries,
            files=files.files,
            unpushed=manifests.unpushed or files.unpushed,
            problems=(*files.problems, *manifests.problems),
        )

    def inspect(self, request: Request) -> TargetState:
        """What both would do."""
        files = self._files.inspect(_files_only(request))
        if not files.published:
            return dataclasses.replace(files, checks=(*files.checks, _not_planned()))
        manifests = self._manifests.inspect(_placed(request, files.published))
        return TargetState(
            summary=f"{files.summary}; {manifests.summary}",
            checks=(*files.checks, *manifests.checks, *_url_checks(self._entries(request.model), files.published)),
            files=files.files,
            diff=manifests.diff,
            message=request.message,
            unpushed=manifests.unpushed or files.unpushed,
            published=manifests.published,
        )

    def publish(self, request: Request, events: Events | None = None, cancel: Event | None = None) -> Published:
        """Publishes one model: nothing is pushed anywhere while either target would refuse."""
        told: Events = events or Silent()
        state = self.inspect(request)
        for check in state.refused:
            raise TargetError(check.what, where=self.name, remedy=check.remedy)
        former = self._entries(request.model)
        pushed = self._files.publish(_files_only(request), told, cancel)
        try:
            for file in pushed.files:
                told.step(request.model.name, "publish", f"downloading {file.file_name} back")
                self._fetch_back(_expected(file, former), former)
            named = self._manifests.publish(_placed(request, pushed.files), told, cancel)
        except BuildError as error:
            # Of a push that broke off nobody knows: the remote may name the new file already, and the next run ends it.
            if pushed.changed and former and not isinstance(error, OutcomeUnknown):
                self._put_back(request.model, error)
            raise
        return Published(
            changed=pushed.changed or named.changed,
            commit=named.commit,
            files=named.files,
            paths=(*pushed.paths, *named.paths),
            entries=named.entries,
            former=named.former,
        )

    def abandon(self, model: Model, *, sure: bool = False) -> str | None:
        """Drops what did not reach either remote, and puts the file back that the manifests still name."""
        dropped = (self._manifests.abandon(model, sure=True), self._files.abandon(model, sure=sure))
        if dropped[0] is not None and not self._agree(model):
            self._files.unpublish(model, f"Put back the former {model.display_name}: its entry was not published")
        return next((one for one in dropped if one is not None), None)

    def unpublish(
        self, model: Model, message: str, events: Events | None = None, cancel: Event | None = None
    ) -> Published:
        """Puts the former file back, then the former entries; ends an unpublish that got half way."""
        told: Events = events or Silent()
        back = self._files.unpublish(model, message, told, cancel) if self._agree(model) else None
        named = self._manifests.unpublish(model, message, told, cancel)
        return dataclasses.replace(named, paths=(*(back.paths if back else ()), *named.paths))

    def manifests(self) -> Mapping[str, bytes]:
        """Of the target that has them."""
        return self._manifests.manifests()

    def start_catalog(self, make: MakeCatalog, events: Events | None = None, cancel: Event | None = None) -> Published:
        """In the target that has the manifests."""
        return self._manifests.start_catalog(make, events or Silent(), cancel)

    def _entries(self, model: Model) -> tuple[Entry, ...]:
        return former_entries(self._manifests.observe(model).entries)

    def _agree(self, model: Model) -> bool:
        """True where the manifests name the bytes that stand in the other target."""
        there = self._files.observe(model).files
        return all(there.get(entry.file_name) == entry.sha256 for entry in self._entries(model))

    def _put_back(self, model: Model, error: BuildError) -> None:
        try:
            self._files.unpublish(model, f"Put back the former {model.display_name}: its entry could not be published")
        except BuildError as second:
            raise TargetError(
                f"{error.what}; and the former file could not be put back: {second.what}",
                where=error.where,
                got=second.headline(),
                remedy=f"mend the first and publish:{model.name} again: the manifests still name the former file",
            ) from error


def _files_only(request: Request) -> Request:
    return dataclasses.replace(request, new_bundle=None)


def _placed(request: Request, files: tuple[PublishedFile, ...]) -> Request:
    return dataclasses.replace(request, placed=files)


def _expected(file: PublishedFile, former: tuple[Entry, ...]) -> Entry:
    """What a download must give, by the URL that the manifests will give: the target's, else the one they have."""
    told = next((entry.url for entry in former if entry.file_name == file.file_name), None)
    return Entry(file_name=file.file_name, sha256=file.sha256, url=file.url or told, chunks=file.chunks)


def _url_checks(former: tuple[Entry, ...], files: tuple[PublishedFile, ...]) -> tuple[Check, ...]:
    return tuple(
        Check(
            name="url",
            ok=_expected(file, former).url is not None,
            what=f"nothing says from where {file.file_name} can be downloaded",
            remedy="set `url` of the target that takes the files",
        )
        for file in files
    )


def _not_planned() -> Check:
    return Check(name="files", ok=False, what="the files cannot be planned", remedy="see the line before")
