"""A device over SSH: one command a channel, over one connection that opens when it is first needed."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock
from typing import BinaryIO

import paramiko

from buildlib.core.catalog import Device
from buildlib.errors import BuildError, Cancelled, ConnectionLost, DeviceError
from buildlib.ports.transport import Finished
from buildlib.transports.faults import refuse_cancelled, refuse_unspeakable, silent
from buildlib.transports.ssh_config import route
from buildlib.transports.ssh_connection import Connection, connect
from buildlib.transports.ssh_exchange import Exchange, Stderr
from buildlib.transports.ssh_watch import Watch

PATIENCE = 3.0
"""Seconds from a cancel to the closing of the whole connection, when ending the command alone did not work."""

# The shell says its process id first, so that a cancel can reach the group: SSH itself has no such message that works
# under sudo. `exec` in a subshell never takes a builtin for a program; the outer shell turns a signal into 128 + N.
RUN = 'echo "$1 $$" >&2; shift; (exec "$@"); exit $?'
END = """group=$(ps -o pgid= -p "$1" | tr -d ' '); [ "${group:-0}" -gt 1 ] || exit 0
sudo=${2:-false}; i=0
end() { kill -s "$1" -- "-$group"; $sudo kill -s "$1" -- "-$group"; }
exec 2>/dev/null; end TERM
while [ $i -lt 10 ] && { kill -0 -- "-$group" || $sudo kill -0 -- "-$group"; }; do i=$((i+1)); sleep .1; done
end KILL"""


class SshTransport:
    """See `ports.transport.Transport`.

    home: whose `.ssh` counts. project: start of relative paths in models.yaml, and home of its known_hosts.
    `run` may be called from several threads at once: each command is a channel of its own over the one connection,
    which fills a link with delay better than one channel can. A connection that breaks ends them all.
    """

    def __init__(self, device: Device, *, home: Path, project: Path = Path()) -> None:
        self.name = device.name
        self.device = device
        self.home = home
        self.project = project
        self._lock = Lock()
        self._connection: Connection | None = None

    def run(
        self,
        argv: tuple[str, ...],
        *,
        stdin: BinaryIO | bytes = b"",
        stdout: Callable[[bytes], None] | None = None,
        idle_timeout: float,
        cancel: Event | None = None,
    ) -> Finished:
        """See `ports.transport.Transport.run`. The login shell must understand `exec` and quotes, as all but csh do."""
        refuse_unspeakable(self.name, argv)
        refuse_cancelled(self.name, cancel)
        token = f"supercombo-{secrets.token_hex(4)}"
        connection, channel = self._start(command_line(token, argv), idle_timeout, cancel)
        kept: list[bytes] = []
        watch = Watch(connection.transport, limit=idle_timeout, cancel=cancel, patience=PATIENCE)
        stderr = Stderr(token)
        exchange = Exchange(self.name, channel, watch, stderr, stdin, stdout if stdout is not None else kept.append)
        try:
            with watch:
                try:
                    status = exchange.run(cancel)
                except BaseException:
                    if connection.alive and watch.fired is None:
                        exchange.hear_group(PATIENCE)
                        channel.close()
                        self._end(connection, stderr.group)
                    raise
                finally:
                    exchange.close()
        except (paramiko.SSHException, OSError, EOFError) as error:
            # What a sink or a stdin raised is theirs, not the link's.
            if error is exchange.foreign:
                raise
            raise self._fault(connection, watch, idle_timeout, str(error)) from error
        if status is None:
            raise self._fault(connection, watch, idle_timeout, "no exit status came")
        return Finished(status=status, stdout=b"".join(kept), stderr=stderr.tail())

    def round_trip(self, idle_timeout: float) -> float:
        """See `ports.transport.Transport.round_trip`. By a request that the server itself answers."""
        connection, _ = self._open(None)
        watch = Watch(connection.transport, limit=idle_timeout, cancel=None)
        times = []
        with watch:
            for _ in range(2):
                start = time.perf_counter()
                connection.transport.global_request("keepalive@openssh.com", wait=True)
                times.append(time.perf_counter() - start)
        if not connection.alive:
            raise self._fault(connection, watch, idle_timeout, "")
        return min(times)

    def close(self) -> None:
        """See `ports.transport.Transport.close`."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self, cancel: Event | None) -> tuple[Connection, bool]:
        """The connection, and whether it was open already. Several threads share one."""
        with self._lock:
            if self._connection is not None and self._connection.alive:
                return self._connection, True
            if self._connection is not None:
                self._connection.close()
            hops = route(self.device, home=self.home, project=self.project)
            self._connection = connect(self.device, hops, cancel=cancel)
            return self._connection, False

    def _start(self, command: bytes, idle_timeout: float, cancel: Event | None) -> tuple[Connection, paramiko.Channel]:
        """A channel with the command running. A connection that died while nobody used it is opened anew, once."""
        connection, reused = self._open(cancel)
        opened = False
        # A cancel waits for the command to begin, and then ends it: begun and unheard of, it would go on there.
        watch = Watch(connection.transport, limit=idle_timeout, cancel=cancel, patience=PATIENCE)
        try:
            with watch:
                channel = connection.transport.open_session(timeout=idle_timeout + 1)
                opened = True
                channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            alive = connection.alive
            if watch.fired is None and reused and not opened and not alive:
                return self._start(command, idle_timeout, cancel)
            if watch.fired is None and alive:
                raise DeviceError(
                    f"it logs in but runs no commands: {error}",
                    where=self.name,
                    remedy="look at ForceCommand, MaxSessions and the login shell there",
                ) from error
            raise self._fault(connection, watch, idle_timeout, str(error)) from error
        return connection, channel

    def _fault(self, connection: Connection, watch: Watch, idle_timeout: float, words: str) -> BuildError:
        """What a broken exchange means. The connection is given up; the next command opens another."""
        connection.close()
        if watch.fired == "silence":
            return silent(self.name, idle_timeout)
        if watch.fired == "cancel":
            return Cancelled("stopped on request", where=self.name)
        return ConnectionLost(
            f"the connection broke in mid-command: {words or 'it hung up'}",
            where=self.name,
            remedy="run doit again: it resumes where it stopped",
        )

    def _end(self, connection: Connection, group: int | None) -> None:
        """Ends a command's process group, over a second channel. It is a courtesy: failing, the connection goes."""
        if group is None:
            connection.close()
            return
        sudo = ("sudo -n",) if self.device.sudo else ()
        try:
            with Watch(connection.transport, limit=PATIENCE, cancel=None):
                channel = connection.transport.open_session(timeout=PATIENCE)
                channel.exec_command(shlex.join(("/bin/sh", "-c", END, "sh", str(group), *sudo)))
                channel.status_event.wait(PATIENCE)
                channel.close()
        except (paramiko.SSHException, OSError, EOFError):
            connection.close()


def command_line(token: str, argv: tuple[str, ...]) -> bytes:
    """What is sent: the one place where arguments are quoted."""
    return ("exec " + shlex.join(("/bin/sh", "-c", RUN, "sh", token, *argv))).encode("utf-8", "surrogateescape")


def open_transport(device: Device, root: Path) -> SshTransport:
    """The transport of a device, as `steps.services` finds it by name."""
    return SshTransport(device, home=Path.home(), project=root)
