"""What a step says while it works. Steps speak through this port; the console is one listener."""

from __future__ import annotations

from typing import Protocol


class Events(Protocol):
    """A listener. Called from worker threads; every method returns quickly and never raises."""

    def step(self, subject: str, stage: str, text: str) -> None:
        """A line worth keeping: `nopp compile 18.4 s, 6 kernels`."""
        ...

    def progress(self, subject: str, stage: str, done: int, total: int | None, text: str = "") -> None:
        """Where a transfer (bytes) or a compile (seconds, total = the usual) is; text is the last log line."""
        ...

    def warning(self, subject: str, text: str) -> None:
        """Something that a person should read at the end of the run."""
        ...


class Silent:
    """Events that nobody listens to."""

    def step(self, subject: str, stage: str, text: str) -> None:
        return

    def progress(self, subject: str, stage: str, done: int, total: int | None, text: str = "") -> None:
        return

    def warning(self, subject: str, text: str) -> None:
        return
