"""Power saving off for a job, and back as it was: files under /sys, their old values in a journal."""

from __future__ import annotations

import contextlib
import os

from . import journal
from .places import Places, read_text
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BIG_CORES = ("4", "5", "6", "7")
FULL_SPEED = (
    *((f"/sys/devices/system/cpu/cpu{core}/online", "1") for core in BIG_CORES),
    ("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "performance"),
    ("/sys/devices/system/cpu/cpufreq/policy4/scaling_governor", "performance"),
)
"""What openpilot's hardware layer writes on tici when power saving is off. An earlier one makes a later one appear."""


def is_on(places: Places) -> bool | None:
    """True when the big cores sleep; None on a machine that has none."""
    states = [read_text(_file(places, path)) for path, _ in FULL_SPEED[: len(BIG_CORES)]]
    known = [state for state in states if state is not None]
    return any(state == "0" for state in known) if known else None


def off(places: Places, entry: dict[str, Any]) -> None:
    """Sets full speed; each old value is in the journal before it is changed. Nothing to do on other machines."""
    if is_on(places) is None:
        return
    for path, value in FULL_SPEED:
        old = read_text(_file(places, path))
        if old is not None and old != value:
            journal.add(places, entry, {"undo": "power", "path": path, "old": old})
            put(places, path, value)


def put(places: Places, path: str, value: str) -> None:
    """Writes one of the files above; no other path is written, whatever a journal says."""
    if path not in [known for known, _ in FULL_SPEED]:
        raise Refusal("rail", "not a power saving file", where=path)
    with contextlib.suppress(OSError), open(_file(places, path), "w") as file:
        file.write(value)


def _file(places: Places, path: str) -> str:
    # A device that is a directory must never reach the machine's own /sys.
    return places.real(path) if places.root else os.path.normpath(path)
