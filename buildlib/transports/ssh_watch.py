"""A second pair of eyes on an SSH connection: paramiko has waits that neither a timeout nor an event ends."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import paramiko

TICK = 0.05
"""Seconds between two looks."""


class Watch:
    """Closes a connection, which ends every wait on it, once nothing moved for `limit` seconds or cancel is old.

    fired: why it was closed. Used as a context; the thread ends with it.
    patience: seconds that the holder gets to notice the cancel event by itself.
    """

    def __init__(
        self, connection: paramiko.Transport, *, limit: float, cancel: threading.Event | None, patience: float = 0.0
    ) -> None:
        self.fired: Literal["silence", "cancel"] | None = None
        self._connection = connection
        self._limit = limit
        self._cancel = cancel
        self._patience = patience
        self._moved = time.monotonic()
        self._holding = 0
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ssh watch", daemon=True)

    def moved(self) -> None:
        """A byte came or went."""
        self._moved = time.monotonic()

    @contextlib.contextmanager
    def ours(self) -> Iterator[None]:
        """Time that this side takes (a sink, a disk) is not the peer's silence."""
        with self._lock:
            self._holding += 1
        try:
            yield
        finally:
            with self._lock:
                self._holding -= 1
            self._moved = time.monotonic()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        cancelled = 0.0
        while not self._done.wait(TICK):
            now = time.monotonic()
            if self._cancel is not None and self._cancel.is_set():
                cancelled = cancelled or now
                if now - cancelled >= self._patience:
                    self._fire("cancel")
                    return
            if not self._holding and now - self._moved > self._limit:
                self._fire("silence")
                return

    def _fire(self, why: Literal["silence", "cancel"]) -> None:
        self.fired = why
        self._connection.close()
