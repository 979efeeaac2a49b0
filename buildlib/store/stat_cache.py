"""sha256 of files, remembered by what the file system says of them. Disposable: without it files are hashed again.

A remembered hash is believed while device, inode, size, mtime and ctime are what they were when it was taken, and the
file had by then been quiet for longer than the clock can resolve (git's rule for racy timestamps: bytes may change
twice within one tick). ctime catches what mtime hides: `cp -p`, `touch -r`, an in-place overwrite.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import msgspec

from buildlib.store import files
from buildlib.store.signatures import COARSE_NS, TICK_NS, Signature, settled, signature

__all__ = ["COARSE_NS", "TICK_NS", "Signature", "StatCache", "settled", "signature"]


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    seen: Signature
    sha256: str
    settled: bool


class StatCache:
    """Hashes of files here. Safe for threads; saved by `save`, which a killed run simply misses."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._dirty = False
        self._entries: dict[str, _Entry] | None = None
        self.hashed = 0
        """Files read so far, for tests and `-v`."""

    def sha256(self, path: str | Path) -> str | None:
        """The file's sha256, or None where there is no readable regular file."""
        name = str(path)
        seen = signature(name)
        if seen is None:
            return None
        entry = self._load().get(name)
        if entry is not None and entry.settled and entry.seen == seen:
            return entry.sha256
        return self._hash(name)

    def believed(self, path: str | Path) -> Signature | None:
        """The signature under which a file's hash is remembered for good; None where it is not."""
        entry = self._load().get(str(path))
        return entry.seen if entry is not None and entry.settled else None

    def note(self, path: str | Path, sha256: str) -> None:
        """Remembers a hash that was computed while the file was written. Not settled: the next look hashes once."""
        seen = signature(path)
        if seen is not None:
            self._remember(str(path), _Entry(seen, sha256, settled(seen, time.time_ns())))

    def save(self) -> None:
        """Writes what was learnt. Entries of files that are gone are dropped."""
        with self._lock:
            if not self._dirty or self._entries is None:
                return
            kept = {name: entry for name, entry in self._entries.items() if os.path.exists(name)}  # noqa: PTH110
            self._dirty = False
        files.write_sealed(self._path, msgspec.msgpack.encode(kept))

    def _hash(self, name: str) -> str | None:
        for _ in range(3):
            at_ns = time.time_ns()
            before = signature(name)
            try:
                sha256 = files.hash_file(Path(name))
            except OSError:
                return None
            if before is not None and before == signature(name):
                self.hashed += 1
                self._remember(name, _Entry(before, sha256, settled(before, at_ns)))
                return sha256
        return sha256  # it changes while we look: true for a moment, and remembered by nobody

    def _remember(self, name: str, entry: _Entry) -> None:
        entries = self._load()
        with self._lock:
            entries[name] = entry
            self._dirty = True

    def _load(self) -> dict[str, _Entry]:
        if self._entries is None:
            with self._lock:
                if self._entries is None:
                    try:
                        data = files.read_sealed(self._path)
                        self._entries = msgspec.msgpack.decode(data, type=dict[str, _Entry])
                    except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
                        self._entries = {}
        return self._entries
