"""A car that is switched on after the first look at it: each change asks once more, right before it."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from buildlib.device_scripts.agent import (
    active,
    install,
    journal,
    ledger,
    locks,
    params,
    receive,
    rollback,
    runner,
    selector,
    small,
    start,
    sweep,
)
from buildlib.device_scripts.agent.jobs import Job
from buildlib.device_scripts.agent.main import Request
from buildlib.device_scripts.agent.places import Places
from buildlib.device_scripts.agent.wire import Refusal
from tests.unit.agent.test_hashes import places

INDEX = "ModelManager_DownloadIndex"
ONNX = "/data/media/0/x.onnx"
MODELS = "/data/media/0/models"
CORE = "/sys/devices/system/cpu/cpu4/online"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write(device: Places, path: str, data: bytes) -> None:
    real = Path(device.real(path))
    real.parent.mkdir(parents=True, exist_ok=True)
    real.write_bytes(data)


@pytest.fixture
def device(tmp_path: Path) -> Places:
    """Offroad, with an installed file, its successor, a parameter, a sleeping core, and an upload for gc."""
    device = places(tmp_path)
    write(device, "/data/params/d/IsOnroad", b"0")
    write(device, f"/data/params/d/{INDEX}", b"7")
    write(device, f"{MODELS}/m.pkl", b"old")
    write(device, f"{MODELS}/m.recompiled.pkl", b"new")
    write(device, CORE, b"0")
    write(device, ONNX, b"source")
    ledger.add(device, {ONNX: {"size": 6, "sha256": sha(b"source")}})
    return device


def switched_on(device: Places) -> None:
    Path(device.params, "IsOnroad").write_text("1")


def after(monkeypatch: pytest.MonkeyPatch, module: object, name: str, device: Places) -> None:
    """Switches the car on when a function has done its work."""
    real = getattr(module, name)

    def then(*args: Any, **more: Any) -> Any:
        result = real(*args, **more)
        switched_on(device)
        return result

    monkeypatch.setattr(module, name, then)


def everything(device: Places) -> dict[str, bytes]:
    """All files but what the agent itself keeps open or remembers."""
    files = (path for path in Path(device.root).rglob("*") if path.is_file() and path.name not in ("lock", "IsOnroad"))
    return {str(path): path.read_bytes() for path in files}


INSTALL = {"source": f"{MODELS}/m.recompiled.pkl", "name": "m.pkl", "sha256": sha(b"new"), "hold": 600}
LOCKED: dict[str, tuple[Callable[[Request], object], dict[str, Any]]] = {
    "install": (install.do_install, INSTALL),
    "rollback": (rollback.do_rollback, {"name": "m.pkl", "remove": True}),
    "params_write": (params.do_params_write, {"values": {INDEX: "12"}, "hold": 600}),
    "gc": (sweep.do_gc, {"dry": False}),
    "job_start": (start.do_job_start, {"key": "a", "argv": ["true"], "env": {}}),
}


@pytest.mark.parametrize("name", LOCKED)
def test_while_one_waits_for_the_device(device: Places, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    act, args = LOCKED[name]
    after(monkeypatch, locks, "acquire", device)
    before = everything(device)
    with pytest.raises(Refusal, match="onroad"):
        act(Request(dict(args), device))
    assert everything(device) == before


def test_while_a_file_is_copied_that_is_to_be_installed(device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is there for its test either."""
    after(monkeypatch, active, "require_same", device)
    with pytest.raises(Refusal, match="onroad"):
        install.do_install(Request(dict(INSTALL), device))
    assert Path(device.models, "m.pkl").read_bytes() == b"old"
    assert journal.everything(device) == []


def test_while_the_file_is_looked_at_that_a_rollback_removes(device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    after(monkeypatch, active, "require_same", device)
    with pytest.raises(Refusal, match="onroad"):
        rollback.do_rollback(Request({"name": "m.pkl", "remove": True}, device))
    assert Path(device.models, "m.pkl").read_bytes() == b"old"


def test_while_a_file_is_copied_that_is_to_go_aside(device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    after(monkeypatch, selector, "copy_file", device)
    entry = journal.begin(device, "a test", hold=0)
    with pytest.raises(Refusal, match="onroad"):
        selector.prepare(Request({"aside": ["m.pkl"]}, device), entry)
    assert Path(device.models, "m.pkl").read_bytes() == b"old"


def test_while_the_inputs_of_a_job_are_hashed(device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds for an ONNX and a toolchain that nobody has hashed yet."""
    after(monkeypatch, runner, "_inputs", device)
    job = Job(device, "a")
    os.makedirs(job.dir)
    before = everything(device)
    args = {"key": "a", "argv": ["false"], "env": {}, "lock": 0, "power": True, "params": {INDEX: "12"}}
    with pytest.raises(Refusal, match="onroad"):
        runner._work(Request(args, device), job, {})
    assert everything(device) == before


def test_while_others_of_its_changes_are_taken_back(device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = journal.begin(device, "a test", hold=0)
    for key in (INDEX, "ModelManager_DownloadRef"):
        journal.add(device, entry, params.undo_of(device, key))
        params.write(device, key, b"test")
    after(monkeypatch, params, "write", device)
    with pytest.raises(Refusal, match="onroad"):
        journal.undo(device, entry)
    assert not Path(device.params, "ModelManager_DownloadRef").exists()
    assert Path(device.params, INDEX).read_bytes() == b"test"
    (left,) = journal.everything(device)
    assert [step["key"] for step in left["steps"]] == [INDEX]


def test_while_a_file_is_looked_at_that_was_not_there_before(device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = journal.begin(device, "a test", hold=0)
    step = {"undo": "aside", "name": "m.pkl", "former": None, "folder": device.state_dir("held", "x")}
    journal.add(device, entry, step)
    after(monkeypatch, selector, "look_at", device)
    with pytest.raises(Refusal, match="onroad"):
        journal.undo(device, entry)
    assert Path(device.models, "m.pkl").read_bytes() == b"old"
    assert len(journal.everything(device)) == 1


def upload(data: bytes, **more: Any) -> dict[str, Any]:
    return {"path": "/data/media/0/y.onnx", "size": len(data), "sha256": sha(data), "finish": True, **more}


class Slow(io.BytesIO):
    """A body that comes a byte at a time, a second each; the car is switched on before the third."""

    def __init__(self, data: bytes, device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(data)
        self.device, self.taken = device, 0
        monkeypatch.setattr(receive.time, "monotonic", lambda: float(self.taken))

    def read(self, size: int | None = -1, /) -> bytes:
        self.taken += 1
        if self.taken == 3:
            switched_on(self.device)
        return super().read(1)


def test_while_an_upload_comes_in(device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    body = Slow(b"a file of many bytes", device, monkeypatch)
    with pytest.raises(Refusal, match="onroad"):
        receive.do_receive(Request(upload(body.getvalue()), device, body))
    assert body.taken == 3
    assert not Path(device.real("/data/media/0/y.onnx")).exists()


def test_while_an_upload_is_hashed(device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    receive.do_receive(Request(upload(b"whole", start=0, end=2), device, io.BytesIO(b"wh")))
    after(monkeypatch, receive, "hash_file", device)
    with pytest.raises(Refusal, match="onroad"):
        receive.do_receive(Request(upload(b"whole", start=2, end=5), device, io.BytesIO(b"ole")))
    assert not Path(device.real("/data/media/0/y.onnx")).exists()


def test_while_small_files_are_written(device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    after(monkeypatch, small, "write_flushed", device)
    before = everything(device)
    file = {"path": "/data/supercombo-build/scripts/1/x.py", "sha256": sha(b"x"), "text": "x"}
    with pytest.raises(Refusal, match="onroad"):
        small.do_receive_small(Request({"files": [file]}, device))
    assert everything(device) == before


def test_before_a_job_begins_its_former_output_stays(device: Places) -> None:
    output = f"{MODELS}/m.recompiled.pkl"
    os.makedirs(Job(device, "a").dir)
    switched_on(device)
    args = {"key": "a", "argv": ["true"], "env": {}, "lock": 0, "output": output}
    assert runner.do_job_run(Request(args, device))["state"] == "onroad"
    assert Path(device.real(output)).read_bytes() == b"new"
