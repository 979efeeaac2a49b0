"""What the agent says: JSON lines on standard output, errors as values."""

from __future__ import annotations

import _thread
import json
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BEAT_SECONDS = 1.0

_speaking = _thread.allocate_lock()
_quiet = False


class Refusal(Exception):
    """The agent will not or cannot do it. `kind` chooses the error class on the workstation.

    kind: rail, device, busy, input_changed, transfer, request or internal.
    """

    def __init__(
        self,
        kind: str,
        what: str,
        *,
        expected: str | None = None,
        got: str | None = None,
        remedy: str | None = None,
        where: str | None = None,
        guide: str | None = None,
    ) -> None:
        super().__init__(what)
        self.value: dict[str, Any] = {"kind": kind, "what": what}
        for name, text in (
            ("expected", expected),
            ("got", got),
            ("remedy", remedy),
            ("where", where),
            ("guide", guide),
        ):
            if text is not None:
                self.value[name] = text


def emit(message: dict[str, Any]) -> None:
    """One JSON line, whole, whatever other thread speaks."""
    line = json.dumps(message).encode() + b"\n"
    with _speaking:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def event(kind: str, **values: Any) -> None:
    """A line before the last one."""
    emit({"event": kind, **values})


def quiet() -> None:
    """No more heartbeats: raw bytes follow."""
    global _quiet
    with _speaking:
        _quiet = True


def loud() -> None:
    """Heartbeats again: the raw bytes are over."""
    global _quiet
    _quiet = False


def start_beating() -> None:
    """From now on a line each second, so that silence means a dead peer.

    The empty line at first ends whatever a login script has printed without an end of its own.
    """
    with _speaking:
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()
    _thread.start_new_thread(_beat, ())


def _beat() -> None:
    while True:
        time.sleep(BEAT_SECONDS)
        with _speaking:
            if _quiet:
                continue
            try:
                sys.stdout.buffer.write(b'{"event": "beat"}\n')
                sys.stdout.buffer.flush()
            except (OSError, ValueError):
                # The peer is gone. What is half done gets finished; the last line will fail by itself.
                return
