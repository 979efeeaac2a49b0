"""A run that finds everything as the last one left it, recognised without loading what builds need.

A run with nothing to do leaves a note (`idle_note`): all that its finding came from, and the probe of each device with
its answer. While all of that still is as it was, the finding stands, and one probe of each device is all that happens.
Anything else, a damaged note too, means that the build looks for itself; what a device behind a network said, or that
it kept silent, goes on to the build, which does not ask it again. The note is a cache: delete it at any time.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import os
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Event
from typing import Any

from buildlib.core.answer import answer_digest
from buildlib.errors import BuildError
from buildlib.store import files
from buildlib.store.signatures import signature

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - read on the hot path
READ_WHOLE = ("dodo.py", "pyproject.toml", "doit.cfg", "models.yaml", "models.lock", ".build/doit-marks.json")
"""Files of the project that say what its tasks are."""
ALWAYS_ASKED = ("PATH", "HOME")
FORMAT = 1


def note_path(root: Path) -> Path:
    """Where the note lies."""
    return root / ".build" / "cache" / "idle"


def nothing_to_do(root: Path, chosen_device: str | None, cancel: Event, heard: dict[str, Any]) -> str | None:
    """The line that such a run says, or None when the build has to look for itself. Never raises.

    heard: gets a `steps.preflight.Heard` for each device behind a network that was asked, by the device's name.
    """
    note = read(note_path(root))
    try:
        if note is None or note["stamp"] != stamp(root, chosen_device, note["variables"]):
            return None
        join = os.path.join  # a Path costs more than the look at the file
        if any(signature(join(root, path)) != seen for path, seen in note["files"].items()):
            return None
        for probe in note["probes"]:
            answer = ask(root, probe, cancel, heard)
            if answer is None or answer_digest(answer) != probe["answer"]:
                return None
            write_seen(root, probe["device"], answer["health"])
        line: str = note["line"]
    except (BuildError, OSError, LookupError, TypeError, ValueError, AttributeError):
        return None
    return line


def read(path: Path) -> dict[str, Any] | None:
    """A whole and undamaged note, or None."""
    try:
        note: dict[str, Any] = marshal.loads(files.read_sealed(path))  # noqa: S302 - our own bytes, undamaged
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return note


def write(path: Path, note: dict[str, Any]) -> None:
    """Keeps a note."""
    files.write_sealed(path, marshal.dumps(note))


def stamp(root: Path, chosen_device: str | None, variables: Iterable[str]) -> str:
    """All that a finding depends on beside files and devices: this tool, Python, options, environment, declarations."""
    parts: list[object] = [FORMAT, sys.version, sys.executable, sys.prefix, str(root), chosen_device]
    parts += [(name, os.environ.get(name)) for name in sorted({*ALWAYS_ASKED, *variables})]
    parts += [(name, _content(root / name)) for name in READ_WHOLE]
    parts += tool_sources(PACKAGE)
    clang = shutil.which("clang")
    parts.append((clang, signature(clang) if clang else None))
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _content(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def tool_sources(top: str) -> list[tuple[str, int, int, int]]:
    """Name, size, mtime_ns and ctime_ns of this tool's own files, sorted."""
    found: list[tuple[str, int, int, int]] = []
    with os.scandir(top) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                stat = entry.stat()
                found.append((entry.path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
            elif entry.name != "__pycache__" and entry.is_dir():
                found += tool_sources(entry.path)
    return sorted(found)


def ask(root: Path, probe: Mapping[str, Any], cancel: Event, heard: dict[str, Any]) -> dict[str, Any] | None:
    """Sends a noted probe once more; its answer. A device behind a network is asked through its link."""
    if probe["command"] is None:
        from buildlib.doit_parts.idle_note import ask_through_link

        found = heard[probe["device"]] = ask_through_link(root, probe["device"], probe["request"], cancel)
        return found.answer
    from buildlib.device.conversation import Conversation
    from buildlib.transports.local import LocalTransport

    talk = Conversation()
    LocalTransport(probe["device"]).run(
        tuple(probe["command"]),
        stdin=probe["stdin"],
        stdout=talk.feed,
        idle_timeout=probe["idle_timeout"],
        cancel=cancel,
    )
    answer: dict[str, Any] | None = (talk.answer or {}).get("ok")
    return answer


def seen_path(root: Path, device: str) -> Path:
    """When a device was last seen unchanged, beside the observation that still holds."""
    return root / ".build" / "devices" / f"{device}.seen"


def write_seen(root: Path, device: str, health: dict[str, Any]) -> None:
    """Notes that a device answered now as its observation says."""
    files.write(seen_path(root, device), json.dumps({"answered": time.time(), "health": health}).encode())
