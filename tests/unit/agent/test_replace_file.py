"""The moment in which an installed file takes its place: the car is asked right before it, and so are the bytes."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from buildlib.device_scripts.agent import active, backups, install, journal, params, receive, rollback, small
from buildlib.device_scripts.agent.active import replace_file
from buildlib.device_scripts.agent.hashes import signature
from buildlib.device_scripts.agent.main import Request
from buildlib.device_scripts.agent.places import Places, write_json
from buildlib.device_scripts.agent.wire import Refusal
from tests.unit.agent.test_hashes import places

OPS = {"install": install.do_install, "rollback": rollback.do_rollback}
SHA256 = hashlib.sha256(b"new").hexdigest()


@pytest.fixture
def device(tmp_path: Path) -> Places:
    """A device that is offroad, with a file `old` as models/m.pkl and `new` beside it, to take its place."""
    device = places(tmp_path)
    for folder in (device.models, device.params):
        os.makedirs(folder, exist_ok=True)
    Path(device.params, "IsOnroad").write_text("0")
    Path(device.models, "m.pkl").write_bytes(b"old")
    Path(device.models, "new").write_bytes(b"new")
    return device


def replace(device: Places) -> None:
    active = os.path.join(device.models, "m.pkl")
    seen = signature(os.stat(active)) if os.path.exists(active) else None
    replace_file(device, os.path.join(device.models, "new"), active, SHA256, seen)


def models(device: Places) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(device.models).iterdir()}


def test_offroad_the_file_is_replaced(device: Places):
    replace(device)
    assert models(device) == {"m.pkl": b"new", "new": b"new"}


def test_a_car_that_is_switched_on_during_the_copy_keeps_its_file(device: Places, monkeypatch: pytest.MonkeyPatch):
    flush = os.fsync

    def switched_on(handle: int) -> None:
        Path(device.params, "IsOnroad").write_text("1")
        flush(handle)

    monkeypatch.setattr(os, "fsync", switched_on)
    with pytest.raises(Refusal, match="onroad"):
        replace(device)
    assert models(device) == {"m.pkl": b"old", "new": b"new"}


def test_a_source_that_is_written_to_after_its_check_never_takes_the_place(device: Places):
    Path(device.models, "new").write_bytes(b"something else")
    with pytest.raises(Refusal, match="changed while it was copied"):
        replace(device)
    assert models(device)["m.pkl"] == b"old"
    assert len(models(device)) == 2


def during_the_copy(monkeypatch: pytest.MonkeyPatch, device: Places, act: Callable[[Path], object]) -> None:
    """Lets somebody else do something with the active file while a copy to the models is flushed."""
    flush = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (act(Path(device.models, "m.pkl")), flush(handle))[1])


def put(path: Path) -> None:
    path.with_name("theirs").write_bytes(b"theirs")
    path.with_name("theirs").replace(path)


def test_what_somebody_else_puts_there_during_the_copy_is_not_lost(device: Places, monkeypatch: pytest.MonkeyPatch):
    during_the_copy(monkeypatch, device, put)
    with pytest.raises(Refusal, match="somebody else"):
        replace(device)
    assert models(device) == {"m.pkl": b"theirs", "new": b"new"}


def test_what_somebody_else_puts_where_nothing_was_is_not_lost(device: Places, monkeypatch: pytest.MonkeyPatch):
    Path(device.models, "m.pkl").unlink()
    during_the_copy(monkeypatch, device, put)
    with pytest.raises(Refusal, match="somebody else"):
        replace(device)
    assert models(device) == {"m.pkl": b"theirs", "new": b"new"}


def test_what_somebody_else_removes_during_the_copy_does_not_come_back(device: Places, monkeypatch: pytest.MonkeyPatch):
    during_the_copy(monkeypatch, device, lambda path: path.unlink(missing_ok=True))
    with pytest.raises(Refusal, match="somebody else"):
        replace(device)
    assert models(device) == {"new": b"new"}


@pytest.mark.parametrize("op", OPS)
def test_neither_install_nor_rollback_takes_the_place_of_what_came_meanwhile(
    device: Places, monkeypatch: pytest.MonkeyPatch, op: str
):
    args = {"name": "m.pkl", "source": "/data/media/0/models/new", "sha256": SHA256}
    source = device.device(os.path.join(device.models, "new"))
    install.do_install(Request({**args, "source": source}, device))
    if op == "install":
        put(Path(device.models, "m.pkl"))
    copy = active.copy_file

    def copied(source: str, target: str, *rest: Any) -> None:
        if target.startswith(device.models):
            put(Path(target))
        copy(source, target, *rest)

    monkeypatch.setattr(active, "copy_file", copied)
    with pytest.raises(Refusal, match="somebody else"):
        OPS[op](Request({**args, "source": source}, device))
    assert models(device) == {"m.pkl": b"theirs", "new": b"new"}


def damaged(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """A disk that keeps other bytes than were written, in one folder."""
    copy = active.copy_file

    def copied(source: str, target: str, *rest: Any) -> None:
        copy(source, target, *rest)
        if target.startswith(folder):
            Path(target).write_bytes(b"damaged")

    for module in (active, backups):
        monkeypatch.setattr(module, "copy_file", copied)


@pytest.mark.parametrize("op", OPS)
def test_what_was_put_in_its_place_is_read_back(device: Places, monkeypatch: pytest.MonkeyPatch, op: str):
    args = {"name": "m.pkl", "source": device.device(os.path.join(device.models, "new")), "sha256": SHA256}
    if op == "rollback":
        install.do_install(Request(args, device))
    damaged(monkeypatch, device.models)
    with pytest.raises(Refusal, match="does not read back"):
        OPS[op](Request(args, device))
    assert len(backups.backups(device)) == 1, "the way back is still there"


def test_a_backup_that_does_not_read_back_is_none_and_nothing_is_installed(
    device: Places, monkeypatch: pytest.MonkeyPatch
):
    damaged(monkeypatch, os.path.join(device.state, "backups"))
    source = device.device(os.path.join(device.models, "new"))
    with pytest.raises(Refusal, match="backup does not read back"):
        install.do_install(Request({"name": "m.pkl", "source": source, "sha256": SHA256}, device))
    assert models(device)["m.pkl"] == b"old"
    assert backups.backups(device) == []


def test_a_backup_that_was_damaged_since_is_no_reason_to_make_none(device: Places):
    source = device.device(os.path.join(device.models, "new"))
    request = {"name": "m.pkl", "source": source, "sha256": SHA256}
    install.do_install(Request(request, device))
    (backup,) = backups.backups(device)
    Path(device.state, "backups", backup["file"]).write_bytes(b"damaged")
    Path(device.models, "m.pkl").write_bytes(b"old")
    install.do_install(Request(request, device))
    files = [Path(device.state, "backups", entry["file"]).read_bytes() for entry in backups.backups(device)]
    assert sorted(files) == [b"damaged", b"old"]


def test_the_way_back_is_written_down_before_anything_is_replaced(device: Places, monkeypatch: pytest.MonkeyPatch):
    """A kill in between must find the backup and, of a held install, the journal."""
    seen: list[tuple[int, list[Any]]] = []
    replace = install.replace_file

    def looked(*args: Any) -> None:
        entries = journal.everything(device)
        seen.append((len(backups.backups(device)), [entry["steps"] for entry in entries]))
        replace(*args)

    monkeypatch.setattr(install, "replace_file", looked)
    source = device.device(os.path.join(device.models, "new"))
    args = {"name": "m.pkl", "source": source, "sha256": SHA256, "hold": 600}
    install.do_install(Request(args, device))
    former = hashlib.sha256(b"old").hexdigest()
    assert seen == [(1, [[{"undo": "install", "name": "m.pkl", "sha256": SHA256, "former": former}]])]


def test_bytes_are_on_the_disk_before_they_get_their_name_and_the_name_after(
    device: Places, monkeypatch: pytest.MonkeyPatch
):
    """Else a power cut leaves an empty file under the name, or the former one although it was said to be done."""
    done: list[str] = []
    flush, rename = os.fsync, os.replace

    def flushed(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "bytes")
        flush(handle)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("name"), rename(*paths))[1])
    changes: dict[str, Callable[[], object]] = {
        "an installed file": lambda: replace(device),
        "a note": lambda: write_json(os.path.join(device.models, "note.json"), {}),
        "a parameter": lambda: params.write(device, "ModelManager_DownloadIndex", b"1"),
        "a parameter that is unset": lambda: params.write(device, "ModelManager_DownloadIndex", None),
        "an upload": lambda: receive.do_receive(
            Request(
                {"path": "/data/media/0/y", "size": 3, "sha256": SHA256, "finish": True}, device, io.BytesIO(b"new")
            )
        ),
        "small files": lambda: small.do_receive_small(
            Request({"files": [{"path": "/data/media/0/x", "sha256": SHA256, "text": "new"}]}, device)
        ),
    }
    for what, change in changes.items():
        done.clear()
        change()
        whole = ["bytes", "name", "folder"] if "unset" not in what else ["folder"]
        assert done[: len(whole)] == whole, what


def test_what_root_puts_there_belongs_to_whom_it_belonged_to(device: Places, monkeypatch: pytest.MonkeyPatch):
    """The car's software runs as another user, and could not replace or read what is root's."""
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda handle, uid, gid: given.append((uid, gid)))
    monkeypatch.setattr(os, "chown", lambda path, uid, gid: given.append((uid, gid)))
    like = os.stat_result((0o100640, 0, 0, 0, 1234, 5678, 0, 0, 0, 0))
    active.copy_file(os.path.join(device.models, "new"), os.path.join(device.models, "m.pkl"), like)
    assert given == [(1234, 5678)]
    assert os.stat(os.path.join(device.models, "m.pkl")).st_mode & 0o777 == 0o640
    params.write(device, "ModelManager_DownloadIndex", b"1")
    folder = os.stat(device.params)
    assert given[1:] == [(folder.st_uid, folder.st_gid)]
