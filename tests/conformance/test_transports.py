"""What every transport must do, asked of each: a new one is one more name in TRANSPORTS."""

from __future__ import annotations

import hashlib
import io
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildlib.errors import Cancelled, DeviceError, DeviceUnreachable
from buildlib.ports.transport import STDERR_KEPT, Transport
from buildlib.transports.local import LocalTransport
from tests.devices import SSHD_MARKS, comma_device

TRANSPORTS = [pytest.param("local"), pytest.param("ssh", marks=SSHD_MARKS)]
MB = 1_000_000
IDLE = 20.0
SOON = 20.0
"""Seconds in which a process that was ended has to be gone: a bound on waiting, not on speed."""
SHOW_ARGUMENTS = (sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))")


@pytest.fixture(scope="module", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transport]:
    if request.param == "local":
        yield LocalTransport()
        return
    from buildlib.transports.ssh import SshTransport

    with comma_device(tmp_path_factory.mktemp("a device's directory")) as device:
        transport = SshTransport(device.catalog_device, home=device.home)
        yield transport
        transport.close()


@pytest.fixture(scope="module")
def payload() -> bytes:
    return random.Random(4).randbytes(50 * MB)


def alive(pid: int) -> bool:
    """A zombie is dead: where init reaps nobody, it only stays in the table."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def gone_soon(*pids: int) -> bool:
    deadline = time.monotonic() + SOON
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def family(directory: Path) -> tuple[tuple[str, ...], Path]:
    """A command with a child of its own; the ids of both are in the file once it says something."""
    file = directory / "pids"
    script = 'sleep 300 & echo "$$ $!" > "$1.part"; mv "$1.part" "$1"; echo started; wait'
    return ("sh", "-c", script, "sh", str(file)), file


def pids(file: Path) -> tuple[int, ...]:
    return tuple(int(word) for word in file.read_text().split())


@pytest.mark.parametrize(
    "argument",
    [
        "a b",
        " ",
        "",
        "'",
        '"',
        'it\'s "so"',
        "$HOME",
        "`id`",
        "$(id)",
        "a\nb",
        "\n",
        "\t\r",
        "-n",
        "--",
        "--help",
        "*",
        "~",
        "!!",
        "a\\nb",
        "\\",
        ";false",
        "&&",
        "|",
        ">x",
        "#",
        "{a,b}",
        "Übung ☃ 模型",
        "\udcff",
        "x=1",
        "%s",
        "a" * 20000,
    ],
)
def test_an_argument_arrives_as_it_is(transport: Transport, argument: str) -> None:
    finished = transport.run((*SHOW_ARGUMENTS, argument, argument), idle_timeout=IDLE)
    assert (finished.status, json.loads(finished.stdout)) == (0, [argument, argument])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=6))
def test_any_arguments_arrive_as_they_are(transport: Transport, arguments: list[str]) -> None:
    finished = transport.run((*SHOW_ARGUMENTS, *arguments), idle_timeout=IDLE)
    assert json.loads(finished.stdout) == arguments


def test_a_program_may_have_an_odd_name(transport: Transport, tmp_path: Path) -> None:
    program = tmp_path / 'it\'s $a "program"\n'
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    assert transport.run((str(program),), idle_timeout=IDLE).stdout == b"ran\n"


def test_a_shell_builtin_is_not_a_program(transport: Transport) -> None:
    assert transport.run(("export", "A=1"), idle_timeout=IDLE).status == 127


def test_a_missing_program_is_status_127_and_says_so(transport: Transport) -> None:
    finished = transport.run(("no-such-program", "x"), idle_timeout=IDLE)
    assert finished.status == 127
    assert b"no-such-program" in finished.stderr


def test_what_cannot_be_executed_is_status_126(transport: Transport, tmp_path: Path) -> None:
    assert transport.run((str(tmp_path),), idle_timeout=IDLE).status == 126


@pytest.mark.parametrize("argv", [(), ("",), ("printf", "a\0b")])
def test_an_impossible_command_is_refused(transport: Transport, argv: tuple[str, ...]) -> None:
    with pytest.raises(DeviceError, match="no such command is possible"):
        transport.run(argv, idle_timeout=IDLE)


@pytest.mark.parametrize("status", [0, 1, 2, 42, 126, 127, 255])
def test_a_status_is_returned_not_raised(transport: Transport, status: int) -> None:
    assert transport.run(("sh", "-c", f"exit {status}"), idle_timeout=IDLE).status == status


@pytest.mark.parametrize("number", [15, 9, 2, 11])
def test_a_death_by_signal_n_is_status_128_plus_n(transport: Transport, number: int) -> None:
    # A test run in the background inherits an ignored SIGINT, which a shell could not take back.
    die = f"import os, signal; print('before', flush=True); {number} != 9 and signal.signal({number}, signal.SIG_DFL)"
    finished = transport.run(("python3", "-c", f"{die}; os.kill(os.getpid(), {number})"), idle_timeout=IDLE)
    assert (finished.status, finished.stdout) == (128 + number, b"before\n")


def test_standard_error_is_kept_apart(transport: Transport) -> None:
    finished = transport.run(("sh", "-c", "echo out; echo err >&2"), idle_timeout=IDLE)
    assert (finished.stdout, finished.stderr) == (b"out\n", b"err\n")


def test_the_end_of_standard_error_is_kept(transport: Transport) -> None:
    finished = transport.run(("sh", "-c", "head -c 1000000 /dev/zero >&2; echo last >&2"), idle_timeout=IDLE)
    assert len(finished.stderr) == STDERR_KEPT
    assert finished.stderr.endswith(b"\0last\n")


def test_without_stdin_the_command_reads_the_end_at_once(transport: Transport) -> None:
    assert transport.run(("cat",), idle_timeout=IDLE).stdout == b""


def test_every_byte_value_passes_both_ways(transport: Transport) -> None:
    data = bytes(range(256)) * 300
    assert transport.run(("cat",), stdin=data, idle_timeout=IDLE).stdout == data


def test_a_file_is_fed_from_where_it_stands(transport: Transport, tmp_path: Path, payload: bytes) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(payload[: 5 * MB])
    with file.open("rb") as stdin:
        stdin.seek(1234)
        finished = transport.run(("cat",), stdin=stdin, idle_timeout=IDLE)
    assert finished.stdout == payload[1234 : 5 * MB]


def test_50_mb_come(transport: Transport, tmp_path: Path, payload: bytes) -> None:
    file = tmp_path / "artifact.pkl"
    file.write_bytes(payload)
    hasher = hashlib.sha256()
    finished = transport.run(("cat", str(file)), stdout=hasher.update, idle_timeout=IDLE)
    assert finished.stdout == b""
    assert hasher.digest() == hashlib.sha256(payload).digest()


def test_50_mb_go(transport: Transport, tmp_path: Path, payload: bytes) -> None:
    file = tmp_path / "model.onnx"
    transport.run(("sh", "-c", 'cat > "$1"', "sh", str(file)), stdin=io.BytesIO(payload), idle_timeout=IDLE)
    assert file.read_bytes() == payload


def test_50_mb_go_and_come_back_while_2_mib_of_errors_are_said(transport: Transport, payload: bytes) -> None:
    hasher = hashlib.sha256()
    script = "head -c 2097152 /dev/zero >&2; cat; head -c 2097152 /dev/zero >&2; exit 3"
    finished = transport.run(("sh", "-c", script), stdin=io.BytesIO(payload), stdout=hasher.update, idle_timeout=IDLE)
    assert (finished.status, hasher.digest()) == (3, hashlib.sha256(payload).digest())


def test_input_that_the_command_does_not_want_is_no_error(transport: Transport, payload: bytes) -> None:
    finished = transport.run(("head", "-c", "10"), stdin=io.BytesIO(payload), idle_timeout=IDLE)
    assert (finished.status, finished.stdout) == (0, payload[:10])


def test_the_sink_is_called_in_the_calling_thread(transport: Transport) -> None:
    threads = []
    transport.run(("echo",), stdout=lambda block: threads.append(threading.current_thread()), idle_timeout=IDLE)
    assert threads == [threading.current_thread()]


def test_blocks_come_as_they_are_written(transport: Transport, tmp_path: Path) -> None:
    """The command waits for a file that only the sink makes: buffering would end in silence."""
    file = tmp_path / "go on"
    script = 'echo first; while [ ! -e "$1" ]; do sleep 0.05; done; echo second'
    got: list[bytes] = []

    def sink(block: bytes) -> None:
        got.append(block)
        file.touch()

    transport.run(("sh", "-c", script, "sh", str(file)), stdout=sink, idle_timeout=SOON)
    assert b"".join(got) == b"first\nsecond\n"


@pytest.mark.parametrize("error", [ValueError("no"), OSError("disk full"), EOFError("odd"), KeyboardInterrupt()])
def test_what_a_sink_raises_ends_the_command_and_is_raised_on(
    transport: Transport, tmp_path: Path, error: BaseException
) -> None:
    argv, file = family(tmp_path)

    def sink(block: bytes) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        transport.run(argv, stdout=sink, idle_timeout=IDLE)
    assert caught.value is error
    assert gone_soon(*pids(file))
    assert transport.run(("echo", "next"), idle_timeout=IDLE).stdout == b"next\n"


def test_what_stdin_raises_ends_the_command_and_is_raised_on(transport: Transport) -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise OSError("the share went away")

    with pytest.raises(OSError, match="the share went away"):
        transport.run(("cat",), stdin=Broken(), idle_timeout=IDLE)
    assert transport.run(("echo", "next"), idle_timeout=IDLE).stdout == b"next\n"


def test_a_cancelled_build_starts_nothing(transport: Transport, tmp_path: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        transport.run(("touch", str(tmp_path / "trace")), idle_timeout=IDLE, cancel=cancel)
    assert not (tmp_path / "trace").exists()


def test_cancel_ends_the_whole_process_group(transport: Transport, tmp_path: Path) -> None:
    argv, file = family(tmp_path)
    cancel = threading.Event()
    with pytest.raises(Cancelled):
        transport.run(argv, stdout=lambda block: cancel.set(), idle_timeout=IDLE, cancel=cancel)
    assert gone_soon(*pids(file))
    assert transport.run(("echo", "next"), idle_timeout=IDLE).stdout == b"next\n"


def test_cancel_ends_what_refuses_the_polite_signal(transport: Transport, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    script = 'trap "" TERM; echo $$ > "$1"; echo started; while :; do sleep 0.1; done'
    cancel = threading.Event()
    with pytest.raises(Cancelled):
        transport.run(
            ("sh", "-c", script, "sh", str(file)),
            stdout=lambda block: cancel.set(),
            idle_timeout=IDLE,
            cancel=cancel,
        )
    assert gone_soon(*pids(file))


@pytest.mark.parametrize("after", [0.001, 0.005, 0.01, 0.02, 0.04])
def test_cancel_at_an_early_moment_leaves_nothing_running(transport: Transport, after: float) -> None:
    mark = f"{300 + after}"
    cancel = threading.Event()
    threading.Timer(after, cancel.set).start()
    with pytest.raises(Cancelled):
        transport.run(("sleep", mark), idle_timeout=IDLE, cancel=cancel)
    deadline = time.monotonic() + IDLE
    while f"sleep {mark}" in subprocess.run(["ps", "-A", "-o", "args="], capture_output=True, text=True).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_several_threads_may_run_commands_at_once(transport: Transport, payload: bytes) -> None:
    def echo(number: int) -> bool:
        data = payload[number * MB : (number + 4) * MB]
        return transport.run(("cat",), stdin=data, idle_timeout=IDLE).stdout == data

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(echo, range(12)))


def test_cancel_is_heard_while_input_is_fed(transport: Transport, payload: bytes) -> None:
    """The command never reads: the feeding stands still with every buffer full."""
    cancel = threading.Event()
    timer = threading.Timer(0.5, cancel.set)
    timer.start()
    with pytest.raises(Cancelled):
        transport.run(("sleep", "300"), stdin=io.BytesIO(payload), idle_timeout=IDLE, cancel=cancel)
    assert transport.run(("echo", "next"), idle_timeout=IDLE).stdout == b"next\n"


@pytest.mark.parametrize("stdin", [b"", b"x" * 8 * MB], ids=["idle", "full"])
def test_silence_is_an_error_and_the_next_command_works(transport: Transport, stdin: bytes) -> None:
    with pytest.raises(DeviceUnreachable, match="silence"):
        transport.run(("sleep", "300"), stdin=stdin, idle_timeout=0.5)
    assert transport.run(("echo", "next"), idle_timeout=IDLE).stdout == b"next\n"


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_byte_now_and_then_is_no_silence(transport: Transport, stream: str) -> None:
    script = f"for i in 1 2 3 4 5 6; do echo $i >&{stream}; sleep 0.8; done"
    assert transport.run(("sh", "-c", script), idle_timeout=4.0).status == 0


def test_a_slow_sink_is_not_the_peers_silence(transport: Transport) -> None:
    got = []

    def sink(block: bytes) -> None:
        got.append(block)
        time.sleep(3.2)

    finished = transport.run(("sh", "-c", "echo a; sleep 3; echo b"), stdout=sink, idle_timeout=2.5)
    assert (finished.status, b"".join(got)) == (0, b"a\nb\n")


def test_output_that_a_child_still_writes_is_waited_for(transport: Transport) -> None:
    finished = transport.run(("sh", "-c", "(sleep 0.5; echo late) & echo early"), idle_timeout=IDLE)
    assert finished.stdout == b"early\nlate\n"


def test_a_detached_child_is_not_waited_for(transport: Transport, tmp_path: Path) -> None:
    """How jobs are started: a session of its own, no stream of ours."""
    code = (
        "import subprocess, sys; n = subprocess.DEVNULL;"
        "p = subprocess.Popen(['sleep', '300'], stdin=n, stdout=n, stderr=n, start_new_session=True); print(p.pid)"
    )
    finished = transport.run((sys.executable, "-c", code), idle_timeout=SOON)
    detached = int(finished.stdout)
    try:
        assert alive(detached)
        transport.close()
        assert alive(detached)
    finally:
        subprocess.run(["kill", "-9", str(detached)])


def test_closing_twice_is_fine_and_a_closed_transport_opens_again(transport: Transport) -> None:
    transport.close()
    transport.close()
    assert transport.run(("echo", "again"), idle_timeout=IDLE).stdout == b"again\n"
