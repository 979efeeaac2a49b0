"""What the agent says, taken apart: events, a raw body if one is announced, the last line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from buildlib import errors
from buildlib.plain_text import one_line, plain_value

Json = dict[str, Any]

_KINDS: dict[str, type[errors.BuildError]] = {
    "rail": errors.RailRefused,
    "device": errors.DeviceError,
    "busy": errors.DeviceBusy,
    "input_changed": errors.InputChanged,
    "transfer": errors.TransferFailed,
}
MAX_LINE = 64 << 20
MOST_NOISE = 1 << 20
"""Bytes that login scripts may print before and between what the agent says."""


class Conversation:
    """Fed with blocks as they come from a transport; holds the last line when the command is over.

    on_event: called with each event but heartbeats. on_body: called with the raw bytes of a `send`, which are `asked`
    at most. What a device says is believed in its form only: a lie about a length or a kind raises DeviceError.
    """

    def __init__(
        self,
        on_event: Callable[[Json], None] | None = None,
        on_body: Callable[[bytes], None] | None = None,
        *,
        asked: int | None = None,
    ) -> None:
        self.answer: Json | None = None
        self._on_event = on_event
        self._on_body = on_body
        self._asked = asked
        self._line = bytearray()
        self._body_left = 0
        self._noise = 0

    def feed(self, block: bytes) -> None:
        """Takes the next bytes of the agent's standard output."""
        at = 0
        while at < len(block):
            if self._body_left:
                taken = block[at : at + self._body_left]
                self._body_left -= len(taken)
                at += len(taken)
                if self._on_body is not None:
                    self._on_body(taken)
                continue
            end = block.find(b"\n", at)
            if end < 0:
                self._line += block[at:]
                if len(self._line) > MAX_LINE:
                    raise _nonsense("something without end")
                return
            self._line += block[at:end]
            at = end + 1
            line, self._line = bytes(self._line), bytearray()
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        kind = message.get("event") if isinstance(message, dict) else None
        if not isinstance(message, dict) or not (isinstance(kind, str) or message.keys() & {"ok", "error"}):
            # A login script that prints to standard output; harmless as long as it ends and the last line comes.
            self._noise += len(line) + 1
            if self._noise > MOST_NOISE:
                raise _nonsense("noise without end")
            return
        if kind is None:
            self._answer(message)
        elif kind == "body":
            self._begin_body(message.get("length"))
        elif kind != "beat" and self._on_event is not None:
            try:
                self._on_event(plain_value(message))
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise _nonsense(f"an event {one_line(kind, 40)} that lacks its values") from error

    def _answer(self, message: Json) -> None:
        name = "error" if "error" in message else "ok"
        if not isinstance(message[name], dict):
            raise _nonsense(f"an answer whose {name!r} is no object")
        self.answer = {name: plain_value(message[name])}

    def _begin_body(self, length: object) -> None:
        most = self._asked or 0
        if not isinstance(length, int) or isinstance(length, bool) or not 0 <= length <= most:
            raise _nonsense(f"{one_line(repr(length), 40)} bytes", f"at most the {most} that were asked for")
        self._body_left = length
        self._asked = most - length


def _nonsense(got: str, expected: str = "what the agent says, in lines of JSON") -> errors.DeviceError:
    return errors.DeviceError(
        "the device says what cannot be understood",
        expected=expected,
        got=got,
        remedy="look at what the login shell prints there (`ssh HOST true` should print nothing), then run doit again",
    )


def error_of(value: Json, device: str) -> errors.BuildError:
    """The agent's error value as one of the build's own errors."""
    kind = _KINDS.get(str(value.get("kind")), errors.DeviceError)
    said = {name: one_line(str(text)) for name, text in value.items() if text is not None}
    where = said.get("where")
    return kind(
        said.get("what", "the device agent failed"),
        where=f"{device}:{where}" if where else device,
        expected=said.get("expected"),
        got=said.get("got"),
        remedy=_addressed(said.get("remedy"), device),
        guide=said.get("guide"),
    )


def _addressed(remedy: str | None, device: str) -> str | None:
    """A device does not know by what name it is called here."""
    return remedy.replace("doit gc --device", f"doit gc --device {device} --yes") if remedy else None


def silence_of(device: str, status: int, stderr: bytes, python: str) -> errors.BuildError:
    """Why a command ended without the agent's last line."""
    text = stderr.decode("utf-8", "replace").strip()
    last = one_line(text.splitlines()[-1]) if text else None
    if last and last.startswith("sudo:") and not last.endswith("command not found"):
        return errors.DeviceError(
            "sudo does not run commands without a password",
            where=device,
            got=last,
            remedy="allow the user `sudo -n` on the device, or set sudo: false for it in models.yaml",
        )
    if status in (126, 127) or (last and last.startswith("sudo:")):
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
