"""Disks that are full or read-only, peers that fall silent, servers that die: one line each, nothing half done."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from buildlib import errors
from buildlib.core.catalog import Timeouts
from buildlib.device.link import DeviceLink
from buildlib.device_scripts.agent.processes import descendants
from buildlib.transports.ssh import SshTransport
from tests.devices.comma import CommaDevice
from tests.devices.server import SSHD_MARKS
from tests.support.benches import OUTPUT, Bench, until

over_ssh = pytest.mark.parametrize("bench", [pytest.param("ssh", marks=SSHD_MARKS)], indirect=True)
here = pytest.mark.parametrize("bench", ["local"], indirect=True)
needs_root = pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounts a small disk: root only")


@contextlib.contextmanager
def disk(path: Path, size: str, options: str = "") -> Iterator[None]:
    path.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}{options}", "tmpfs", path], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no right to mount here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@needs_root
def test_an_upload_that_will_not_fit_is_refused_before_its_first_byte(bench: Bench, tmp_path: Path):
    with disk(bench.path("/data/media/0"), "80M"):
        source = tmp_path / "big"
        source.write_bytes(b"\0" * (20 << 20))
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        with pytest.raises(errors.DeviceError, match="not enough free space") as caught:
            bench.link.push(source, "/data/media/0/big.onnx", sha256=digest)
        assert "84 MB" in str(caught.value)
        assert "gc --device" in str(caught.value)
        assert list(bench.path("/data/media/0").iterdir()) == []


@needs_root
def test_an_install_that_will_not_fit_leaves_the_former_file(bench: Bench):
    sha256 = bench.write("/data/media/0/new.bin", b"n" * (20 << 20))
    with disk(bench.path("/data/media/0/models"), "80M"):
        bench.write("/data/media/0/models/m.pkl", b"old")
        with pytest.raises(errors.DeviceError, match="not enough free space"):
            bench.link.call("install", source="/data/media/0/new.bin", name="m.pkl", sha256=sha256)
        assert [path.name for path in bench.path("/data/media/0/models").iterdir()] == ["m.pkl"]
        assert bench.path("/data/media/0/models/m.pkl").read_bytes() == b"old"


@needs_root
def test_a_compile_that_fills_the_disk_fails_and_leaves_no_output(bench: Bench):
    with disk(bench.path("/data/media/0/models"), "2M"):
        bench.start(
            "a", "import sys;open(sys.argv[1],'wb').write(b'x'*(9<<20))", bench.link.real(OUTPUT), output=OUTPUT
        )
        log: list[bytes] = []
        assert bench.link.follow("a", on_log=lambda _, data: log.append(data))["state"] == "failed"
        assert b"No space left" in b"".join(log)
        assert list(bench.path("/data/media/0/models").iterdir()) == []


@needs_root
def test_a_read_only_models_directory_is_told_by_probe_and_install(bench: Bench):
    sha256 = bench.write("/data/media/0/new.bin", b"new")
    with disk(bench.path("/data/media/0/models"), "200M", ",ro"):
        said = bench.link.call("probe")["health"]["directories"]["/data/media/0/models"]
        assert said == "not writable: Read-only file system"
        with pytest.raises(errors.DeviceError, match="Read-only") as caught:
            bench.link.call("install", source="/data/media/0/new.bin", name="m.pkl", sha256=sha256)
        assert "dmesg" in str(caught.value)


def test_a_python_that_is_not_there_is_named(bench: Bench):
    link = DeviceLink(bench.connect(), bench.device, "/no/such/python")
    with pytest.raises(errors.DeviceError, match="/no/such/python"):
        link.call("probe")
    link.transport.close()


def test_a_stopped_agent_is_noticed_in_the_idle_time(bench: Bench):
    device = msgspec.structs.replace(bench.device, timeouts=Timeouts(idle=2))
    bench.start("a", "import time; time.sleep(60)")
    link = DeviceLink(bench.connect(), device)
    stopped: list[int] = []

    def stop(elapsed: float) -> None:
        # Its servers are children of these tests, the detached runner is nobody's child.
        for pid in descendants(os.getpid()):
            with contextlib.suppress(OSError):
                if b"from agent.main import main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGSTOP)
                    stopped.append(pid)

    with pytest.raises(errors.DeviceUnreachable):
        link.follow("a", on_tick=stop)
    assert stopped
    link.transport.close()
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_ending_the_build_ends_the_follower_and_the_job_can_still_be_ended(bench: Bench):
    cancel = threading.Event()
    bench.start("a", "import time; time.sleep(60)", "cancelled-job")
    link = DeviceLink(bench.connect(), bench.device, cancel=cancel)
    with pytest.raises(errors.Cancelled):
        link.follow("a", on_tick=lambda _: cancel.set())
    assert bench.pids("cancelled-job")
    assert link.cancel_job("a")["state"] == "cancelled"
    assert bench.pids("cancelled-job") == []
    link.transport.close()


@over_ssh
def test_a_followed_job_is_followed_on_over_killed_connections(bench: Bench, comma: CommaDevice):
    code = "import time,sys\nfor i in range(40):\n print('line',i,flush=True)\n time.sleep(.05)"
    bench.start("a", code)
    log = bytearray()
    cuts = []

    def take(offset: int, data: bytes) -> None:
        assert offset == len(log)
        log.extend(data)
        if len(cuts) < 3 and len(log) > 60 * (len(cuts) + 1):
            cuts.append(len(log))
            comma.server.kill_connections()

    status = bench.link.follow("a", on_log=take)
    assert status["state"] == "ok"
    assert len(cuts) == 3
    assert bytes(log) == b"".join(b"line %d\n" % i for i in range(40))


@over_ssh
def test_sudo_that_wants_a_password_is_one_line_with_its_remedy(bench: Bench, comma: CommaDevice):
    refuses = comma.root.parent / "refuses"
    refuses.mkdir(exist_ok=True)
    (refuses / "sudo").write_text('#!/bin/sh\necho "sudo: a password is required" >&2\nexit 1\n')
    (refuses / "sudo").chmod(0o755)

    class Refused(SshTransport):
        def run(self, argv: tuple[str, ...], **more):  # type: ignore[no-untyped-def]
            return super().run((str(refuses / "sudo"), *argv[1:]), **more)

    link = DeviceLink(Refused(bench.device, home=comma.home), bench.device)
    with pytest.raises(errors.DeviceError, match="sudo") as caught:
        link.call("probe")
    assert "sudo: false" in str(caught.value)
    link.transport.close()


@here
@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace here")
def test_a_kill_at_any_moment_of_an_install_leaves_a_whole_file(bench: Bench, tmp_path: Path):
    """The agent is killed after so many bytes of its own writing; the active file is the old one or the new one."""
    old, new = b"o" * 3_000_000, b"n" * 3_000_000
    sha256 = bench.write("/data/media/0/new.bin", new)
    bench.write("/data/media/0/models/m.pkl", old)
    from buildlib.device.bundle import BOOT, framed_sources

    request = {"op": "install", "paths": bench.link.paths, "source": "/data/media/0/new.bin", "name": "m.pkl"}
    head = framed_sources() + json.dumps({**request, "sha256": sha256, "owner": "x", "hold": 600}).encode() + b"\n"
    agent = [sys.executable, "-I", "-S", "-B", "-c", BOOT]
    fired = 0
    for call in ("fsync", "rename", "renameat", "renameat2"):
        for when in range(1, 12):
            bench.write("/data/media/0/models/m.pkl", old)
            done = subprocess.run(
                [
                    "strace",
                    "-f",
                    "-qq",
                    "-e",
                    f"trace={call}",
                    "-e",
                    f"inject={call}:signal=SIGKILL:when={when}",
                    *agent,
                ],
                input=head,
                capture_output=True,
                check=False,
            )
            active = bench.path("/data/media/0/models/m.pkl").read_bytes()
            assert active in (old, new)
            if done.returncode == 0:
                break
            fired += 1
            bench.write("/proc/sys/kernel/random/boot_id", b"%d" % fired)
            bench.link.call("probe")
            assert bench.path("/data/media/0/models/m.pkl").read_bytes() == old, (call, when)
            until(lambda: bench.link.call("job_list")["lock"] is None)
    assert fired >= 6
