"""SIGINT and SIGTERM as a request to stop. Imports next to nothing."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from buildlib.errors import EXIT_INTERRUPTED, EXIT_TERMINATED, Cancelled


class Interrupts:
    """cancel is set by the first signal; exit_status says by which. A second signal ends the process."""

    def __init__(self) -> None:
        self.cancel = threading.Event()
        self.exit_status: int | None = None

    def listen(self) -> Callable[[], None]:
        """Takes the signals over. Returns the undoing."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        former: dict[int, Any] = {}

        def heard(number: int, frame: FrameType | None) -> None:
            self.exit_status = EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_TERMINATED
            self.cancel.set()
            for other in former:
                signal.signal(other, signal.SIG_DFL)

        for number in (signal.SIGINT, signal.SIGTERM):
            former[number] = signal.signal(number, heard)

        def undo() -> None:
            for number, handler in former.items():
                signal.signal(number, handler)

        return undo

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """While a person is asked nothing has to be brought to an end first: a signal raises Cancelled at once."""

        def raised(number: int, frame: FrameType | None) -> None:
            self.exit_status = EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_TERMINATED
            self.cancel.set()
            raise Cancelled("stopped on request")

        former = {number: signal.signal(number, raised) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
