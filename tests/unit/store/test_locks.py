from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from buildlib.errors import BuildLocked, StoreError
from buildlib.store import locks

HOLD = """
import sys, time
from pathlib import Path
from buildlib.store import locks
with locks.exclusive(Path(sys.argv[1]), "doit publish:nopp", wait=0):
    print("held", flush=True)
    time.sleep(600)
"""


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_holder_is_told_who_the_first_is_and_gives_up_in_time(tmp_path: Path) -> None:
    told: list[str] = []
    first = holder(tmp_path / "lock")
    try:
        with (
            pytest.raises(BuildLocked, match=r"doit publish:nopp \(pid \d+"),
            locks.exclusive(tmp_path / "lock", "doit", wait=0.3, on_wait=told.append),
        ):
            pass
    finally:
        first.kill()
        first.wait()
    assert len(told) == 1
    assert f"pid {first.pid}" in told[0]


def test_the_lock_of_a_killed_holder_is_free_and_says_that_it_died(tmp_path: Path) -> None:
    first = holder(tmp_path / "lock")
    first.kill()
    first.wait()
    with locks.exclusive(tmp_path / "lock", "doit", wait=5) as died:
        assert died
    with locks.exclusive(tmp_path / "lock", "doit", wait=0) as died:
        assert not died


def test_who_waits_goes_on_when_the_holder_ends(tmp_path: Path) -> None:
    got = threading.Event()

    def second() -> None:
        with locks.exclusive(tmp_path / "lock", "second", wait=20):
            got.set()

    with locks.exclusive(tmp_path / "lock", "first", wait=0):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.3)
        assert not got.is_set()
    thread.join(20)
    assert got.is_set()


def test_waiting_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    first = holder(tmp_path / "lock")
    try:
        with pytest.raises(BuildLocked), locks.exclusive(tmp_path / "lock", "doit", wait=600, stop=stop.is_set):
            pass
    finally:
        first.kill()
        first.wait()


def test_a_place_that_cannot_be_written_is_an_error_of_the_build(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"), locks.exclusive(tmp_path / "file/lock", "doit", wait=0):
        pass


def test_a_full_disk_is_told_and_the_lock_is_free_again(tmp_path: Path) -> None:
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from buildlib.errors import StoreError\n"
        "from buildlib.store import locks\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "try:\n"
        "    with locks.exclusive(Path(sys.argv[1]), 'doit', wait=0):\n"
        "        print('held')\n"
        "except StoreError as error:\n"
        "    print(error.what)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "lock")], capture_output=True, text=True)
    assert done.stdout == "cannot be written: File too large\n", done.stderr
    with locks.exclusive(tmp_path / "lock", "doit", wait=0) as died:
        assert not died
