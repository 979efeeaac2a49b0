"""One device as the steps see it: operations, transfers and jobs, over whatever transport reaches it."""

from __future__ import annotations

import binascii
import contextlib
import getpass
import io
import json
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event
from typing import BinaryIO

import msgspec

from buildlib import errors
from buildlib.core.catalog import Device
from buildlib.device.bundle import BOOT, framed_sources
from buildlib.device.conversation import Conversation, Json, error_of, silence_of
from buildlib.ports.transport import Transport

ATTEMPTS = 5
"""Tries without any progress before a broken link is given up."""
FIRST_PAUSE = 0.2

Progress = Callable[[int, int], None]
"""(bytes done, bytes in all)."""


class DeviceLink:
    """A device, spoken to through its agent. One thread at a time.

    Paths are device paths ("/data/media/0/a.onnx"); `real` gives what a process on the device must be told.
    python: the interpreter that runs the agent and the compiles. owner: who works here, shown to others that wait.
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
    ) -> None:
        self.transport = transport
        self.device = device
        self.python = python or python_of(device)
        self.owner = owner or f"{getpass.getuser()}@{socket.gethostname()} {os.getcwd()}"  # noqa: PTH109
        self.cancel = cancel
        self.paths: dict[str, str] = {
            name: value for name, value in msgspec.to_builtins(device.paths).items() if value is not None
        }

    def real(self, path: str) -> str:
        """A device path as a process on the device sees it: behind paths.root."""
        return self.device.paths.root.rstrip("/") + path

    def call(self, op: str, **args: object) -> Json:
        """One operation of the agent (see `device_scripts/agent`), answered with its value.

        Raises the build's errors: RailRefused, DeviceBusy, InputChanged, TransferFailed, DeviceError, and what the
        transport raises.
        """
        return self._repeat(lambda: self._ask(op, args))

    def _repeat(self, action: Callable[[], Json], progressed: Callable[[], int] = lambda: 0) -> Json:
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
                mark = progressed()
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

    def _ask(
        self,
        op: str,
        args: dict[str, object],
        *,
        body: BinaryIO | None = None,
        on_event: Callable[[Json], None] | None = None,
        on_body: Callable[[bytes], None] | None = None,
    ) -> Json:
        request = {"op": op, "paths": self.paths, "owner": self.owner, **args}
        head = framed_sources() + json.dumps(request).encode() + b"\n"
        talk = Conversation(on_event, on_body)
        finished = self.transport.run(
            self._argv(),
            stdin=head if body is None else _Chain(head, body),  # type: ignore[arg-type]
            stdout=talk.feed,
            idle_timeout=self.device.timeouts.idle,
            cancel=self.cancel,
        )
        if talk.answer is None:
            raise silence_of(self.device.name, finished.status, finished.stderr, self.python)
        if "error" in talk.answer:
            raise error_of(talk.answer["error"], self.device.name)
        value = talk.answer.get("ok")
        return value if isinstance(value, dict) else {}

    def _argv(self) -> tuple[str, ...]:
        # -I, -S: neither the user's environment nor the working directory may change what the agent imports.
        agent = (self.python, "-I", "-S", "-B", "-c", BOOT)
        return ("sudo", "-n", *agent) if self.device.sudo else agent

    def cancel_job(self, key: str) -> Json:
        """Ends a job and all that it started, also when this build was asked to stop. Its final status."""
        free = DeviceLink(self.transport, self.device, self.python, owner=self.owner)
        return free.call("job_cancel", key=key)

    def push(
        self, local: Path, remote: str, *, sha256: str, on_progress: Progress | None = None, mode: int = 0o644
    ) -> bool:
        """Brings a file to the device under `remote`; False if the device had those bytes already.

        Resumes after a lost link. Raises InputChanged when the local file is not what sha256 says, else as `call`.
        """
        size = local.stat().st_size
        what = {"path": remote, "size": size, "sha256": sha256}
        done = 0

        def progress(count: int) -> None:
            nonlocal done
            done = count
            if on_progress is not None:
                on_progress(count, size)

        def once() -> Json:
            begin = self._ask("receive_begin", dict(what))
            if begin["have"]:
                return {"sent": False}
            ranges = begin["ranges"] or [{"start": 0, "end": size, "done": 0}]
            there = sum(item["done"] - item["start"] for item in ranges)
            for number, item in enumerate(ranges):
                with local.open("rb") as file:
                    file.seek(item["done"])
                    args = {"start": item["start"], "end": item["end"], "offset": item["done"], "mode": mode}
                    last = number == len(ranges) - 1
                    body = _Counted(file, item["end"] - item["done"], partial(_add, progress, there))
                    self._ask("receive", {**what, **args, "finish": last}, body=body)  # type: ignore[arg-type]
                    there += item["end"] - item["done"]
            return {"sent": True}

        for again in (True, False):
            try:
                sent = bool(self._repeat(once, lambda: done)["sent"])
                progress(size)
                return sent
            except errors.TransferFailed as error:
                if _sha256(local) != sha256:
                    raise errors.InputChanged(
                        "the file changed while it was sent", where=str(local), expected=f"sha256 {sha256}"
                    ) from error
                if not again:
                    raise
        raise AssertionError

    def fetch(self, remote: str, local: Path, *, sha256: str, size: int, on_progress: Progress | None = None) -> None:
        """Brings a file from the device to `local`: a part file beside it, resumed, length and sha256 checked, renamed.

        Raises TransferFailed when the device's file is another than was said, else as `call`.
        """
        part = local.with_name(f".{local.name.encode()[:120].decode(errors='ignore')}.{sha256[:16]}.part")
        local.parent.mkdir(parents=True, exist_ok=True)
        for again in (True, False):
            self._repeat(lambda: self._fetch_once(remote, part, size, on_progress), lambda: _size(part))
            got = _sha256(part)
            if got == sha256 and part.stat().st_size == size:
                break
            part.unlink()
            if not again:
                raise errors.TransferFailed(
                    "the file from the device is not the one that was made there",
                    where=f"{self.device.name}:{remote}",
                    expected=f"{size} bytes, sha256 {sha256}",
                    got=f"sha256 {got}",
                    remedy="something on the device replaced it: build the step again",
                )
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(local)

    def _fetch_once(self, remote: str, part: Path, size: int, on_progress: Progress | None) -> Json:
        offset = min(_size(part), size)
        with part.open("rb+" if part.exists() else "wb") as file:
            file.truncate(offset)
            file.seek(offset)

            def take(block: bytes) -> None:
                file.write(block)
                if on_progress is not None:
                    on_progress(file.tell(), size)

            return self._ask("send", {"path": remote, "offset": offset, "size": size}, on_body=take)

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
                if at + len(data) > reached:
                    fresh = data[max(reached - at, 0) :]
                    start, reached = reached, at + len(data)
                    if on_log is not None:
                        on_log(start, fresh)
            elif message["event"] == "tick" and on_tick is not None:
                on_tick(float(message["elapsed"]))

        return self._repeat(
            lambda: self._ask("job_follow", {"key": key, "offset": reached}, on_event=event), lambda: heard
        )


def python_of(device: Device) -> str:
    """The interpreter that the device compiles with: paths.python, else the venv's behind the root."""
    paths = device.paths
    return paths.python or f"{paths.root.rstrip('/')}{paths.venv}/bin/python"


class _Counted(io.RawIOBase):
    """At most `length` bytes of a file, told to `count` as they are taken."""

    def __init__(self, file: BinaryIO, length: int, count: Callable[[int], None]) -> None:
        self._file = file
        self._left = length
        self._count = count
        self._taken = 0

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        block = self._file.read(wanted)
        self._left -= len(block)
        self._taken += len(block)
        if block:
            self._count(self._taken)
        return block


class _Chain(io.RawIOBase):
    """Bytes, then a stream."""

    def __init__(self, head: bytes, body: BinaryIO) -> None:
        self._head = io.BytesIO(head)
        self._body = body

    def read(self, size: int = -1) -> bytes:
        return self._head.read(size) or self._body.read(size)


def _add(progress: Callable[[int], None], base: int, count: int) -> None:
    progress(base + count)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sha256(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
