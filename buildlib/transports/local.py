"""The embedded default: commands run here, as subprocesses of the build."""

from __future__ import annotations

import contextlib
import io
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import IO, TYPE_CHECKING, BinaryIO

from buildlib.ports.transport import STDERR_KEPT, Finished
from buildlib.transports.faults import NOT_EXECUTABLE, NOT_FOUND, refuse_cancelled, refuse_unspeakable, silent

if TYPE_CHECKING:
    from buildlib.core.catalog import Device

BLOCK = 256 * 1024
TICK = 0.05
"""Seconds between two looks at the cancel event while nothing moves."""
GRACE = 1.0
"""Seconds between the polite signal and the one that cannot be refused."""


class LocalTransport:
    """Runs each command in a session of its own, so that its whole process group can be ended."""

    def __init__(self, name: str = "local") -> None:
        self.name = name

    def run(
        self,
        argv: tuple[str, ...],
        *,
        stdin: BinaryIO | bytes = b"",
        stdout: Callable[[bytes], None] | None = None,
        idle_timeout: float,
        cancel: Event | None = None,
    ) -> Finished:
        """See `ports.transport.Transport.run`."""
        refuse_cancelled(self.name, cancel)
        refuse_unspeakable(self.name, argv)
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            # What a shell on a device answers, so that callers meet one shape only.
            status = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            return Finished(status=status, stderr=f"{argv[0]}: {error.strerror}\n".encode())
        kept: list[bytes] = []
        pump = _Pump(process, stdin, stdout if stdout is not None else kept.append)
        try:
            pump.run(self.name, idle_timeout, cancel)
        except BaseException:
            _end_group(process)
            raise
        finally:
            pump.close()
        code = process.returncode
        return Finished(status=code if code >= 0 else 128 - code, stdout=b"".join(kept), stderr=bytes(pump.stderr))

    def round_trip(self, idle_timeout: float) -> float:
        """No way at all."""
        return 0.0

    def close(self) -> None:
        """Nothing is kept open between commands."""


class _Pump:
    """Feeds and drains one process from a single thread, so that no pipe can fill while another is waited for."""

    def __init__(
        self, process: subprocess.Popen[bytes], stdin: BinaryIO | bytes, sink: Callable[[bytes], None]
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.source: BinaryIO = io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin
        self.sink = sink
        self.stderr = bytearray()
        self.pipes: tuple[IO[bytes], IO[bytes], IO[bytes]] = (process.stdin, process.stdout, process.stderr)
        self.pending = memoryview(b"")
        self.selector = selectors.DefaultSelector()
        for pipe in self.pipes:
            os.set_blocking(pipe.fileno(), False)
        self.selector.register(process.stdin, selectors.EVENT_WRITE, self._feed)
        self.selector.register(process.stdout, selectors.EVENT_READ, self._drain_stdout)
        self.selector.register(process.stderr, selectors.EVENT_READ, self._drain_stderr)

    def run(self, name: str, idle_timeout: float, cancel: Event | None) -> None:
        """Until all three pipes have ended and the process is gone."""
        moved = time.monotonic()
        while self.selector.get_map() or self.process.poll() is None:
            if self.selector.get_map():
                ready = self.selector.select(TICK)
            else:
                ready = []
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(TICK)
            refuse_cancelled(name, cancel)
            for key, _ in ready:
                key.data()
            if ready:
                moved = time.monotonic()
            elif time.monotonic() - moved > idle_timeout:
                raise silent(name, idle_timeout)

    def _feed(self) -> None:
        stdin = self.pipes[0]
        if not self.pending:
            self.pending = memoryview(self.source.read(BLOCK))
        if not self.pending:
            self._end(stdin)
            return
        try:
            written = os.write(stdin.fileno(), self.pending)
        except BlockingIOError:
            return
        except BrokenPipeError:
            # It does not want the rest; its status will say whether that is an error.
            self._end(stdin)
            return
        self.pending = self.pending[written:]

    def _drain_stdout(self) -> None:
        block = os.read(self.pipes[1].fileno(), BLOCK)
        if block:
            self.sink(block)
        else:
            self._end(self.pipes[1])

    def _drain_stderr(self) -> None:
        block = os.read(self.pipes[2].fileno(), BLOCK)
        if block:
            self.stderr += block
            del self.stderr[:-STDERR_KEPT]
        else:
            self._end(self.pipes[2])

    def _end(self, pipe: IO[bytes]) -> None:
        self.selector.unregister(pipe)
        pipe.close()

    def close(self) -> None:
        self.selector.close()
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.close()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends the command and what it started: politely, then for good.

    The group's id can't pass to strangers while any member lives, reaped leader or not.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        # Mac says EPERM for a group of zombies, Linux ESRCH.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        if number == signal.SIGTERM:
            _wait_for_group(process)
    process.wait()


def _wait_for_group(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + GRACE
    while time.monotonic() < deadline:
        process.poll()
        try:
            os.killpg(process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return
        time.sleep(TICK / 5)


def open_transport(device: Device, root: Path) -> LocalTransport:
    """The transport of a device, as `steps.services` finds it by name."""
    return LocalTransport(device.name)
