"""Where things are on this device, and writing there so that nothing is ever half written."""

from __future__ import annotations

import contextlib
import json
import os
import stat

from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PLACES = ("openpilot", "tinygrad", "venv", "models", "sources", "params", "state", "crashes")
CACHES = ("home", "cache", "uv_cache", "tmp")


class Places:
    """A device's directories. Requests speak in device paths ("/data/params/d"); `real` puts the root before."""

    def __init__(self, paths: dict[str, str]) -> None:
        self.root = paths.get("root", "").rstrip("/")
        self.paths = paths
        self.models = self.real(paths["models"])
        self.sources = self.real(paths["sources"])
        self.params = self.real(paths["params"])
        self.state = self.real(paths["state"])
        self.openpilot = self.real(paths["openpilot"])
        self.caches = [self.real(paths[name]) for name in CACHES if paths.get(name)]

    def real(self, path: str) -> str:
        """The path on this machine. Refuses what is not absolute, climbs, or holds a NUL."""
        if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
            raise Refusal("request", "not a device path", expected="an absolute path without ..", got=repr(path))
        return self.root + os.path.normpath(path)

    def device(self, real: str) -> str:
        """The inverse of `real`."""
        return real[len(self.root) :] if self.root and real.startswith(self.root + "/") else real

    def system(self, path: str) -> str:
        """A system file such as /VERSION: the root's own if it has one (test devices do), else the machine's."""
        inside = self.root + path
        return inside if self.root and os.path.exists(inside) else path

    def owned(self, path: str) -> str:
        """`real`, for a place that the agent may write: under state or sources, or openpilot's SConscript."""
        real = self.real(path)
        if real.startswith(self.models + "/"):
            allowed = real.endswith(".recompiled.pkl")
        elif real.startswith(self.openpilot + "/"):
            allowed = os.path.basename(real) == "SConscript"
        else:
            allowed = any(real.startswith(top + "/") for top in (self.state, self.sources))
        if allowed:
            return real
        raise Refusal(
            "rail",
            "the agent does not write there",
            where=path,
            expected=f"a path under {self.paths['sources']} or {self.paths['state']}, outside {self.paths['models']}",
        )

    def state_dir(self, *names: str) -> str:
        """A private directory under the state directory, made if missing."""
        path = os.path.join(self.state, *names)
        if not os.path.isdir(path):
            make_dirs(self.state, 0o700)
            make_dirs(path, 0o700)
        return path


def make_dirs(path: str, mode: int = 0o755) -> None:
    """Makes a directory and its parents; an error names the directory."""
    try:
        os.makedirs(path, mode, exist_ok=True)
    except OSError as error:
        raise Refusal(
            "device",
            "a directory cannot be made",
            where=path,
            got=error.strerror,
            remedy="check the owner of its parent and that the disk is not mounted read-only",
            guide="4",
        ) from error


def hidden(name: str, suffix: str) -> str:
    """A temporary file's name beside `name`; never longer than a file system takes (255 bytes)."""
    return f".{name.encode()[:120].decode('utf-8', 'ignore')}.{suffix}"


def sync_dir(path: str) -> None:
    """Makes renames in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomic(path: str, data: bytes, mode: int = 0o600) -> None:
    """Temporary name, flush, rename: a reader sees the old bytes or the new ones."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        write_flushed(temporary, data, mode)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_dir(os.path.dirname(path))


def write_flushed(path: str, data: bytes, mode: int) -> None:
    """A new file's bytes, all of them and on the disk. It follows no link; after an error a part may lie there."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: str, value: Any) -> None:
    """`write_atomic` of a JSON value."""
    write_atomic(path, json.dumps(value, indent=1, sort_keys=True).encode())


def read_json(path: str) -> Any:
    """The JSON value in a file; None if it is missing or damaged."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return None


def read_record(path: str, **fields: type) -> dict[str, Any] | None:
    """The JSON object in a file; None if it is missing, damaged, or lacks one of the fields: another version's."""
    return as_record(read_json(path), **fields)


def as_record(value: Any, **fields: type) -> dict[str, Any] | None:
    """The value itself if it is a JSON object with these fields of these types."""
    if isinstance(value, dict) and all(isinstance(value.get(name), kind) for name, kind in fields.items()):
        return value
    return None


def read_text(path: str) -> str | None:
    """A small file's text without its surrounding blanks; None if it cannot be read."""
    data = read_regular(path, 1 << 20)
    return None if data is None else data.decode("utf-8", "replace").strip()


def read_regular(path: str, most: int) -> bytes | None:
    """The first bytes of a regular file; None for anything else: a pipe would be waited for without end."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        with open(handle, "rb", closefd=False) as file:
            return file.read(most)
    except OSError:
        return None
    finally:
        os.close(handle)


def own_like_folder(path: str) -> None:
    """Gives a file that root made to the owner of its folder."""
    if os.geteuid() == 0:
        status = os.stat(os.path.dirname(path))
        os.chown(path, status.st_uid, status.st_gid)


def unlink(path: str) -> None:
    """Removes a file that may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def free_bytes(path: str) -> int | None:
    """Bytes free for the calling user on the disk of the nearest parent that exists."""
    while path and not os.path.exists(path):
        path = os.path.dirname(path)
    try:
        disk = os.statvfs(path or "/")
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize


SPARE_BYTES = 64 << 20
"""Kept free on every disk: logs, parameters and the system's own files live there too."""


def require_space(path: str, need: int) -> None:
    """Refuses before the first byte is written when `need` bytes will not fit."""
    free = free_bytes(path)
    if free is not None and free < need + SPARE_BYTES:
        raise Refusal(
            "device",
            "not enough free space",
            where=path,
            expected=f"{(need + SPARE_BYTES) / 1e6:.0f} MB ({need / 1e6:.0f} MB and {SPARE_BYTES >> 20} MiB to spare)",
            got=f"{free / 1e6:.0f} MB",
            remedy="doit gc --device, or remove files from the disk by hand",
        )
