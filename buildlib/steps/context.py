"""What a step is given: its subject, what came before it, and the few things through which it acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from buildlib.core.catalog import Device, Model
from buildlib.core.receipt import FileRecord, Receipt
from buildlib.core.world import Subject
from buildlib.device.link import DeviceLink
from buildlib.errors import Cancelled
from buildlib.ports.events import Events
from buildlib.store.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What the command line of one run allows. Nothing here reaches past a rail."""

    keep_refused: bool = False
    """A refused artifact stays installed, to be looked at (`--keep`)."""
    without_onroad: str | None = None
    """Why an artifact is published without an onroad attestation; written into the commit."""
    to_install: bool = False
    """Installing was asked for by name, or what comes after it."""
    to_validate: frozenset[str] = frozenset()
    """Models that this run goes on to validate: an install on the way there is for that test."""
    to_stay: frozenset[str] = frozenset()
    """Models whose install was asked for by its own name: it is no test's."""
    supersede: bool = False
    """Replace an entry that somebody else has made newer."""
    new_bundle: bool = False
    """Add the bundle where the manifests do not have it (`doit publish-new`)."""


@dataclass(frozen=True, kw_only=True)
class Services:
    """What all steps of a run share. link: opens (or returns) the way to a device."""

    workspace: Workspace
    events: Events
    cancel: Event
    link: Callable[[Device], DeviceLink]
    options: RunOptions = RunOptions()

    def check_cancelled(self) -> None:
        """Raises Cancelled once the build was asked to stop."""
        if self.cancel.is_set():
            raise Cancelled("stopped on request")


@dataclass(frozen=True, kw_only=True)
class StepContext:
    """One step about to run. parts: its key in the open. upstream: receipts of the stages in its key."""

    services: Services
    subject: Subject
    stage: str
    key: str
    parts: dict[str, Any]
    upstream: dict[str, Receipt]
    restore: Receipt | None = None
    """Set when the work was done before and only its bytes are gone."""
    again: bool = False
    """The user asked for the work although nothing changed: what the device has of it does not count."""

    @property
    def workspace(self) -> Workspace:
        """The checkout."""
        return self.services.workspace

    @property
    def model(self) -> Model:
        """The model."""
        return self.subject.model

    @property
    def device(self) -> Device:
        """The device."""
        return self.subject.device

    @property
    def events(self) -> Events:
        """Where the step says what it does."""
        return self.services.events

    def link(self) -> DeviceLink:
        """The way to the device."""
        return self.services.link(self.device)

    def progress(self, text: str = "") -> Callable[[int, int | None], None]:
        """A listener for a transfer's bytes."""
        return lambda done, total: self.events.progress(self.model.name, self.stage, done, total, text)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a step achieved. summary: one line for a person; log: path of what it wrote, if any."""

    result: dict[str, Any]
    targets: tuple[FileRecord, ...] = ()
    summary: str = ""
    warnings: tuple[str, ...] = ()
    sample: bool = False
    device_files: dict[str, str] = field(default_factory=dict)
    """sha256 of what is now on the device, by remote path: the observation learns it without another probe."""
