"""The rail: a device that is onroad, or does not say, is not touched."""

from __future__ import annotations

import os

from .places import Places, read_text
from .processes import model_processes
from .wire import Refusal


def onroad_state(places: Places) -> str | None:
    """The text of IsOnroad; None when it is missing or unreadable. Only "0" means offroad."""
    return read_text(os.path.join(places.params, "IsOnroad"))


def why_not_offroad(places: Places, *, except_under: int | None = None) -> Refusal | None:
    """The reason that nothing may be changed now, or None."""
    state = onroad_state(places)
    where = places.paths["params"] + "/IsOnroad"
    if state is None:
        return Refusal(
            "rail",
            "the device does not say whether it is onroad",
            where=where,
            expected='"0"',
            got="no readable value",
            remedy="start the manager and wait for the device to be offroad, or set paths.params in models.yaml",
        )
    if state != "0":
        return Refusal(
            "rail",
            "the device is onroad",
            where=where,
            expected='"0"',
            got=f'"{state[:20]}"',
            remedy="switch the ignition off and try again",
        )
    running = model_processes(places, except_under=except_under)
    if running:
        first = running[0]
        return Refusal(
            "rail",
            "a model process is running",
            expected="none while offroad",
            got=f"pid {first.pid} ({' '.join(first.argv)[:80] or first.name})",
            remedy="wait for it to end; it may be a test that runs on the device",
        )
    return None


def require_offroad(places: Places) -> None:
    """Raises the reason. Called in the same command as each change, right before it."""
    reason = why_not_offroad(places)
    if reason is not None:
        raise reason
