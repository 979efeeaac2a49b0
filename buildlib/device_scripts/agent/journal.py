"""What was changed for a test and must be put back: written down before the change, on the device.

A journal belongs to a job, or to the present boot for some seconds. When its owner is gone, the next command that
looks (`probe`, `job_start`, `install`) undoes it, only while offroad.
"""

from __future__ import annotations

import binascii
import contextlib
import os
import time

from .guard import require_offroad
from .places import Places, read_record, unlink, write_json
from .processes import boot_id
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _path(places: Places, name: str) -> str:
    return os.path.join(places.state, "journal", os.path.basename(name) + ".json")


def begin(places: Places, what: str, *, job: str | None = None, hold: float | None = None) -> dict[str, Any]:
    """A new journal, on the disk before it returns. hold: seconds of this boot; job: the key of its job."""
    entry: dict[str, Any] = {
        "id": f"{time.time_ns()}-{os.getpid()}",
        "what": what,
        "job": job,
        "boot": boot_id(places),
        "until": None if hold is None else time.monotonic() + hold,
        "steps": [],
    }
    places.state_dir("journal")
    write_json(_path(places, entry["id"]), entry)
    return entry


def add(places: Places, entry: dict[str, Any], step: dict[str, Any]) -> None:
    """Adds an undo step, on the disk before it returns. Call it before the change."""
    entry["steps"].append(step)
    write_json(_path(places, entry["id"]), entry)


def keep_open(places: Places, entry: dict[str, Any], seconds: float) -> None:
    """A job's journal outlives it: undone after some seconds of this boot, or when it is asked for by its id."""
    entry.update(job=None, until=time.monotonic() + seconds)
    write_json(_path(places, entry["id"]), entry)


def keep(places: Places, entry: dict[str, Any]) -> None:
    """Leaves what `steps` still holds to the next command that looks; forgets a journal without any."""
    if entry["steps"]:
        write_json(_path(places, entry["id"]), entry)
    else:
        finish(places, entry)


def finish(places: Places, entry: dict[str, Any]) -> None:
    """The change stays: forgets how to undo it."""
    unlink(_path(places, entry["id"]))


def everything(places: Places) -> list[dict[str, Any]]:
    """All journals, the oldest first."""
    folder = os.path.join(places.state, "journal")
    if not os.path.isdir(folder):
        return []
    found = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        entry = read_record(path, id=str, what=str, steps=list) if name.endswith(".json") else None
        if entry is not None:
            found.append(entry)
    return found


def due(places: Places, entry: dict[str, Any], running: set[str]) -> bool:
    """True when nobody works on it any more. running: keys of living jobs."""
    if entry.get("job") is not None:
        return entry["job"] not in running
    until = entry.get("until")
    return until is None or entry.get("boot") != boot_id(places) or time.monotonic() >= until


def undo(places: Places, entry: dict[str, Any], *, onroad: bool = False) -> list[str]:
    """Puts everything back, last change first, and says what. Raises Refusal(rail) unless offroad.

    onroad: the car has been on meanwhile, so power saving is the hardware daemon's again and is left as it is.
    Each step that is done is struck off, so a crash in the middle goes on where it stopped. One that cannot be done
    (the disk is full) keeps no other from being done: it stays in the journal, and its error is raised at the end.
    """
    said = []
    left: list[dict[str, Any]] = []
    error: OSError | Refusal | None = None
    while entry["steps"]:
        step = entry["steps"].pop()
        try:
            # Asked again for each: a file that was put back before this step may have taken seconds.
            require_offroad(places)
            said.append(_undo_step(places, entry, step, onroad))
        except (OSError, Refusal) as failure:
            left.insert(0, step)
            error = error or failure
            if isinstance(failure, Refusal) and failure.value["kind"] == "rail":
                break
        _note(places, {**entry, "steps": [*entry["steps"], *left]})
    if error is not None:
        entry["steps"] += left
        _note(places, entry)
        raise error
    finish(places, entry)
    return [text for text in said if text]


def _note(places: Places, entry: dict[str, Any]) -> None:
    """Strikes off what was done; on a full disk it is done once more later, which changes nothing."""
    with contextlib.suppress(OSError):
        write_json(_path(places, entry["id"]), entry)


def _undo_step(places: Places, entry: dict[str, Any], step: dict[str, Any], onroad: bool) -> str:
    kind = step.get("undo")
    if kind == "param":
        from . import params, selector

        old = step["old"]
        now = params.read(places, step["key"]) if "ours" in step else None
        if now is not None and selector.bundle_name(now.decode("utf-8", "replace")) != step["ours"]:
            return f"parameter {step['key']} was changed by somebody else meanwhile, and stays"
        params.write(places, step["key"], None if old is None else binascii.a2b_base64(old))
        return f"parameter {step['key']} put back"
    if kind == "power":
        if onroad or entry.get("boot") != boot_id(places):
            return ""
        from . import power

        power.put(places, step["path"], step["old"])
        return f"{step['path']} = {step['old']}"
    if kind == "install":
        from . import rollback

        return rollback.undo(places, step)
    if kind == "aside":
        from . import selector

        return selector.undo(places, step)
    return ""
