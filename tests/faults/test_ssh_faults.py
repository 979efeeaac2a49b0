"""Links that break and peers that fall silent: an error in the configured time, never a success that is not one."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from buildlib.core.catalog import Device, Timeouts
from buildlib.errors import Cancelled, ConnectionLost, DeviceUnreachable
from buildlib.transports.ssh import SshTransport
from tests.devices import SSHD_MARKS, CommaDevice, comma_device, link
from tests.devices.server import HOST
from tests.support.projects import until

pytestmark = SSHD_MARKS
MB = 1_000_000
IDLE = 20.0
SHORT = 1.0
ENOUGH = 10.0
"""Seconds in which an error that is due after `SHORT` has to be there: a bound on hanging, not on speed."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommaDevice]:
    with comma_device(tmp_path_factory.mktemp("devices"), timeouts=Timeouts(connect=SHORT, idle=SHORT)) as device:
        yield device


@pytest.fixture
def transport(desk: CommaDevice) -> Iterator[SshTransport]:
    # Logging in is not what these tests are short of time for.
    transport = SshTransport(desk.with_(timeouts=Timeouts()), home=desk.home)
    yield transport
    transport.close()


def works(transport: SshTransport) -> bool:
    return transport.run(("echo", "well"), idle_timeout=IDLE).stdout == b"well\n"


def once(sign: Path, act: Callable[[], object]) -> threading.Thread:
    """Acts as soon as a command says that it is at work, by making a file."""
    thread = threading.Thread(target=lambda: until(sign.exists) and act(), daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("moment", ["before any output", "in mid-output", "after the last byte"])
def test_a_killed_connection_is_a_lost_connection(
    desk: CommaDevice, transport: SshTransport, tmp_path: Path, moment: str
) -> None:
    script = {
        "before any output": ': > "$1"; sleep 300',
        "in mid-output": 'n=0; while :; do echo line; sleep 0.01; n=$((n + 1)); [ $n != 20 ] || : > "$1"; done',
        "after the last byte": 'echo all; exec >&- 2>&-; : > "$1"; sleep 300',
    }[moment]
    sign = tmp_path / "at work"
    once(sign, desk.server.kill_connections)
    with pytest.raises(ConnectionLost) as caught:
        transport.run(("sh", "-c", script, "sh", str(sign)), idle_timeout=IDLE)
    assert caught.value.remedy
    assert works(transport)


def test_a_connection_killed_in_an_upload_is_lost(desk: CommaDevice, transport: SshTransport, tmp_path: Path) -> None:
    sign = tmp_path / "at work"

    class Endless(io.RawIOBase):
        left = 20

        def read(self, size: int = -1) -> bytes:
            self.left -= 1
            if self.left == 0:
                sign.touch()
            return b"x" * size

    once(sign, desk.server.kill_connections)
    with pytest.raises(ConnectionLost):
        transport.run(("sh", "-c", "cat > /dev/null"), stdin=Endless(), idle_timeout=IDLE)
    assert works(transport)


def test_a_connection_that_died_between_two_commands_is_opened_anew(desk: CommaDevice, transport: SshTransport) -> None:
    assert works(transport)
    desk.server.kill_connections()
    assert works(transport)
    assert works(transport)


def test_a_killed_shell_is_no_success(transport: SshTransport, tmp_path: Path) -> None:
    """Its status never comes, though the connection lives: what it had said is not taken for all."""
    script = "echo part; kill -9 $(ps -o ppid= -p $$) $$"
    with pytest.raises(ConnectionLost, match="no exit status"):
        transport.run(("sh", "-c", script), idle_timeout=IDLE)
    assert works(transport)


def test_a_status_without_the_end_of_the_output_is_no_success(
    desk: CommaDevice, transport: SshTransport, tmp_path: Path
) -> None:
    """The command ends at once, and says so, while its child still holds the output that it will write to."""
    sign = tmp_path / "at work"
    once(sign, desk.server.kill_connections)
    script = '(sleep 0.5; : > "$1"; sleep 20; echo late) & echo early'
    with pytest.raises(ConnectionLost):
        transport.run(("sh", "-c", script, "sh", str(sign)), idle_timeout=2 * IDLE)


def test_a_command_that_is_cancelled_before_it_began_does_not_go_on(
    desk: CommaDevice, transport: SshTransport, tmp_path: Path
) -> None:
    """A device slow to log in: the cancel comes while its shell has not yet said who it is."""
    enter = desk.server.directory / "enter.sh"
    before = enter.read_text()
    assert works(transport)
    enter.write_text(before.replace("#!/bin/sh\n", "#!/bin/sh\nsleep 0.7\n"))
    cancel = threading.Event()
    threading.Timer(0.2, cancel.set).start()
    try:
        with pytest.raises(Cancelled):
            transport.run(
                ("sh", "-c", 'sleep 2; touch "$1"', "sh", str(tmp_path / "went on")), idle_timeout=IDLE, cancel=cancel
            )
    finally:
        enter.write_text(before)
    time.sleep(3)
    assert not (tmp_path / "went on").exists()
    assert works(transport)


@pytest.mark.parametrize("way", ["down", "up", "idle", "both"])
def test_a_silent_peer_is_noticed_in_the_configured_time(
    desk: CommaDevice, transport: SshTransport, tmp_path: Path, way: str
) -> None:
    script, size = {
        "down": ("cat /dev/zero", 0),
        "up": ("cat > /dev/null", 2000 * MB),
        "idle": ("sleep 300", 0),
        "both": ("cat", 2000 * MB),
    }[way]
    assert works(transport)
    stdin, sign = _Zeros(size), tmp_path / "at work"
    with contextlib.ExitStack() as stack:
        silent = once(sign, lambda: stack.enter_context(desk.server.silenced()))
        start = time.monotonic()
        with pytest.raises(DeviceUnreachable, match="silence"):
            transport.run(
                ("sh", "-c", f': > "$1"; {script}', "sh", str(sign)), stdin=stdin, stdout=len, idle_timeout=3 * SHORT
            )
        assert not silent.is_alive(), "it was the peer's silence"
        assert time.monotonic() - start < 3 * ENOUGH
    assert works(transport)


def test_a_peer_that_is_silent_when_a_command_starts_is_noticed(desk: CommaDevice, transport: SshTransport) -> None:
    assert works(transport)
    with desk.server.silenced():
        start = time.monotonic()
        with pytest.raises(DeviceUnreachable, match="silence"):
            transport.run(("echo",), idle_timeout=SHORT)
        assert time.monotonic() - start < ENOUGH


def test_a_stopped_server_is_noticed_while_connecting(desk: CommaDevice) -> None:
    transport = SshTransport(desk.catalog_device, home=desk.home)
    with desk.server.silenced():
        start = time.monotonic()
        with pytest.raises(DeviceUnreachable, match="says nothing"):
            transport.run(("echo",), idle_timeout=IDLE)
        assert time.monotonic() - start < ENOUGH
    assert works(SshTransport(desk.with_(timeouts=Timeouts()), home=desk.home))


@contextlib.contextmanager
def impostor(greeting: bytes) -> Iterator[int]:
    """A port that accepts, says a greeting and then nothing."""
    with socket.create_server((HOST, 0)) as listener:
        taken: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(listener.accept()[0])
                    taken[-1].sendall(greeting)

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.close()
        for end in taken:
            end.close()


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"SSH-2.0-"], ids=["none", "banner", "part"])
def test_a_port_that_says_nothing_more_is_unreachable(desk: CommaDevice, greeting: bytes) -> None:
    with impostor(greeting) as port:
        start = time.monotonic()
        with pytest.raises(DeviceUnreachable, match="says nothing"):
            SshTransport(desk.with_(port=port), home=desk.home).run(("echo",), idle_timeout=IDLE)
        assert time.monotonic() - start < ENOUGH


def test_a_port_of_something_else_is_unreachable(desk: CommaDevice) -> None:
    with impostor(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 200) as port, pytest.raises(DeviceUnreachable, match="SSH"):
        SshTransport(desk.with_(port=port), home=desk.home).run(("echo",), idle_timeout=IDLE)


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-OpenSSH_9.2\r\n"], ids=["none", "banner"])
def test_cancel_is_heard_while_connecting(desk: CommaDevice, greeting: bytes) -> None:
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    patient = Timeouts(connect=60.0)
    with impostor(greeting) as port, pytest.raises(Cancelled):
        SshTransport(desk.with_(port=port, timeouts=patient), home=desk.home).run(
            ("echo",), idle_timeout=IDLE, cancel=cancel
        )


def test_cancel_is_heard_while_the_peer_is_silent(desk: CommaDevice, transport: SshTransport, tmp_path: Path) -> None:
    cancel = threading.Event()
    with contextlib.ExitStack() as stack:

        def stop() -> None:
            stack.enter_context(desk.server.silenced())
            cancel.set()

        sign = tmp_path / "at work"
        once(sign, stop)
        start = time.monotonic()
        with pytest.raises(Cancelled):
            transport.run(
                ("sh", "-c", ': > "$1"; cat', "sh", str(sign)),
                stdin=_Zeros(2000 * MB),
                stdout=len,
                idle_timeout=60.0,
                cancel=cancel,
            )
        assert time.monotonic() - start < ENOUGH
    assert works(transport)


POINTS = 30


@pytest.mark.parametrize("way", ["down", "up"])
def test_a_transfer_cut_anywhere_is_never_taken_for_whole(desk: CommaDevice, tmp_path: Path, way: str) -> None:
    """Cut at seeded byte counts, from the handshake to behind the last byte."""
    data = random.Random(7).randbytes(MB)
    file = tmp_path / "file"
    file.write_bytes(data)
    points = [*random.Random(way).sample(range(1, int(1.05 * MB)), POINTS), 1, MB + 3000, MB + 6000]
    outcomes = set()
    with link(desk.port) as line:
        device = desk.with_(port=line.port, known_hosts=_pins(desk, tmp_path, line.port), timeouts=Timeouts())
        for point in points:
            transport = SshTransport(device, home=desk.home)
            line.cut_in(point)
            got = hashlib.sha256()
            try:
                if way == "down":
                    finished = transport.run(("cat", str(file)), stdout=got.update, idle_timeout=IDLE)
                else:
                    finished = transport.run(("sha256sum",), stdin=io.BytesIO(data), idle_timeout=IDLE)
            except (ConnectionLost, DeviceUnreachable) as error:
                outcomes.add(type(error).__name__)
            else:
                outcomes.add("whole")
                digest = got.hexdigest() if way == "down" else finished.stdout.decode()[:64]
                assert finished.status == 0
                assert digest == hashlib.sha256(data).hexdigest()
            finally:
                transport.close()
    # Each kind of end was met, else the points prove less than they say.
    assert outcomes == {"ConnectionLost", "DeviceUnreachable", "whole"}


def _pins(desk: CommaDevice, directory: Path, port: int) -> str:
    pins = directory / "pins"
    pins.write_text(desk.server.known_hosts_line(port=port))
    return str(pins)


def test_paramiko_prints_nothing(desk: CommaDevice, tmp_path: Path) -> None:
    """Its tracebacks would reach standard error through Python's handler of last resort."""
    import subprocess
    import sys

    import msgspec

    code = (
        "import sys, msgspec; from pathlib import Path; from buildlib.core.catalog import Device;"
        "from buildlib.transports.ssh import SshTransport; from buildlib.errors import BuildError\n"
        "device = msgspec.json.decode(sys.argv[1], type=Device)\n"
        "try: SshTransport(device, home=Path(sys.argv[2])).run(('echo',), idle_timeout=5)\n"
        "except BuildError as error: print(error.headline())\n"
    )
    with impostor(b"SSH-1.5-old\r\n") as port:
        device: Device = desk.with_(port=port)
        done = subprocess.run(
            [sys.executable, "-c", code, msgspec.json.encode(device).decode(), str(desk.home)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )
    assert done.stderr == ""
    assert done.stdout.startswith("desk (")
    assert done.returncode == 0


class _Zeros(io.RawIOBase):
    """So many zero bytes, made as they are read."""

    def __init__(self, size: int) -> None:
        self.left = size

    def read(self, size: int = -1) -> bytes:
        count = min(self.left, size)
        self.left -= count
        return bytes(count)


def test_sigstop_leaves_a_port_that_accepts(desk: CommaDevice) -> None:
    """What the tests above rest on."""
    with desk.server.silenced(), socket.create_connection((HOST, desk.port), timeout=5) as end:
        end.settimeout(0.3)
        with pytest.raises(TimeoutError):
            end.recv(1)
    os.kill(desk.server.process.pid, signal.SIGCONT)


def test_the_way_is_measured_and_a_silent_peer_ends_the_measurement(desk: CommaDevice, transport: SshTransport) -> None:
    with link(desk.port, delay=0.05) as far:
        slow = SshTransport(msgspec.structs.replace(desk.through(far.port), timeouts=Timeouts()), home=desk.home)
        assert slow.round_trip(IDLE) >= 0.1
        slow.close()
    near = transport.round_trip(IDLE)
    assert near > 0
    with desk.server.silenced(), pytest.raises(DeviceUnreachable) as caught:
        transport.round_trip(SHORT)
    assert caught.value.got == "silence"
    assert works(transport)
