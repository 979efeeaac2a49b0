"""Hashes and flushes a file behind the one who writes it, so that neither costs time at the end."""

from __future__ import annotations

import hashlib
import os
import threading
import time

from .hashes import BLOCK

FLUSH_EVERY = 16 << 20
IDLE = 0.002


class Trailing:
    """A thread that follows `reached`, the number of bytes written in order from the start of an open file.

    What it hashes it reads back from the file: the digest is of what lies there, not of what was meant.
    """

    def __init__(self, handle: int) -> None:
        self.reached = 0
        self._handle = handle
        self._hash = hashlib.sha256()
        self._over = False
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
        self._over = True
        self._thread.join()

    def _follow(self) -> None:
        position = flushed = 0
        try:
            while True:
                over, reached = self._over, self.reached
                while position < reached:
                    block = os.pread(self._handle, min(BLOCK, reached - position), position)
                    if not block:
                        return
                    self._hash.update(block)
                    position += len(block)
                if over:
                    return
                if position - flushed >= FLUSH_EVERY and hasattr(os, "fdatasync"):
                    os.fdatasync(self._handle)
                    flushed = position
                time.sleep(IDLE)
        except OSError as error:
            self._error = error
