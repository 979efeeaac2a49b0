from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from buildlib.device_scripts.agent import processes
from buildlib.device_scripts.agent.processes import Process, alive, runs_model, start_time
from tests.support.benches import until
from tests.unit.agent.test_hashes import places


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


def test_only_living_model_processes_of_this_device_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    device, whole = places(tmp_path), places(tmp_path)
    whole.root = ""
    there = f"{tmp_path}/data/openpilot/selfdrive/modeld/modeld.py"
    listed = [
        Process(2000001, 1, "S", "python", ["python", there]),
        Process(2000002, 1, "Z", "python", ["python", there]),
        Process(2000003, 1, "X", "python", ["python", there]),
        Process(2000004, 1, "S", "python", ["python", "/data/openpilot/selfdrive/modeld/modeld.py"]),
        Process(2000005, 9, "S", "python", ["python", there]),
    ]
    monkeypatch.setattr(processes, "all_processes", lambda: listed)
    assert [one.pid for one in processes.model_processes(device)] == [2000001, 2000005]
    assert [one.pid for one in processes.model_processes(whole)] == [2000001, 2000004, 2000005]
    assert [one.pid for one in processes.model_processes(device, except_under=9)] == [2000001]


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
