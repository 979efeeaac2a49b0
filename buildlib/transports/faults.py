"""Errors that every transport words alike."""

from __future__ import annotations

from threading import Event

from buildlib.errors import Cancelled, DeviceError, DeviceUnreachable

NOT_EXECUTABLE = 126
NOT_FOUND = 127
"""Statuses of a command that could not start, as a shell gives them."""


def refuse_unspeakable(name: str, argv: tuple[str, ...]) -> None:
    """Raises DeviceError for a command that no operating system can be handed: no program, or a NUL in it."""
    if not argv or not argv[0] or any("\0" in argument for argument in argv):
        raise DeviceError("no such command is possible", where=name, expected="a program, no NUL byte", got=repr(argv))


def refuse_cancelled(name: str, cancel: Event | None) -> None:
    """Raises Cancelled once the event is set."""
    if cancel is not None and cancel.is_set():
        raise Cancelled("stopped on request", where=name)


def silent(name: str, idle_timeout: float) -> DeviceUnreachable:
    """The error for a peer that moved no byte for `idle_timeout` seconds."""
    return DeviceUnreachable(
        "no byte came or went",
        where=name,
        expected=f"something within {idle_timeout:g} s",
        got="silence",
        remedy=f"look whether {name} is alive; `timeouts.idle` in models.yaml is how long to wait",
    )
