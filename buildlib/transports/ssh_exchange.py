"""One command's bytes over one channel: standard input out, standard output and error in, the status at the end."""

from __future__ import annotations

import io
import re
import threading
import time
from collections.abc import Callable
from threading import Event
from typing import BinaryIO

import paramiko

from buildlib.errors import DeviceError
from buildlib.ports.transport import STDERR_KEPT
from buildlib.transports.faults import refuse_cancelled
from buildlib.transports.ssh_watch import TICK, Watch

BLOCK = 256 * 1024
PIECE = 64 * 1024
"""Bytes offered to one `send`, which takes what fits in a packet."""


MOST_STDERR = 64 << 20
"""Bytes of standard error that a command may say: what it says for long goes to standard output or to a log there."""


class Stderr:
    """The tail of standard error, without the line in which the shell told its process id."""

    def __init__(self, token: str) -> None:
        self.group: int | None = None
        self._mark = re.compile(rb"%s (\d+)\n" % token.encode())
        self._bytes = bytearray()
        self._said = 0

    def feed(self, block: bytes) -> None:
        """Takes the next bytes. Raises DeviceError for a peer that goes on and on."""
        self._said += len(block)
        if self._said > MOST_STDERR:
            self._said = -(1 << 60)  # once is enough: what comes while the command is ended is not told again
            raise DeviceError(
                "it writes to standard error without end",
                expected=f"at most {MOST_STDERR >> 20} MiB",
                remedy="look at what the login shell prints there: `ssh HOST true` should print nothing",
            )
        self._bytes += block
        if self.group is None and (match := self._mark.search(self._bytes)):
            self.group = int(match[1])
            del self._bytes[match.start() : match.end()]
        del self._bytes[:-STDERR_KEPT]

    def tail(self) -> bytes:
        return bytes(self._bytes)


class Exchange:
    """Feeds and drains one channel: a thread feeds, the caller drains, `watch` ends what paramiko cannot."""

    def __init__(
        self,
        name: str,
        channel: paramiko.Channel,
        watch: Watch,
        stderr: Stderr,
        stdin: BinaryIO | bytes,
        sink: Callable[[bytes], None],
    ) -> None:
        self.name = name
        self.channel = channel
        self.watch = watch
        self.stderr = stderr
        self.source: BinaryIO = io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin
        self.sink = sink
        self.foreign: BaseException | None = None
        self._stop = Event()
        self._empty = stdin == b""
        self._feeder = threading.Thread(target=self._feed, name=f"{name} stdin", daemon=True)

    def run(self, cancel: Event | None) -> int | None:
        """The exit status, or None when none came: the link is gone, or the shell was killed."""
        self.channel.settimeout(TICK)
        if self._empty:
            self.channel.shutdown_write()
        else:
            self._feeder.start()
        while (block := self._receive()) != b"":
            self._check(cancel)
            if block:
                self._give(block)
        while not self.channel.status_event.wait(TICK):
            self._drain_stderr()
            self._check(cancel)
        self._drain_stderr()
        # A status without the end of the output before it is a torn connection, not a success.
        whole = self.channel.eof_received and self.channel.exit_status >= 0
        return self.channel.exit_status if whole else None

    def hear_group(self, patience: float) -> None:
        """Waits for the process id, without which a command that has only just begun could not be ended."""
        deadline = time.monotonic() + patience
        while self.stderr.group is None and not self.channel.closed and time.monotonic() < deadline:
            self._drain_stderr()
            time.sleep(TICK / 10)

    def close(self) -> None:
        """Ends the feeding of what the command did not want."""
        self._stop.set()
        self.channel.close()
        if self._feeder.is_alive():
            self._feeder.join()

    def _receive(self) -> bytes | None:
        try:
            block = self.channel.recv(BLOCK)
        except TimeoutError:
            block = None
        if block:
            self.watch.moved()
        self._drain_stderr()
        return block

    def _drain_stderr(self) -> None:
        while self.channel.recv_stderr_ready():
            self.stderr.feed(self.channel.recv_stderr(BLOCK))
            self.watch.moved()

    def _check(self, cancel: Event | None) -> None:
        if self.foreign is not None:
            raise self.foreign
        if self.watch.fired is None:
            refuse_cancelled(self.name, cancel)

    def _give(self, block: bytes) -> None:
        try:
            with self.watch.ours():
                self.sink(block)
        except BaseException as error:
            self.foreign = error
            raise

    def _feed(self) -> None:
        while not self._stop.is_set():
            try:
                with self.watch.ours():
                    block = self.source.read(BLOCK)
            except BaseException as error:  # noqa: BLE001
                # Whatever it is, the caller's thread raises it again.
                self.foreign = error
                return
            try:
                if not block:
                    self.channel.shutdown_write()
                    return
                self._send(memoryview(block))
            except (paramiko.SSHException, OSError, EOFError):
                # The command ended, or the link did: the draining side knows which.
                return

    def _send(self, pending: memoryview) -> None:
        while pending and not self._stop.is_set():
            try:
                sent = self.channel.send(bytes(pending[:PIECE]))
            except TimeoutError:
                continue
            if sent == 0:
                raise EOFError
            pending = pending[sent:]
            self.watch.moved()
