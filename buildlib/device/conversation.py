"""What the agent says, taken apart: events, a raw body if one is announced, the last line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from buildlib import errors

Json = dict[str, Any]

_KINDS: dict[str, type[errors.BuildError]] = {
    "rail": errors.RailRefused,
    "device": errors.DeviceError,
    "busy": errors.DeviceBusy,
    "input_changed": errors.InputChanged,
    "transfer": errors.TransferFailed,
}
MAX_LINE = 64 << 20


class Conversation:
    """Fed with blocks as they come from a transport; holds the last line when the command is over.

    on_event: called with each event but heartbeats. on_body: called with the raw bytes of a `send`.
    """

    def __init__(
        self, on_event: Callable[[Json], None] | None = None, on_body: Callable[[bytes], None] | None = None
    ) -> None:
        self.answer: Json | None = None
        self._on_event = on_event
        self._on_body = on_body
        self._line = bytearray()
        self._body_left = 0

    def feed(self, block: bytes) -> None:
        """Takes the next bytes of the agent's standard output."""
        view = memoryview(block)
        while view:
            if self._body_left:
                taken = view[: self._body_left]
                self._body_left -= len(taken)
                if self._on_body is not None:
                    self._on_body(bytes(taken))
                view = view[len(taken) :]
                continue
            end = bytes(view).find(b"\n")
            if end < 0:
                self._line += view
                if len(self._line) > MAX_LINE:
                    raise errors.DeviceError("the device says something without end", expected="lines of JSON")
                return
            self._line += view[:end]
            view = view[end + 1 :]
            line, self._line = bytes(self._line), bytearray()
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            # A login script that prints to standard output; harmless as long as the last line comes.
            return
        if not isinstance(message, dict):
            return
        kind = message.get("event")
        if kind == "body":
            self._body_left = int(message["length"])
        elif kind is None:
            self.answer = message
        elif kind != "beat" and self._on_event is not None:
            self._on_event(message)


def error_of(value: Json, device: str) -> errors.BuildError:
    """The agent's error value as one of the build's own errors."""
    kind = _KINDS.get(str(value.get("kind")), errors.DeviceError)
    where = value.get("where")
    return kind(
        str(value.get("what", "the device agent failed")),
        where=f"{device}:{where}" if where else device,
        expected=value.get("expected"),
        got=value.get("got"),
        remedy=_addressed(value.get("remedy"), device),
        guide=value.get("guide"),
    )


def _addressed(remedy: object, device: str) -> str | None:
    """A device does not know by what name it is called here."""
    return str(remedy).replace("doit gc --device", f"doit gc --device {device} --yes") if remedy else None


def silence_of(device: str, status: int, stderr: bytes, python: str) -> errors.BuildError:
    """Why a command ended without the agent's last line."""
    text = stderr.decode("utf-8", "replace").strip()
    last = text.splitlines()[-1] if text else None
    if last and last.startswith("sudo:"):
        return errors.DeviceError(
            "sudo does not run commands without a password",
            where=device,
            got=last,
            remedy="allow the user `sudo -n` on the device, or set sudo: false for it in models.yaml",
        )
    if status in (126, 127):
        return errors.DeviceError(
            "python cannot be run on the device",
            where=device,
            expected=python,
            got=last,
            remedy="check paths.venv or paths.python of the device in models.yaml",
        )
    if status > 128 or (status == 1 and not text):
        return errors.ConnectionLost("the device agent was ended", where=device, got=f"exit status {status}")
    return errors.DeviceError(
        "the device agent did not answer",
        where=device,
        got=last or f"exit status {status}",
        remedy="doit doctor shows whether python and sudo work there",
    )
