"""Variables of the command line (`doit device=desk`): there is one, and a word that sets no known one stops the run."""

from __future__ import annotations

from doit import doit_cmd

from buildlib.errors import UsageError


def chosen_device() -> str | None:
    """The device of `device=NAME`, or None. Raises UsageError for another variable, or an empty name.

    A misspelt one would build on, or publish from, another device than was meant.
    """
    given = dict(doit_cmd._CMDLINE_VARS or {})
    device = given.pop("device", None)
    for name in given:
        raise UsageError(f"{name!r} is no variable of this build", expected="device=NAME", remedy="doit help")
    if device is not None and not device.strip():
        raise UsageError("device= names no device", expected="device=NAME", remedy="leave it out for the usual device")
    return device
