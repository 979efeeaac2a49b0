"""sha256 of files and trees, remembered by what the file system says of them.

A remembered hash counts only when device, inode, size, mtime and ctime are the same AND the file was already older
than the clock's tick when it was hashed (git's rule for racy timestamps): a change within the same tick is seen.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time

from .places import Places, read_json, write_atomic
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BLOCK = 1 << 20
FINE_TICK = 50_000_000
COARSE_TICK = 2_000_000_000
MAX_ENTRIES = 8192

Signature = list[int]


def signature(status: os.stat_result) -> Signature:
    """What the file system knows of a file's content: [device, inode, size, mtime_ns, ctime_ns]."""
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def settled(newest: int, hashed_at: int) -> bool:
    """True when a timestamp is so old that a later change must have given another one. Nanoseconds."""
    tick = COARSE_TICK if newest % 1_000_000_000 == 0 else FINE_TICK
    return newest + tick < hashed_at


class HashCache:
    """Hashes of this device's files, kept in one JSON file under the state directory. A lost one costs time only."""

    def __init__(self, places: Places) -> None:
        self._file = os.path.join(places.state, "cache", "hashes.json")
        self._places = places
        self._known: dict[str, Any] | None = None
        self._changed = False

    def recall(self, key: str) -> Any:
        """A remembered value."""
        if self._known is None:
            known = read_json(self._file)
            self._known = known if isinstance(known, dict) else {}
        return self._known.get(key)

    def remember(self, key: str, value: Any) -> None:
        """Remembers a value; the newest come last."""
        self.recall(key)
        assert self._known is not None
        self._known.pop(key, None)
        self._known[key] = value
        self._changed = True

    def save(self) -> None:
        """Writes what was learnt. A full or read-only disk is no reason to fail: it is a cache."""
        if not self._changed or self._known is None:
            return
        import json

        items = list(self._known.items())[-MAX_ENTRIES:]
        with contextlib.suppress(OSError, Refusal):
            self._places.state_dir("cache")
            write_atomic(self._file, json.dumps(dict(items)).encode())
        self._changed = False

    def file(self, path: str) -> tuple[str, Signature]:
        """(sha256, signature) of a file. Raises OSError, and Refusal when it changes while it is read."""
        present = signature(os.stat(path))
        known = self.recall(path)
        if known and known[0] == present and settled(max(present[3:]), known[1]):
            return known[2], present
        hashed_at = time.time_ns()
        digest, present = hash_file(path)
        self.remember(path, [present, hashed_at, digest])
        return digest, present

    def tree(self, top: str, suffix: str = ".py") -> tuple[str, str]:
        """(content digest, watch) of all files under `top` with a suffix.

        The content digest covers sorted relative paths and file hashes. The watch covers the signatures: it changes
        also when bytes went away and came back.
        """
        files = sorted(_walk(top, "", suffix))
        watch = hashlib.sha256(repr(files).encode("utf-8", "surrogateescape")).hexdigest()
        key = "tree:" + top
        known = self.recall(key)
        newest = max((max(entry[1][3:]) for entry in files), default=0)
        if known and known[0] == watch and settled(newest, known[1]):
            return known[2], watch
        hashed_at = time.time_ns()
        total = hashlib.sha256()
        for relative, _ in files:
            digest, _ = hash_file(os.path.join(top, relative))
            total.update(f"{digest}  {relative}\n".encode("utf-8", "surrogateescape"))
        self.remember(key, [watch, hashed_at, total.hexdigest()])
        return total.hexdigest(), watch


def hash_file(path: str) -> tuple[str, Signature]:
    """(sha256, signature), from one open file, again if it changed meanwhile."""
    for _ in range(3):
        with open(path, "rb", buffering=0) as file:
            before = signature(os.fstat(file.fileno()))
            digest = hashlib.sha256()
            while block := file.read(BLOCK):
                digest.update(block)
            after = signature(os.fstat(file.fileno()))
        if before == after:
            return digest.hexdigest(), after
    raise Refusal("input_changed", "a file changes while it is read", where=path)


def _walk(top: str, relative: str, suffix: str) -> list[tuple[str, Signature]]:
    found: list[tuple[str, Signature]] = []
    with os.scandir(os.path.join(top, relative) if relative else top) as entries:
        for entry in entries:
            name = f"{relative}/{entry.name}" if relative else entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    found += _walk(top, name, suffix)
            elif entry.name.endswith(suffix) and entry.is_file():
                found.append((name, signature(entry.stat())))
    return found
