"""Finishes what others left: dead jobs, open journals. Runs inside every probe and before every job and install."""

from __future__ import annotations

import contextlib
import fcntl
import os

from . import jobs, journal, torn
from .guard import why_not_offroad
from .main import Request
from .places import Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def recover(places: Places, undo: tuple[str, ...] = ()) -> dict[str, Any]:
    """Ends orphans of dead jobs and undoes journals whose owner is gone (and those in `undo`), only while offroad.

    Returns {"undone": [text], "pending": [what is still to be put back and why]}.
    """
    running = jobs.mend(places)
    torn.sweep(places)
    if not journal.everything(places):
        return {"undone": [], "pending": []}
    with alone(places):
        return _undo(places, undo, running)


@contextlib.contextmanager
def alone(places: Places) -> Iterator[None]:
    """One undoes at a time: a change must not be undone twice, the second time over someone's new value."""
    lock = os.open(os.path.join(places.state_dir(), "recovery.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _undo(places: Places, undo: tuple[str, ...], running: set[str]) -> dict[str, Any]:
    entries = [
        entry for entry in journal.everything(places) if entry["id"] in undo or journal.due(places, entry, running)
    ]
    undone: list[str] = []
    pending: list[str] = []
    if entries:
        reason = why_not_offroad(places)
        for entry in reversed(entries):
            if reason is None:
                undone += journal.undo(places, entry)
            else:
                pending.append(f"{entry['what']}: {reason.value['what']}")
    return {"undone": undone, "pending": pending}


def do_recover(request: Request) -> dict[str, Any]:
    """`recover` by name; `undo` lists journals that end now although their time is not over."""
    return recover(request.places, tuple(request.args.get("undo", ())))
