"""Pinning a host key: the one way an unknown host becomes known, with the fingerprint that a person compared."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import paramiko

from buildlib.core.catalog import Device
from buildlib.errors import HostKeyError
from buildlib.store import files
from buildlib.transports.ssh_config import pins_file, route
from buildlib.transports.ssh_connection import check_host_key, close_all, greet, known_keys, log_in
from buildlib.transports.ssh_known_hosts import entry_line, fingerprint


def pin_host_key(
    device: Device, wanted: str, *, home: Path, project: Path = Path(), cancel: Event | None = None
) -> str:
    """Pins the first unknown host key on the way to a device if its fingerprint is `wanted`.

    The answer says in a line what was done.

    wanted: `SHA256:...` as `ssh-keygen -l` prints it. Writes the project's known_hosts, in one step.
    Raises HostKeyError where the host shows another key, or is known by another one: that is not for this to mend.
    """
    hops = route(device, home=home, project=project)
    chain: list[paramiko.Transport] = []
    try:
        for hop in hops:
            transport = greet(device, hop, through=chain[-1] if chain else None, cancel=cancel)
            chain.append(transport)
            key = transport.get_remote_server_key()
            shown = fingerprint(key.asbytes())
            if known_keys(hop):
                check_host_key(device, hop, key)
                if shown == _normal(wanted):
                    return f"{hop.key_name} was known by this key already"
                if hop is not hops[-1]:
                    log_in(device, hop, transport, cancel)
                continue
            if shown != _normal(wanted):
                raise HostKeyError(
                    f"{hop.key_name} shows another key than the one to trust",
                    where=device.name,
                    expected=_normal(wanted),
                    got=f"{key.get_name()} {shown}",
                    remedy="nothing was pinned; compare again on the device's own screen",
                )
            file = pins_file(device, home=home, project=project)
            before = file.read_bytes() if file.exists() else b""
            if before and not before.endswith(b"\n"):
                before += b"\n"
            files.write(file, before + entry_line(hop.key_name, key.get_name(), key.asbytes()).encode())
            return f"{hop.key_name} is pinned in {file}"
    finally:
        close_all(chain)
    raise HostKeyError(
        "every host on the way is known by another key than the one to trust",
        where=device.name,
        expected=_normal(wanted),
        got=shown,
        remedy="nothing was changed",
    )


def _normal(text: str) -> str:
    return "SHA256:" + text.strip().removeprefix("SHA256:").rstrip("=")
