"""Small texts to a device, together: what it lacks of them travels in the request itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from buildlib import errors

if TYPE_CHECKING:
    from buildlib.device.link import DeviceLink


def push(link: DeviceLink, files: Mapping[str, tuple[Path, str]]) -> None:
    """See `DeviceLink.push_small`."""
    there = link.call("hash", files=list(files))["files"]
    lacking = {remote: file for remote, file in files.items() if (there[remote] or {}).get("sha256") != file[1]}
    if lacking:
        link.call("receive_small", files=[_read(remote, *file) for remote, file in lacking.items()])


def _read(remote: str, local: Path, sha256: str) -> dict[str, str]:
    content = local.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise errors.InputChanged(
            "the file changed before it was sent",
            where=str(local),
            expected=f"sha256 {sha256}",
            remedy="nothing was put on the device; run it again",
        )
    return {"path": remote, "sha256": sha256, "text": content.decode()}
