"""Writes the note of a run with nothing to do (see `idle`). Everything in it was looked at in this very process."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

from buildlib.core import freshness
from buildlib.core.catalog import Device, PathSource
from buildlib.core.freshness import State
from buildlib.core.receipt import Receipt
from buildlib.core.stages import wanted
from buildlib.core.world import SourceSeen, Subject
from buildlib.device.link import DeviceLink
from buildlib.doit_parts import idle
from buildlib.doit_parts.session import Session
from buildlib.errors import BuildError, Cancelled
from buildlib.ports.events import Silent
from buildlib.steps import preflight, toolchain
from buildlib.steps.services import open_services
from buildlib.steps.world import FileWorld, read_observation
from buildlib.store.signatures import Signature, settled, signature
from buildlib.store.workspace import CATALOG_NAME, Workspace

VARIABLE = re.compile(rb"\$\{(\w+)")
ESCAPED_DOLLAR = re.compile(rb"\\(x24|u0024|U00000024)")
"""A YAML escape can spell a variable that `VARIABLE` does not see."""

Seen = dict[str, Signature]


def leave(session: Session, line: str) -> None:
    """Leaves the note if all that was found can be told again from signatures; else there is none."""
    path = idle.note_path(session.workspace.root)
    with contextlib.suppress(BuildError, OSError):
        note = take(session, line)
        if note is not None:
            idle.write(path, note)
        elif path.exists():
            path.unlink()


def take(session: Session, line: str) -> dict[str, Any] | None:
    """The note of now, or None where something is not fresh, is too new for its times, or is not told by files."""
    workspace, root = session.workspace, session.workspace.root
    began = time.time_ns()
    text = (root / CATALOG_NAME).read_bytes()
    if ESCAPED_DOLLAR.search(text):
        return None
    variables = sorted({name.decode() for name in VARIABLE.findall(text)})
    stamp = idle.stamp(root, session.chosen_device, variables)
    if any(max(entry[2:]) + 2_100_000_000 > began for entry in idle.tool_sources(idle.PACKAGE)):
        return None
    seen: Seen = {}
    world = Witness(workspace)
    for name in workspace.catalog.models:
        subject = session.subject(name)
        judged = freshness.judge_model(subject, world, wanted(subject))
        if any(judgement.state is not State.FRESH for judgement in judged.values()):
            return None
    for path, mark in world.marks().items():
        if mark is None or not settled(mark, began):
            return None
        seen[_relative(root, path)] = mark
    probes = [probe_of(session, device) for device in session.devices_in_use()]
    if any(probe is None for probe in probes):
        return None
    return {"stamp": stamp, "variables": variables, "files": seen, "probes": probes, "line": line}


class Witness(FileWorld):
    """A world that remembers of each file the signature with which it was believed; others' words it does not take."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self._files: dict[str, Signature | None] = {}

    def marks(self) -> dict[str, Signature | None]:
        """Every file that counted, by path; None for one whose hash is not settled."""
        return self._files

    def source(self, subject: Subject, role: str) -> SourceSeen:
        """A path's file counts; a sample, a download and a pinned file in git are told by the declaration alone."""
        seen = super().source(subject, role)
        spec = subject.model.sources[role]
        if isinstance(spec, PathSource):
            self._believe(self.workspace.root / Path(spec.path).expanduser())
        return seen

    def file(self, path: str) -> str | None:
        """As its parent, and remembered."""
        sha256 = super().file(path)
        self._believe(self.workspace.root / path)
        return sha256

    def blob(self, sha256: str) -> bool:
        """As its parent; a blob that is not there says nothing that its coming could make stale."""
        there = super().blob(sha256)
        if there:
            self._believe(self.workspace.blobs.path(sha256))
        return there

    def receipt(self, stage: str, key: str) -> Receipt | None:
        """As its parent, and remembered as it was before it was read."""
        path = self.workspace.receipts.path(stage, key)
        before = signature(path)
        receipt = super().receipt(stage, key)
        if receipt is not None:
            self._files[str(path)] = before
        return receipt

    def latest(self, subject: Subject, stage: str) -> Receipt | None:
        """Serves explanations only, and what is fresh needs none."""
        return None

    def published(self, subject: Subject, wanted: Mapping[str, str]) -> str | None:
        """No file here tells what a target holds."""
        raise BuildError("a target's state cannot be noted")

    def _believe(self, path: Path) -> None:
        self._files[str(path)] = self.workspace.hashes.believed(path)


def probe_of(session: Session, device: Device) -> dict[str, Any] | None:
    """How a device was asked in this run, and the digest of its answer; None where it cannot be asked just so."""
    workspace = session.workspace
    seen = read_observation(workspace, device.name)
    if seen is None or not seen.answer or not seen.reachable or device.sync_sconscript:
        return None
    services = open_services(workspace, session.cancel, Silent())
    link = services.link(device)
    request = preflight.request(services, workspace.catalog, device)
    local = toolchain.is_local(device)
    command, stdin = link.question("probe", request) if local else (None, None)
    return {
        "device": device.name,
        "command": command,
        "stdin": stdin,
        "request": request,
        "idle_timeout": device.timeouts.idle,
        "answer": seen.answer,
    }


def ask_through_link(root: Path, device: str, request: dict[str, Any], cancel: Event) -> preflight.Heard:
    """A noted probe of a device behind a network. No answer is a finding too; only Cancelled is raised."""
    workspace = Workspace(root)
    services = open_services(workspace, cancel, Silent())
    declared = workspace.catalog.devices[device]
    link: DeviceLink = services.link(declared)
    try:
        return preflight.Heard(declared, request, answer=link.call("probe", **request))
    except Cancelled:
        raise
    except BuildError as error:
        return preflight.Heard(declared, request, error=error)
    finally:
        link.transport.close()


def _relative(root: Path, path: str) -> str:
    return os.path.relpath(path, root) if path.startswith(f"{root}{os.sep}") else path
