"""A loopback TCP proxy that behaves like a worse network: delay, a rate, or a cut after so many bytes."""

from __future__ import annotations

import contextlib
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

HOST = "127.0.0.1"
BLOCK = 128 * 1024


class Wire:
    """One way of a link: busy with earlier bytes, whoever sent them."""

    def __init__(self) -> None:
        self._free = 0.0
        self._lock = threading.Lock()

    def take(self, count: int, rate: float) -> float:
        """When the last of so many bytes has left."""
        with self._lock:
            now = time.monotonic()
            self._free = max(now, self._free) + (count / rate if rate else 0.0)
            return self._free


@dataclass
class Link:
    """port: connect here. cut_after: bytes (both directions together) after which everything is reset; None never.

    delay: seconds that each byte takes one way. rate: bytes per second each way, of all connections together, 0 without
    limit.
    passed: bytes so far. taken: connections so far.
    """

    target: int
    delay: float = 0.0
    rate: float = 0.0
    cut_after: int | None = None
    passed: int = 0
    taken: int = 0
    cuts: int = 0
    port: int = 0
    _listener: socket.socket = field(default_factory=socket.socket)
    _open: list[socket.socket] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _there: Wire = field(default_factory=Wire)
    _back: Wire = field(default_factory=Wire)

    def start(self) -> None:
        self._listener.bind((HOST, 0))
        self._listener.listen()
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_in(self, count: int) -> None:
        """Cuts once, `count` bytes from now."""
        with self._lock:
            self.cut_after = self.passed + count

    def cut(self) -> None:
        """Resets every open connection now; new ones are taken again."""
        with self._lock:
            self.cuts += 1
            self.cut_after = None
            doomed, self._open = self._open, []
        for end in doomed:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection((HOST, self.target))
            except OSError:
                return
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.taken += 1
                self._open += [near, far]
            self._carry(near, far, self._there)
            self._carry(far, near, self._back)

    def _carry(self, source: socket.socket, sink: socket.socket, wire: Wire) -> None:
        # What is under way: delay times rate, and a router's buffer on top.
        flight: queue.Queue[tuple[float, bytes]] = queue.Queue(maxsize=max(64, int(self.delay * self.rate / BLOCK) * 4))
        threading.Thread(target=self._take_in, args=(source, flight, wire), daemon=True).start()
        threading.Thread(target=self._put_out, args=(sink, flight), daemon=True).start()

    def _take_in(self, source: socket.socket, flight: queue.Queue[tuple[float, bytes]], wire: Wire) -> None:
        while True:
            try:
                block = source.recv(BLOCK)
            except OSError:
                block = b""
            flight.put((wire.take(len(block), self.rate) + self.delay, block))
            if not block:
                return

    def _put_out(self, sink: socket.socket, flight: queue.Queue[tuple[float, bytes]]) -> None:
        while True:
            due, block = flight.get()
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            with self._lock:
                left = None if self.cut_after is None else max(0, self.cut_after - self.passed)
                self.passed += len(block) if left is None else min(left, len(block))
            try:
                if not block:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(block if left is None else block[:left])
            except OSError:
                return
            if left is not None and left <= len(block):
                self.cut()
                return


@contextlib.contextmanager
def link(target: int, *, delay: float = 0.0, rate: float = 0.0, cut_after: int | None = None) -> Iterator[Link]:
    """A proxy in this process, before a port of loopback."""
    proxy = Link(target=target, delay=delay, rate=rate, cut_after=cut_after)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()


@contextlib.contextmanager
def link_process(target: int, *, delay: float, rate: float) -> Iterator[int]:
    """A proxy in a process of its own, for measurements: its work must not slow the client's. Yields the port."""
    command = [
        sys.executable,
        "-c",
        "from tests.devices.network import main; main()",
        str(target),
        str(delay),
        str(rate),
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Arguments: target port, delay, rate. Prints its own port; ends with its standard input."""
    proxy = Link(target=int(sys.argv[1]), delay=float(sys.argv[2]), rate=float(sys.argv[3]))
    proxy.start()
    print(proxy.port, flush=True)
    sys.stdin.read()
