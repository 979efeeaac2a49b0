"""One OpenSSH server on a high loopback port, owned by the test: own host keys, own authorized keys, own log."""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

HOST = "127.0.0.1"
START_LIMIT = 20.0


def sshd_program() -> str | None:
    """OpenSSH's server, which refuses to start by a relative name."""
    return shutil.which("sshd", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin")))


SSHD_MARKS = [
    pytest.mark.ssh,
    # In CI a missing server is a failure of CI, and shows as one.
    pytest.mark.skipif(
        sshd_program() is None and os.environ.get("CI") != "true", reason="no sshd here: apt install openssh-server"
    ),
]
"""For `pytestmark`, and for one parameter: `pytest.param("ssh", marks=SSHD_MARKS)`."""


@dataclass
class Sshd:
    """A running server. commands: what clients asked it to run, one line each, in the order of arrival."""

    directory: Path
    port: int
    process: subprocess.Popen[bytes]
    user: str = field(default_factory=getpass.getuser)

    @property
    def log(self) -> str:
        return (self.directory / "sshd.log").read_text(errors="replace")

    @property
    def commands(self) -> int:
        """How many commands it was asked to run."""
        count = self.directory / "commands.count"
        return len(count.read_bytes()) if count.exists() else 0

    def host_key(self, kind: str = "ed25519") -> str:
        """The public host key: `ssh-ed25519 AAAA...`."""
        return " ".join((self.directory / f"host_{kind}.pub").read_text().split()[:2])

    def fingerprint(self, kind: str = "ed25519") -> str:
        """By OpenSSH's own hand, so that ours is checked against it."""
        line = subprocess.run(
            ["ssh-keygen", "-lf", self.directory / f"host_{kind}.pub"], check=True, capture_output=True, text=True
        ).stdout
        return line.split()[1]

    def known_hosts_line(self, kind: str = "ed25519", *, port: int | None = None) -> str:
        return f"[{HOST}]:{port or self.port} {self.host_key(kind)}\n"

    def connections(self) -> list[int]:
        """Process ids of the servers of open connections, monitors and their children."""
        table = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,comm="], check=True, capture_output=True, text=True
        ).stdout
        rows = [line.split(None, 2) for line in table.splitlines()]
        found: list[int] = []
        parents = {self.process.pid}
        while parents:
            children = {int(pid) for pid, parent, name in rows if int(parent) in parents and "sshd" in name}
            found += sorted(children)
            parents = children
        return found

    def kill_connections(self) -> None:
        """What a power cut of the link looks like from outside: the connection's server is gone, the command not."""
        for pid in self.connections():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @contextlib.contextmanager
    def silenced(self) -> Iterator[None]:
        """Server and connections stopped: the port still accepts, nobody answers."""
        pids = [self.process.pid, *self.connections()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def sshd(
    directory: Path,
    *,
    authorized: str,
    environment: dict[str, str] | None = None,
    host_keys: tuple[str, ...] = ("ed25519",),
    options: tuple[str, ...] = (),
) -> Iterator[Sshd]:
    """Starts a server.

    authorized: public keys that may log in, as the current user. environment: of every command. options: more lines
    of sshd_config.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for kind in host_keys:
        if not (directory / f"host_{kind}").exists():
            make_key(directory / f"host_{kind}", kind)
    (directory / "authorized_keys").write_text(authorized)
    enter = directory / "enter.sh"
    exports = [f"export {name}={shlex.quote(value)}" for name, value in (environment or {}).items()]
    count = shlex.quote(str(directory / "commands.count"))
    enter.write_text("\n".join(["#!/bin/sh", *exports, f"printf . >> {count}", "cd", _DISPATCH, ""]))
    enter.chmod(0o755)
    if os.geteuid() == 0:
        # Its privilege separation wants this directory, which only the service's own start makes.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    port = free_port()
    config = directory / "sshd_config"
    config.write_text(
        "\n".join(
            [
                f"Port {port}",
                f"ListenAddress {HOST}",
                *(f'HostKey "{directory / f"host_{kind}"}"' for kind in host_keys),
                f'AuthorizedKeysFile "{directory / "authorized_keys"}"',
                f'PidFile "{directory / "sshd.pid"}"',
                f"ForceCommand {shlex.quote(str(enter))}",
                # bash reads the user's .bashrc for every command: not that of whoever runs the tests.
                *(f'SetEnv "{name}={value}"' for name, value in (environment or {}).items() if name == "HOME"),
                "UsePAM no",
                "StrictModes no",
                "PasswordAuthentication no",
                "KbdInteractiveAuthentication no",
                "PermitRootLogin prohibit-password",
                "MaxStartups 100",
                "Subsystem sftp internal-sftp",
                *options,
                "",
            ]
        )
    )
    program = sshd_program()
    assert program is not None, "no sshd here: apt install openssh-server"
    log = directory / "sshd.log"
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            [program, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr
        )
    server = Sshd(directory=directory, port=port, process=process)
    try:
        _wait_until_it_listens(server)
        yield server
    finally:
        server.kill_connections()
        process.terminate()
        process.wait()


# scp and sftp ask for the subsystem, whose command sshd hands over as a word of its own.
_DISPATCH = """case "$SSH_ORIGINAL_COMMAND" in
*sftp-server|internal-sftp*) exec /usr/lib/openssh/sftp-server ;;
*) exec "${SHELL:-/bin/sh}" -c "$SSH_ORIGINAL_COMMAND" ;;
esac"""


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A key pair by OpenSSH's own hand."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", path], check=True)
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _wait_until_it_listens(server: Sshd) -> None:
    deadline = time.monotonic() + START_LIMIT
    while True:
        with contextlib.suppress(OSError), socket.create_connection((HOST, server.port), timeout=1) as probe:
            if probe.recv(4) == b"SSH-":
                return
        if server.process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"sshd did not start:\n{server.log}")
        time.sleep(0.02)
