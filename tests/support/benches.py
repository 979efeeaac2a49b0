"""Devices for tests of what happens on one: a root in a directory whose name has blanks, reached through the agent."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from buildlib.core.catalog import Device, DevicePaths, Timeouts
from buildlib.device.link import DeviceLink
from buildlib.ports.transport import Transport
from buildlib.transports.local import LocalTransport

ODD_NAME = "-a b'c\"d$e\nf\u00fc\u4e2d`*.bin"
OUTPUT = "/data/media/0/models/m.recompiled.pkl"


@dataclass
class Bench:
    """A device in a directory, with what a test asks of it."""

    root: Path
    device: Device
    connect: Callable[[], Transport]
    link: DeviceLink = field(init=False)

    def __post_init__(self) -> None:
        self.link = self.new_link()

    def new_link(self, owner: str = "tester@bench") -> DeviceLink:
        """Another workstation's link to the same device."""
        return DeviceLink(self.connect(), self.device, owner=owner)

    def path(self, device_path: str) -> Path:
        """Where a device path lies here."""
        return Path(str(self.root) + device_path)

    def write(self, device_path: str, data: bytes) -> str:
        """Puts a file on the device behind the agent's back; returns its sha256."""
        path = self.path(device_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return hashlib.sha256(data).hexdigest()

    def param(self, key: str, value: str | None) -> None:
        """What the device's own software would write, by rename as it does."""
        path = self.path("/data/params/d") / key
        if value is None:
            path.unlink(missing_ok=True)
            return
        temporary = path.with_name(f".{key}.test")
        temporary.write_text(value)
        temporary.replace(path)

    def start(self, key: str, code: str, *args: str, link: DeviceLink | None = None, **more: Any) -> dict[str, Any]:
        """Starts a job that runs Python code."""
        argv = [sys.executable, "-u", "-c", code, *args]
        return (link or self.link).call("job_start", key=key, argv=argv, env=more.pop("env", {}), **more)

    def pids(self, marker: str) -> list[int]:
        """Living processes of this device's jobs that have a marker among their arguments."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                    state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
                    ours = os.readlink(f"/proc/{entry}/cwd").startswith(str(self.root))
                except OSError:
                    continue
                if marker.encode() in words and ours and state != "Z":
                    found.append(int(entry))
        return found


def new_root(folder: Path) -> Path:
    """An empty root whose name a careless quote would break."""
    root = folder / "a device's root"
    root.mkdir(parents=True)
    return root


def local_bench(folder: Path) -> Bench:
    """A device on this machine, reached without a network."""
    root = new_root(folder)
    device = Device(
        name="bench",
        transport="local",
        sudo=False,
        paths=DevicePaths(root=str(root), python=sys.executable),
        timeouts=Timeouts(idle=20),
    )
    bench = Bench(root=root, device=device, connect=LocalTransport)
    bench.link.call("layout")
    return bench


def until(what: Callable[[], Any], seconds: float = 20) -> Any:
    """Waits for something to become true, and gives it; a test that waits in vain fails here."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it never became true")
