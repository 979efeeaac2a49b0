from __future__ import annotations

import os
import subprocess
import sys

import pytest

from buildlib.device_scripts.agent import processes
from buildlib.device_scripts.agent.processes import Process, alive, runs_model, start_time
from tests.support.benches import until


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("modeld", ["./modeld"]),
        ("iqmodeld", []),
        ("python", ["selfdrive.modeld.modeld"]),
        ("iqpilot.selfdri", ["iqpilot.selfdrive.iqmodeld.daemon"]),
        ("python3", ["/usr/local/venv/bin/python3", "/data/openpilot/iqpilot/selfdrive/iqmodeld/daemon.py"]),
        ("python", ["python", "-u", "/data/open pilot/selfdrive/modeld/modeld.py"]),
        ("python", ["python3.12", "-m", "iqpilot.selfdrive.iqmodeld.daemon"]),
        ("x", ["/data/openpilot/selfdrive/modeld/modeld"]),
    ],
)
def test_a_model_process_is_known_by_its_name_title_or_script(name: str, argv: list[str]):
    assert runs_model(Process(1, 0, "S", name, argv))


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("python", ["python", "/data/openpilot/iqpilot/selfdrive/iqmodeld/tools/compile_supercombo.py", "--onnx"]),
        ("python", ["python", "/x/iqmodeld/tools/force_onroad_iqmodeld_test.py"]),
        ("vim", ["vim", "/data/openpilot/selfdrive/modeld/modeld.py"]),
        ("python", ["selfdrive.ui.ui"]),
        ("kworker/0:1", []),
        ("python", ["python", "-c", "import modeld"]),
        ("sudo", ["sudo", "-n", "env", "-i", "python", "iqmodeld/tools/compile_supercombo.py"]),
    ],
)
def test_a_compile_an_editor_or_a_kernel_thread_is_none(name: str, argv: list[str]):
    assert not runs_model(Process(1, 0, "S", name, argv))


def test_a_process_is_alive_until_it_is_a_zombie():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = start_time(child.pid)
    assert alive(child.pid, started)
    assert not alive(child.pid, "another start")
    child.kill()
    # Not reaped: the kernel still lists it.
    until(lambda: not alive(child.pid, started))
    assert os.path.exists(f"/proc/{child.pid}")
    child.communicate()


@pytest.mark.parametrize("pid", [None, 0, -1, "1"])
def test_what_is_no_pid_is_not_alive(pid: object):
    assert not alive(pid, "1")


def test_without_proc_ps_tells_the_same(monkeypatch: pytest.MonkeyPatch):
    child = subprocess.Popen([sys.executable, "-c", "input()", "selfdrive"], stdin=subprocess.PIPE)
    try:
        monkeypatch.setattr(processes, "_LINUX", False)
        started = start_time(child.pid)
        assert alive(child.pid, started)
        found = {process.pid: process for process in processes.all_processes()}
        assert found[child.pid].parent == os.getpid()
        child.kill()
        until(lambda: not alive(child.pid, started))
    finally:
        child.communicate()
