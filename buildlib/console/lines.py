"""Events on a terminal: a line a step, a live line for what takes long. Plain lines where nobody watches."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from typing import IO

from buildlib.core.wording import for_device
from buildlib.plain_text import one_line, plain, without_logins

EVERY = 0.1
"""Seconds between two redraws of the live line."""


class Console:
    """Prints step lines to a stream; on a terminal the last line shows progress and is wiped before the next.

    device: the one that was chosen for this run, None for the usual ones.
    """

    def __init__(
        self,
        out: IO[str] | None = None,
        warnings: list[tuple[str, str]] | None = None,
        device: str | None = None,
    ) -> None:
        self._out = out if out is not None else sys.stdout
        self._live = self._out.isatty()
        self._lock = threading.Lock()
        self._drawn = 0.0
        self._shown = ""
        self._started: dict[tuple[str, str, int | None], tuple[float, int]] = {}
        self.warnings = warnings if warnings is not None else []
        self._device = device

    def step(self, subject: str, stage: str, text: str) -> None:
        """A line that stays."""
        with self._lock:
            self._wipe()
            self._out.write(f"{subject:<12}{stage:<10} {plain(without_logins(text))}\n")
            self._out.flush()

    def progress(self, subject: str, stage: str, done: int, total: int | None, text: str = "") -> None:
        """Redraws the live line, at most ten times a second; without a terminal nothing is printed."""
        if not self._live:
            return
        moment = time.monotonic()
        with self._lock:
            if moment - self._drawn < EVERY and done != total:
                return
            self._drawn = moment
            self._wipe()
            width = shutil.get_terminal_size().columns - 1
            self._shown = (
                f"{subject:<12}{stage:<10} {self._measure(subject, stage, done, total, one_line(text), moment)}"[:width]
            )
            self._out.write(self._shown)
            self._out.flush()

    def warning(self, subject: str, text: str) -> None:
        """Printed at once, and kept for the summary."""
        text = for_device(plain(without_logins(text)), self._device)
        with self._lock:
            if (subject, text) in self.warnings:
                return
            self.warnings.append((subject, text))
            self._wipe()
            self._out.write(f"{subject:<12}warning    {text}\n")
            self._out.flush()

    def close(self) -> None:
        """Leaves a clean line behind."""
        with self._lock:
            self._wipe()
            self._out.flush()

    def _wipe(self) -> None:
        if self._shown:
            self._out.write("\r" + " " * len(self._shown) + "\r")
            self._shown = ""

    def _measure(self, subject: str, stage: str, done: int, total: int | None, text: str, moment: float) -> str:
        if stage == "compile" or stage == "validate":
            usual = f" of about {total} s" if total else " s"
            return f"{done}{usual}  {text}"
        begun, first = self._started.setdefault((subject, stage, total), (moment, done))
        elapsed = moment - begun
        rate = (done - first) / elapsed / 1e6 if elapsed > 0.2 else 0.0
        left = f", {(total - done) / 1e6 / rate:.0f} s left" if total and rate > 0 else ""
        whole = f" of {total / 1e6:.1f}" if total else ""
        return f"{done / 1e6:.1f}{whole} MB, {rate:.1f} MB/s{left} {text}"
