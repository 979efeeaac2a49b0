"""The device's runtime signals (guide, section 10), asked for by validate, attest and diagnose."""

from __future__ import annotations

from buildlib.core.remote import active_path
from buildlib.core.verdicts.signals import Signals, read_signals
from buildlib.core.world import Subject
from buildlib.device.link import DeviceLink


def look(link: DeviceLink, subject: Subject, since: float | None = None) -> Signals:
    """One look. since: seconds since 1970 on the device's clock, from which on crash files are read too."""
    paths = [active_path(subject.device, name) for name in subject.model.artifacts.values()]
    return read_signals(link.call("signals", artifacts=paths, since=since))


def installed_at(seen: Signals) -> float | None:
    """When the newest artifact came to its place, by the device's clock; None where one is missing."""
    times = list(seen.artifacts.values())
    if not times or any(one is None for one in times):
        return None
    return max(one["ctime"] for one in times if one is not None)
