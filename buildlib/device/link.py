"""One device as the steps see it: operations, transfers and jobs, over whatever transport reaches it."""

from __future__ import annotations

import binascii
import contextlib
import getpass
import io
import json
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import BinaryIO

import msgspec

from buildlib import errors
from buildlib.core.catalog import Device
from buildlib.device import small_files, transfer
from buildlib.device.bundle import BOOT, framed_sources
from buildlib.device.conversation import Conversation, Json, error_of, silence_of
from buildlib.device.transfer import Progress
from buildlib.ports.transport import Transport

ATTEMPTS = 5
"""Tries without any progress before a broken link is given up."""
FIRST_PAUSE = 0.2
MOST_LOG = 1 << 30
"""Bytes of a job's log that are believed; the device itself ends a job at a quarter of that."""
NEAR = 0.005
"""Seconds there and back up to which one stream is the fastest (decision 43)."""
STREAMS = 4


class DeviceLink:
    """A device, spoken to through its agent. One thread at a time.

    Paths are device paths ("/data/media/0/a.onnx"); `real` gives what a process on the device must be told.
    python: the interpreter that runs the agent and the compiles. owner: who works here, shown to others that wait.
    connect: opens one more connection; with it, big files go in `streams` ranges at once (None: as the way asks for).
    Every operation may be repeated without harm, so a lost connection is taken up again, a bounded number of times.
    """

    def __init__(
        self,
        transport: Transport,
        device: Device,
        python: str | None = None,
        *,
        owner: str | None = None,
        cancel: Event | None = None,
        connect: Callable[[], Transport] | None = None,
        streams: int | None = None,
    ) -> None:
        self.transport = transport
        self.device = device
        self.python = python or python_of(device)
        self.owner = owner or _who()
        self.cancel = cancel
        self._streams = streams if connect is not None else 1
        self._connect = connect
        self._siblings: list[DeviceLink] = []
        self.paths: dict[str, str] = {
            name: value for name, value in msgspec.to_builtins(device.paths).items() if value is not None
        }

    def real(self, path: str) -> str:
        """A device path as a process on the device sees it: behind paths.root."""
        return self.device.paths.root.rstrip("/") + path

    def close(self) -> None:
        """Ends all connections. Jobs on the device go on."""
        for sibling in self._siblings:
            sibling.close()
        self._siblings.clear()
        self.transport.close()

    def call(self, op: str, **args: object) -> Json:
        """One operation of the agent (see `device_scripts/agent`), answered with its value.

        Raises the build's errors: RailRefused, DeviceBusy, InputChanged, TransferFailed, DeviceError, and what the
        transport raises.
        """
        return self.repeat(lambda: self.ask(op, args))

    def push(
        self,
        local: Path,
        remote: str,
        *,
        sha256: str,
        on_progress: Progress | None = None,
        mode: int = 0o644,
        lacking: bool = False,
    ) -> bool:
        """Brings a file to the device under `remote`; False if the device had those bytes already.

        lacking: the device has just said that it has other bytes, and is not asked again: one round trip less.
        Resumes after a lost link. Raises InputChanged when the local file is not what sha256 says, else as `call`.
        """
        return transfer.push(self, local, remote, sha256=sha256, on_progress=on_progress, mode=mode, lacking=lacking)

    def push_small(self, files: Mapping[str, tuple[Path, str]]) -> None:
        """Brings small texts to the device, {remote: (local, sha256)}: one round trip, and one more if some are new.

        Raises InputChanged when a local file is not what its sha256 says, else as `call`.
        """
        small_files.push(self, files)

    def fetch(self, remote: str, local: Path, *, sha256: str, size: int, on_progress: Progress | None = None) -> None:
        """Brings a file from the device to `local`: a part file beside it, resumed, length and sha256 checked, renamed.

        Raises TransferFailed when the device's file is another than was said, else as `call`.
        """
        transfer.fetch(self, remote, local, sha256=sha256, size=size, on_progress=on_progress)

    def follow(
        self,
        key: str,
        *,
        on_log: Callable[[int, bytes], None] | None = None,
        on_tick: Callable[[float], None] | None = None,
        offset: int = 0,
    ) -> Json:
        """A job's final status, once it has one. The log comes by byte offset, each byte once, over lost links too.

        on_log: (offset of the first byte, bytes). on_tick: seconds since the job began, about once a second.
        """
        reached = offset
        heard = 0

        def event(message: Json) -> None:
            nonlocal reached, heard
            heard += 1
            if message["event"] == "log":
                data = binascii.a2b_base64(message["data"])
                at = int(message["offset"])
                if at + len(data) > MOST_LOG:
                    raise ValueError(at)
                if at + len(data) > reached:
                    fresh = data[max(reached - at, 0) :]
                    start, reached = reached, at + len(data)
                    if on_log is not None:
                        on_log(start, fresh)
            elif message["event"] == "tick" and on_tick is not None:
                on_tick(float(message["elapsed"]))

        return self.repeat(
            lambda: self.ask("job_follow", {"key": key, "offset": reached}, on_event=event), lambda: heard
        )

    def cancel_job(self, key: str) -> Json:
        """Ends a job and all that it started, also when this build was asked to stop. Its final status."""
        free = DeviceLink(self.transport, self.device, self.python, owner=self.owner)
        return free.call("job_cancel", key=key)

    def streams(self) -> int:
        """In how many ranges a big file goes: one fills a near way, and more would only share its processor."""
        if self._streams is None:
            far = self.transport.round_trip(self.device.timeouts.idle) > NEAR
            self._streams = STREAMS if far else 1
        return self._streams

    def siblings(self, count: int) -> list[DeviceLink]:
        """This link and others to the same device, `count` in all, for as many threads; one if no more can be had."""
        if self._connect is None:
            return [self]
        while len(self._siblings) < count - 1:
            self._siblings.append(
                DeviceLink(self._connect(), self.device, self.python, owner=self.owner, cancel=self.cancel)
            )
        return [self, *self._siblings[: count - 1]]

    def repeat(self, action: Callable[[], Json], progressed: Callable[[], int] = lambda: 0) -> Json:
        """An action that takes itself up again after a lost link; `progressed` grows when a try was not in vain."""
        attempt, mark, lost = 0, progressed(), False
        while True:
            try:
                return action()
            except errors.HostKeyError:
                raise
            except (errors.ConnectionLost, errors.DeviceUnreachable) as error:
                # Unreachable is an answer at first, and a link still broken after it was lost.
                if isinstance(error, errors.DeviceUnreachable) and not lost:
                    raise
                lost = True
                attempt = 0 if progressed() > mark else attempt + 1
                mark = max(mark, progressed())
                if attempt >= ATTEMPTS:
                    raise
                self._pause(FIRST_PAUSE * 2**attempt)

    def _pause(self, seconds: float) -> None:
        with contextlib.suppress(errors.BuildError):
            self.transport.close()
        if self.cancel is None:
            time.sleep(seconds)
        elif self.cancel.wait(seconds):
            raise errors.Cancelled("stopped", where=self.device.name)

    def ask(
        self,
        op: str,
        args: dict[str, object],
        *,
        body: BinaryIO | None = None,
        on_event: Callable[[Json], None] | None = None,
        on_body: Callable[[bytes], None] | None = None,
    ) -> Json:
        """One try of one operation, with a body either way."""
        argv, head = self.question(op, args)
        wanted = args.get("length") if on_body is not None else 0
        talk = Conversation(on_event, on_body, asked=wanted if isinstance(wanted, int) else 0)
        finished = self.transport.run(
            argv,
            stdin=head if body is None else _Chain(head, body),  # type: ignore[arg-type]
            stdout=talk.feed,
            idle_timeout=self.device.timeouts.idle,
            cancel=self.cancel,
        )
        if talk.answer is None:
            raise silence_of(self.device.name, finished.status, finished.stderr, self.python)
        if "error" in talk.answer:
            raise error_of(talk.answer["error"], self.device.name)
        value: Json = talk.answer["ok"]
        return value

    def question(self, op: str, args: dict[str, object]) -> tuple[tuple[str, ...], bytes]:
        """An operation as it travels: the agent's command line, and what it reads first."""
        request = {"op": op, "paths": self.paths, "owner": self.owner, **args}
        return self._argv(), framed_sources() + json.dumps(request).encode() + b"\n"

    def _argv(self) -> tuple[str, ...]:
        # -I, -S: neither the user's environment nor the working directory may change what the agent imports.
        agent = (self.python, "-I", "-S", "-B", "-c", BOOT)
        return ("sudo", "-n", *agent) if self.device.sudo else agent


def python_of(device: Device) -> str:
    """The interpreter that the device compiles with: paths.python, else the venv's behind the root."""
    paths = device.paths
    return paths.python or f"{paths.root.rstrip('/')}{paths.venv}/bin/python"


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "someone"
    return f"{user}@{socket.gethostname()} {Path.cwd()}"


class _Chain(io.RawIOBase):
    """Bytes, then a stream."""

    def __init__(self, head: bytes, body: BinaryIO) -> None:
        self._head = io.BytesIO(head)
        self._body = body

    def read(self, size: int = -1) -> bytes:
        return self._head.read(size) or self._body.read(size)
