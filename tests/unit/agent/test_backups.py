"""The former files that an install keeps: one a name and content, and never one that is active already."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from buildlib.device_scripts.agent import backups, install, journal, receive, rollback
from buildlib.device_scripts.agent import places as agent_places
from buildlib.device_scripts.agent.main import Request
from buildlib.device_scripts.agent.places import Places
from buildlib.device_scripts.agent.wire import Refusal
from tests.unit.agent.test_hashes import places


@pytest.fixture
def device(tmp_path: Path) -> Places:
    """Offroad, with nothing installed."""
    device = places(tmp_path)
    for folder in (device.models, device.params):
        Path(folder).mkdir(parents=True)
    Path(device.params, "IsOnroad").write_text("0")
    return device


def put(device: Places, data: bytes, name: str = "m.pkl") -> None:
    Path(device.models, name).write_bytes(data)


def install_(device: Places, data: bytes, name: str = "m.pkl", **more: Any) -> dict[str, Any]:
    put(device, data, "m.recompiled.pkl")
    source = device.device(str(Path(device.models, "m.recompiled.pkl")))
    args = {"name": name, "source": source, "sha256": hashlib.sha256(data).hexdigest(), **more}
    return install.do_install(Request(args, device))


def kept(device: Places, name: str | None = None) -> list[bytes]:
    return [Path(device.state, "backups", one["file"]).read_bytes() for one in backups.backups(device, name)]


def roll_back(device: Places, **more: Any) -> dict[str, Any]:
    return rollback.do_rollback(Request({"name": "m.pkl", **more}, device))


def test_each_name_has_a_backup_of_its_own_though_the_bytes_are_the_same(device: Places) -> None:
    for name in ("m.pkl", "n.pkl"):
        put(device, b"old", name)
        install_(device, b"new", name)
    assert kept(device, "m.pkl") == kept(device, "n.pkl") == [b"old"]


def test_bytes_that_are_backed_up_already_are_not_copied_twice_and_are_the_newest(device: Places) -> None:
    for data in (b"a", b"b", b"c"):
        install_(device, data)
    put(device, b"a")
    install_(device, b"d")
    assert kept(device) == [b"b", b"a"]


def test_what_is_active_already_is_no_former_file(device: Places) -> None:
    put(device, b"old")
    install_(device, b"new")
    put(device, b"old")
    with pytest.raises(Refusal, match="no backup verifies"):
        roll_back(device)
    assert kept(device) == [b"old"]


def test_the_last_backup_is_never_pruned(device: Places) -> None:
    for data in (b"a", b"b", b"c"):
        install_(device, data, keep=0)
    assert kept(device) == [b"b"]


def test_a_backup_is_used_up(device: Places) -> None:
    put(device, b"old")
    install_(device, b"new")
    assert roll_back(device)["backup"]
    assert kept(device) == []
    assert not [path for path in Path(device.state, "backups").iterdir() if path.suffix != ".json"]


def test_a_held_install_whose_place_somebody_else_has_taken_is_let_go(device: Places) -> None:
    put(device, b"old")
    install_(device, b"new", hold=0)
    put(device, b"theirs")
    (held,) = journal.everything(device)
    assert journal.undo(device, held) == []
    assert Path(device.models, "m.pkl").read_bytes() == b"theirs"
    assert journal.everything(device) == []


@pytest.mark.parametrize("op", ["install", "backup", "rollback", "upload"])
def test_what_does_not_fit_is_refused_before_its_first_byte(
    device: Places, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    put(device, b"old")
    if op == "rollback":
        install_(device, b"new")
    folder = device.state if op == "backup" else device.sources if op == "upload" else device.models
    spare = agent_places.SPARE_BYTES
    full = {True: spare + 2, False: spare + 3}
    monkeypatch.setattr(agent_places, "free_bytes", lambda path: full[path == folder])
    before = {path: path.read_bytes() for path in Path(device.root).rglob("*") if path.is_file()}
    upload = {"path": "/data/media/0/x", "size": 3, "sha256": "0" * 64}
    acts = {
        "install": lambda: install_(device, b"new"),
        "backup": lambda: install_(device, b"new"),
        "rollback": lambda: roll_back(device),
        "upload": lambda: receive.do_receive_begin(Request(upload, device)),
    }
    with pytest.raises(Refusal, match="not enough free space"):
        acts[op]()
    after = {path: path.read_bytes() for path in Path(device.root).rglob("*") if path.is_file()}
    ours = ("lock", "m.recompiled.pkl")
    assert {path: data for path, data in after.items() if path.name not in ours} == {
        path: data for path, data in before.items() if path.name not in ours
    }
    monkeypatch.setattr(agent_places, "free_bytes", lambda path: spare + 3)
    acts[op]()


def test_only_the_file_that_was_meant_is_rolled_back(device: Places) -> None:
    put(device, b"old")
    install_(device, b"new")
    for remove in (False, True):
        with pytest.raises(Refusal, match="another file is active"):
            roll_back(device, expect="0" * 64, remove=remove)
    assert Path(device.models, "m.pkl").read_bytes() == b"new"
    assert roll_back(device, expect=hashlib.sha256(b"new").hexdigest())["sha256"] == hashlib.sha256(b"old").hexdigest()
