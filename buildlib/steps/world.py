"""The world as it is on this workstation: files by their hashes, devices by their last probe, receipts on disk."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from threading import Event
from typing import Any

import msgspec

from buildlib import errors, sources
from buildlib.core.catalog import GitSource, Source
from buildlib.core.key import digest
from buildlib.core.receipt import Attempt, Receipt
from buildlib.core.remote import iqpilot_harness_path
from buildlib.core.world import DeviceSeen, SourceSeen, Subject
from buildlib.ports.events import Events, Silent
from buildlib.ports.source import SourceContext
from buildlib.steps.scripts import compile_script_id, digest_of, harness_script, iqpilot_script
from buildlib.store import files
from buildlib.store.workspace import Workspace


class Observation(msgspec.Struct, kw_only=True):
    """`.build/devices/NAME.json`: the last answer of a device, and how the newest probe ended."""

    device: str
    answered: float = 0.0
    """Wall clock, seconds since 1970, of the last answer."""
    reachable: bool = False
    problem: str | None = None
    unit: str = ""
    identity: dict[str, Any] | None = None
    people: dict[str, Any] = {}
    """Commit, dirty state and the like: for reading, never part of a key."""
    health: dict[str, Any] = {}
    flags: dict[str, list[str]] | None = None
    """larch64 flags of every SConscript function that has some; None where there is no SConscript."""
    heard: list[str] | None = None
    """What its tinygrad knows of the models' flags and of the classes that a capture may name; None where untold."""
    remedy: str | None = None
    """What helps against `problem`."""
    files: dict[str, str] = {}
    answer: str = ""
    """`core.answer` of the answer that this was made from; empty once a step has added to `files`."""


class _Seen(msgspec.Struct):
    """A later answer that said the same: when it came, and the device's health then."""

    answered: float
    health: dict[str, Any]


class FileWorld:
    """`core.world.World` over a workspace. Made anew for each judgement of a model, so answers are one moment's.

    devices: what was read of devices since a step last ran; added to.
    """

    def __init__(self, workspace: Workspace, devices: dict[str, DeviceSeen] | None = None) -> None:
        self.workspace = workspace
        self._devices = {} if devices is None else devices

    def source(self, subject: Subject, role: str) -> SourceSeen:
        """What its reader says of it, without the network; what may only be away is taken as it was last."""
        spec = subject.model.sources[role]
        try:
            observed = sources.reader(spec, source_context(self.workspace, subject, role)).observe()
        except errors.SourceUnavailable as error:
            return self._last_known(subject, role, error)
        except errors.SourceError as error:
            return SourceSeen(content=None, problem=error.headline(), remedy=error.remedy)
        return SourceSeen(content=observed.identity)

    def _last_known(self, subject: Subject, role: str, error: errors.SourceError) -> SourceSeen:
        last = self.latest(subject, "source")
        known = last.parts.get("onnx", {}).get(role) if last is not None else None
        spec = last.result.get("specs", {}).get(role) if last is not None else None
        if known is None or spec != spec_of(subject.model.sources[role]):
            return SourceSeen(content=None, problem=error.headline(), remedy=error.remedy)
        return SourceSeen(content=known, problem=error.headline(), remedy=error.remedy, assumed=True)

    def device(self, name: str) -> DeviceSeen:
        """The recorded observation; nothing is asked of the network here."""
        if name not in self._devices:
            self._devices[name] = self._read_device(name)
        return self._devices[name]

    def _read_device(self, name: str) -> DeviceSeen:
        seen = read_observation(self.workspace, name)
        if seen is None:
            return DeviceSeen(problem=f"{name} has not been probed yet")
        return DeviceSeen(
            identity=seen.identity,
            unit=seen.unit,
            files=seen.files,
            reachable=seen.reachable,
            age=max(0.0, time.time() - seen.answered),
            problem=seen.problem,
            remedy=seen.remedy,
        )

    def file(self, path: str) -> str | None:
        """sha256 of a file below the root."""
        return self.workspace.hashes.sha256(f"{self.workspace.root}/{path}")

    def blob(self, sha256: str) -> bool:
        """True when the content store holds these bytes undamaged."""
        return self.workspace.blobs.has(sha256)

    def script(self, subject: Subject) -> str:
        """What names the compile script in the key: its digest when it is ours."""
        return compile_script_id(subject.device, subject.model.kind)

    def harness(self, subject: Subject) -> str | dict[str, str]:
        """IQPilot's where the device has it, with our script that watches it; else our own harness."""
        theirs = self.device(subject.device.name).files.get(iqpilot_harness_path(subject.device))
        if theirs:
            return {"iqpilot": theirs, "watcher": digest_of(iqpilot_script())}
        return digest_of(harness_script(subject.model.kind))

    def published(self, subject: Subject, wanted: Mapping[str, str]) -> str | None:
        """Reads the target's manifests and files; no network."""
        from buildlib.steps.targets import open_target

        settings = subject.catalog.targets[subject.model.target or ""]
        try:
            seen = open_target(self.workspace, settings).observe(subject.model)
        except errors.BuildError as error:
            return error.headline()
        if seen.holds(wanted):
            return None
        if seen.unpushed is not None:
            return f"committed as {seen.unpushed[:12]}, not pushed"
        return seen.problems[0] if seen.problems else f"{settings.name} holds other bytes, or its entry was edited"

    def receipt(self, stage: str, key: str) -> Receipt | None:
        """From disk."""
        return self.workspace.receipts.get(stage, key)

    def latest(self, subject: Subject, stage: str) -> Receipt | None:
        """The last success at a stage, for explanations."""
        for name in (subject.model.name, subject.model.was):
            if name is None:
                continue
            known = self.workspace.receipts.latest(name)
            key = known.get(f"{stage}@{subject.device.name}")
            if key is not None and (receipt := self.receipt(stage, key)) is not None:
                return receipt
        return None

    def attempt(self, subject: Subject, stage: str) -> Attempt | None:
        """The last failure at a stage."""
        return self.workspace.receipts.attempt(stage, subject.model.name)


def source_context(
    workspace: Workspace, subject: Subject, role: str, events: Events | None = None, cancel: Event | None = None
) -> SourceContext:
    """What a source's reader needs from this workspace."""
    spec = subject.model.sources.get(role)
    return SourceContext(
        root=workspace.root,
        state=workspace.state / "sources",
        hash_file=workspace.hash_file,
        subject=subject.model.name,
        role=role,
        # A damaged models.lock is nothing to models that need no pin.
        pin=workspace.lock.pin(subject.model.name, role) if isinstance(spec, GitSource) else None,
        events=events or Silent(),
        cancel=cancel,
    )


def spec_of(source: Source) -> str:
    """What names a source's declaration in receipts: a digest, since an address may hold a token."""
    return digest(msgspec.to_builtins(source))


def read_observation(workspace: Workspace, device: str) -> Observation | None:
    """The last observation of a device, or None."""
    path = workspace.observation(device)
    try:
        observation = msgspec.json.decode(path.read_bytes(), type=Observation)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        later = msgspec.json.decode(path.with_suffix(".seen").read_bytes(), type=_Seen)
        if later.answered > observation.answered:
            observation.answered, observation.health = later.answered, later.health
    return observation


_observing = threading.Lock()


def write_observation(workspace: Workspace, observation: Observation) -> None:
    """Records what was seen of a device."""
    text = msgspec.json.format(msgspec.json.encode(observation), indent=1)
    files.write(workspace.observation(observation.device), text + b"\n")


def observe_files(workspace: Workspace, device: str, there: dict[str, str]) -> None:
    """Adds what a step has just put on a device, hash read back, to the last observation."""
    if not there:
        return
    with _observing:
        seen = read_observation(workspace, device) or Observation(device=device)
        seen.files = {**seen.files, **there}
        seen.answer = ""
        write_observation(workspace, seen)
