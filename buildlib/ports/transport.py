"""What a transport can do: run one command on a device, with bytes in and bytes out.

Everything else (file transfer, probes, jobs) is a command to the device agent, so a new transport is one file
with this one method, and passes `tests/conformance/test_transports.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import BinaryIO, Protocol

STDERR_KEPT = 64 * 1024
"""Bytes of standard error that are kept, the last ones."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A command that ran to its end.

    status: exit status; a death by signal N is 128 + N.
    stdout: all of standard output, or empty when a sink took it.
    stderr: the last `STDERR_KEPT` bytes.
    """

    status: int
    stdout: bytes = b""
    stderr: bytes = b""


class Transport(Protocol):
    """A way to one device. Opened lazily by the first `run`; several threads may run commands at once."""

    name: str

    def run(
        self,
        argv: tuple[str, ...],
        *,
        stdin: BinaryIO | bytes = b"",
        stdout: Callable[[bytes], None] | None = None,
        idle_timeout: float,
        cancel: Event | None = None,
    ) -> Finished:
        """Runs argv on the device, no shell interpretation of any argument, environment as the login gives it.

        stdin: fed while output is drained (no deadlock at any size), then closed.
        stdout: called with each block as it comes, in the calling thread; what it raises ends the command and
            is raised on.
        idle_timeout: seconds without a byte in either direction before the peer is called silent.
        cancel: once set, the command's whole process group is ended as far as the transport can reach it.

        Raises DeviceUnreachable (no connection, or silence), ConnectionLost (broke in mid-command; an exit
        status that never came is this, not a success), HostKeyError, Cancelled.
        A status other than 0 is returned, not raised.
        """
        ...

    def round_trip(self, idle_timeout: float) -> float:
        """Seconds that a word takes there and back, 0.0 where it is no way at all. Raises as `run`."""
        ...

    def close(self) -> None:
        """Ends the connection. Detached jobs on the device go on."""
        ...
