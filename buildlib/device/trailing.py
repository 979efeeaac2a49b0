"""Hashes and flushes a file behind the one who writes it, so that neither costs much time at the end."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

from buildlib.store.files import BLOCK

IDLE = 0.002
FLUSH = 16 << 20
"""Bytes after which what was hashed is flushed, while the next ones are on their way."""


class Trailing:
    """A thread that follows `reached`, the bytes written in order from the start of a file and flushed to the system.

    What it hashes it reads back: the digest is of what lies in the file.
    """

    def __init__(self, path: Path) -> None:
        self.reached = 0
        self._path = path
        self._hash = hashlib.sha256()
        self._over = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def finish(self) -> str:
        """Waits for the rest; the sha256 of the first `reached` bytes. Raises OSError of the disk."""
        self.stop()
        if self._error is not None:
            raise self._error
        return self._hash.hexdigest()

    def stop(self) -> None:
        """No more bytes will come."""
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        position = flushed = 0
        try:
            with self._path.open("rb", buffering=0) as file:
                while True:
                    over, reached = self._over.is_set(), self.reached
                    while position < reached:
                        block = file.read(min(BLOCK, reached - position))
                        if not block:
                            return
                        self._hash.update(block)
                        position += len(block)
                        if position - flushed >= FLUSH:
                            os.fsync(file.fileno())
                            flushed = position
                    if over:
                        return
                    self._over.wait(IDLE)
        except OSError as error:
            self._error = error
