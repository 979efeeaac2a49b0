"""Files that are either whole or not there: temporary name, flush, rename; and hashing."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from buildlib.errors import StoreError

BLOCK = 1 << 20
SEAL = 32
"""Bytes of a sha256."""


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """A file to write that takes path's place when the block ends well; on an exception nothing changes.

    Raises StoreError where the directory cannot be written or the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:80]}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _unwritable(path, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replaces a file's content in one step."""
    with replacing(path, mode=mode) as file:
        file.write(data)


def write_sealed(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """As `write`, with the data's sha256 before it: for caches whose damage must not be believed."""
    write(path, hashlib.sha256(data).digest() + data, mode=mode)


def read_sealed(path: Path) -> bytes:
    """The data of a sealed file. Raises OSError where there is none, ValueError where it is damaged."""
    content = path.read_bytes()
    if hashlib.sha256(content[SEAL:]).digest() != content[:SEAL]:
        raise ValueError(f"{path} is damaged")
    return content[SEAL:]


def copy(source: Path, destination: Path, *, mode: int = 0o644) -> str:
    """Copies in one step; the sha256 of the bytes that were written, read once."""
    hasher = hashlib.sha256()
    with source.open("rb") as reader, replacing(destination, mode=mode) as writer:
        while block := reader.read(BLOCK):
            hasher.update(block)
            writer.write(block)
    return hasher.hexdigest()


def hash_stream(file: IO[bytes]) -> str:
    """sha256 of the rest of an open file."""
    hasher = hashlib.sha256()
    while block := file.read(BLOCK):
        hasher.update(block)
    return hasher.hexdigest()


def hash_file(path: Path) -> str:
    """sha256 of a file's bytes, 64 hex digits."""
    with path.open("rb") as file:
        return hash_stream(file)


def special(path: Path) -> str | None:
    """What lies at a path that is neither a file nor a folder, so that reading it may never end; None otherwise.

    Raises OSError where there is nothing.
    """
    mode = path.stat().st_mode
    for is_one, name in (
        (stat.S_ISFIFO, "a FIFO (named pipe)"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a disk"),
    ):
        if is_one(mode):
            return name
    return None


def sync_directory(path: Path) -> None:
    """Makes a rename in this directory last over a power cut. Where directories can't be opened, nothing is lost."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unwritable(path: Path, error: OSError) -> StoreError:
    remedy = "check the directory's owner and the free space (`df -h`), then run doit again"
    if isinstance(error, IsADirectoryError):
        remedy = "move that directory away, then run doit again"
    return StoreError(f"cannot be written: {error.strerror or error}", where=str(path), remedy=remedy)
