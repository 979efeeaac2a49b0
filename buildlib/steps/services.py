"""Opens what steps act through: the console, and a link to each device, once a run."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from pathlib import Path
from threading import Event

import msgspec

from buildlib.core.catalog import Device
from buildlib.device.link import DeviceLink
from buildlib.ports.events import Events
from buildlib.ports.transport import Transport
from buildlib.steps import toolchain
from buildlib.steps.context import RunOptions, Services
from buildlib.store.workspace import Workspace


def open_services(workspace: Workspace, cancel: Event, events: Events, options: RunOptions | None = None) -> Services:
    """Services of one run. Links open lazily and are shared by the steps of a device, which never overlap."""
    links = Links(workspace, cancel)
    return Services(workspace=workspace, events=events, cancel=cancel, link=links.get, options=options or RunOptions())


class Links:
    """One link a device and thread."""

    def __init__(self, workspace: Workspace, cancel: Event) -> None:
        self._workspace = workspace
        self._cancel = cancel
        self._local = threading.local()

    def get(self, device: Device) -> DeviceLink:
        """The link to a device, for this thread."""
        known: dict[str, DeviceLink] = self._local.__dict__.setdefault("links", {})
        if device.name not in known:
            placed = place(self._workspace, device)
            known[device.name] = DeviceLink(
                open_transport(self._workspace, placed),
                placed,
                toolchain.python_on(placed),
                cancel=self._cancel,
                # More connections beside the first: a single one does not fill a long link.
                connect=(lambda: open_transport(self._workspace, placed)) if device.transport == "ssh" else None,
            )
        return known[device.name]


def place(workspace: Workspace, device: Device) -> Device:
    """A local device's root made absolute: on a real device it is a device path already."""
    if not toolchain.is_local(device) or not device.paths.root:
        return device
    root = str(workspace.root / Path(device.paths.root).expanduser())
    return msgspec.structs.replace(device, paths=msgspec.structs.replace(device.paths, root=root))


def open_transport(workspace: Workspace, device: Device) -> Transport:
    """The transport of a device, found by its name: `transports/NAME.py` has an `open_transport`."""
    module = importlib.import_module(f"buildlib.transports.{device.transport}")
    opener: Callable[[Device, Path], Transport] = module.open_transport
    return opener(device, workspace.root)
