"""A comma device of the tests: a root, a server before it, and the workstation's side of the login."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from buildlib.core.catalog import Device, DevicePaths, Timeouts
from tests.devices.layout import FLAGS, lay_out, set_param
from tests.devices.server import HOST, Sshd, make_key, sshd

SUDO_REFUSES = '#!/bin/sh\necho "sudo: a password is required" >&2\nexit 1\n'
SUDO_PASSES = '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n'


@dataclass
class CommaDevice:
    """root: the device's file system. home: the workstation user's home, with the key. server: its sshd."""

    root: Path
    home: Path
    server: Sshd
    catalog_device: Device

    @property
    def port(self) -> int:
        return self.server.port

    def with_(self, **changes: object) -> Device:
        """The catalog's device with some fields changed."""
        return msgspec.structs.replace(self.catalog_device, **changes)

    def through(self, port: int) -> Device:
        """The device as seen through a proxy on another port, its key known there too."""
        known_hosts = self.home / f"known_hosts-{port}"
        known_hosts.write_text(self.server.known_hosts_line(port=port))
        return self.with_(port=port, known_hosts=str(known_hosts))

    def set_param(self, name: str, value: str) -> None:
        set_param(self.root, name, value)

    def path(self, device_path: str) -> Path:
        """Where an absolute path of the device lies here."""
        return self.root / device_path.lstrip("/")


@contextlib.contextmanager
def comma_device(
    directory: Path,
    *,
    name: str = "desk",
    sudo: Literal["real", "passes", "refuses"] = "real",
    fused: tuple[str, ...] = FLAGS,
    timeouts: Timeouts | None = None,
    options: tuple[str, ...] = (),
) -> Iterator[CommaDevice]:
    """A device ready to log in to, its host key pinned.

    sudo: Debian's own where tests run as root and it is installed, else one that passes; or one that always refuses.
    fused: what SConscript's fused function returns. options: more lines of sshd_config.
    """
    base = directory / name
    root = lay_out(base / "root", fused=fused)
    home = base / "workstation"
    key = make_key(home / ".ssh" / "id_ed25519")
    programs = base / "programs"
    programs.mkdir()
    # Without root, Debian's sudo asks for a password; then a stand-in lets everything else be tested.
    if sudo == "refuses" or not (sudo == "real" and os.geteuid() == 0 and shutil.which("sudo")):
        wrapper = programs / "sudo"
        wrapper.write_text(SUDO_REFUSES if sudo == "refuses" else SUDO_PASSES)
        wrapper.chmod(0o755)
    environment = {"HOME": str(root / "data/root-user"), "PATH": f"{programs}:{os.environ['PATH']}"}
    authorized = Path(f"{key}.pub").read_text()
    with sshd(base / "sshd", authorized=authorized, environment=environment, options=options) as server:
        known_hosts = home / "known_hosts"
        known_hosts.write_text(server.known_hosts_line())
        device = Device(
            name=name,
            host=HOST,
            port=server.port,
            user=server.user,
            identity=str(key),
            known_hosts=str(known_hosts),
            paths=DevicePaths(root=str(root)),
            timeouts=timeouts or Timeouts(connect=10.0, idle=10.0, compile=300.0, validate=120.0),
        )
        yield CommaDevice(root=root, home=home, server=server, catalog_device=device)
