"""Parameters: through openpilot's own class, or as files."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path


class Files:
    """Parameters as files: the fallback."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        status = directory.stat()
        self.owner = (status.st_uid, status.st_gid)

    def read(self, key: str) -> str | None:
        try:
            return (self.directory / key).read_bytes().decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    def knows(self, key: str) -> bool:
        # Files tell nothing about the keys that a manager reads.
        return True

    def write(self, key: str, text: str | None) -> None:
        path = self.directory / key
        lock = os.open(self.directory.parent / ".lock", os.O_RDWR | os.O_CREAT, 0o777)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if text is None:
                path.unlink(missing_ok=True)
                return
            self._replace(path.with_name(f".tmp_{key}_{os.getpid()}"), text.encode(), path)
        finally:
            os.close(lock)

    def _replace(self, temporary: Path, value: bytes, path: Path) -> None:
        """By rename, all of it or nothing: as the agent writes parameters, on a disk that fills up too."""
        try:
            with temporary.open("wb") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            if os.geteuid() == 0:
                os.chown(temporary, *self.owner)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


class Params:
    """Parameters through openpilot's class, as the owner of their directory: the manager must be able to read them."""

    def __init__(self, directory: Path) -> None:
        from openpilot.common.params import Params as Own  # type: ignore[import-not-found]

        if directory.name != "d":
            raise RuntimeError("the parameters are not in a directory named d")
        self.files = Files(directory)
        self.own = Own(str(directory.parent))
        # Another prefix or another root would show parameters that nobody reads.
        if self.read("IsOnroad") not in (self.files.read("IsOnroad"), "false"):
            raise RuntimeError("the Params class reads another directory")

    def read(self, key: str) -> str | None:
        try:
            value = self.own.get(key)
        except Exception:  # noqa: BLE001 - UnknownKeyName is a class of this openpilot's own
            return self.files.read(key)
        if value is None:
            return None
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        return value if isinstance(value, str) else json.dumps(value)

    def knows(self, key: str) -> bool:
        try:
            self.own.check_key(key)
        except Exception:  # noqa: BLE001 - as above
            return False
        return True

    def write(self, key: str, text: str | None) -> None:
        with as_user(*self.files.owner):
            if text is None:
                self.own.remove(key)
                return
            # Newer openpilots give each parameter a type and take nothing else.
            for value in (text, *([int(text)] if text.isdigit() else [])):
                try:
                    self.own.put(key, value)
                except TypeError:
                    continue
                return
        raise TypeError(f"{key} does not take {text!r}")


@contextlib.contextmanager
def as_user(user: int, group: int) -> Iterator[None]:
    """The owner's rights for a while, where this runs as root."""
    if os.geteuid() != 0 or user == 0:
        yield
        return
    old = os.getegid()
    os.setegid(group)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(old)


def open_store(directory: Path) -> tuple[Files | Params, str]:
    """Openpilot's own Params, or the files; and which it is."""
    try:
        return Params(directory), "Params"
    except Exception as error:  # noqa: BLE001 - whatever a device's Params class raises, the files are there
        return Files(directory), f"files ({type(error).__name__}: {error})"
