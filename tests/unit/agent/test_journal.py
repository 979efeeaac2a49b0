"""What was changed for a test comes back, all of it that can, whatever keeps a part of it from coming back."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from buildlib.device_scripts.agent import journal, params, power
from buildlib.device_scripts.agent.places import Places
from buildlib.device_scripts.agent.processes import boot_id
from buildlib.device_scripts.agent.recovery import recover
from buildlib.device_scripts.agent.wire import Refusal
from tests.unit.agent.test_hashes import places

FIRST, SECOND = "ModelManager_DownloadIndex", "ModelManager_DownloadRef"
BUNDLE = "ModelManager_ActiveBundle"


@pytest.fixture
def device(tmp_path: Path) -> Places:
    """Three parameters, changed for a test, and a journal of them."""
    device = places(tmp_path)
    os.makedirs(device.params, exist_ok=True)
    for key in (FIRST, SECOND, BUNDLE):
        Path(device.params, key).write_text("before")
    Path(device.params, "IsOnroad").write_text("0")
    return device


def changed(device: Places) -> dict[str, object]:
    entry = journal.begin(device, "a test", hold=0)
    for key in (FIRST, SECOND, BUNDLE):
        journal.add(device, entry, params.undo_of(device, key))
        params.write(device, key, b"test")
    return entry


def values(device: Places) -> list[str]:
    return [Path(device.params, key).read_text() for key in (FIRST, SECOND, BUNDLE)]


def test_all_of_it_comes_back_and_the_journal_is_gone(device: Places) -> None:
    assert len(journal.undo(device, changed(device))) == 3
    assert values(device) == ["before"] * 3
    assert journal.everything(device) == []


def test_what_cannot_come_back_keeps_nothing_else_from_it(device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = changed(device)
    write = params.write

    def full(device: Places, key: str, value: bytes | None) -> None:
        if key == SECOND:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(device, key, value)

    monkeypatch.setattr(params, "write", full)
    with pytest.raises(OSError, match="No space"):
        journal.undo(device, entry)
    assert values(device) == ["before", "test", "before"]
    monkeypatch.undo()
    (left,) = journal.everything(device)
    assert [step["key"] for step in left["steps"]] == [SECOND]
    journal.undo(device, left)
    assert values(device) == ["before"] * 3


def test_on_a_full_disk_it_comes_back_although_nothing_can_be_struck_off(
    device: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = changed(device)

    def full(path: str, value: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journal, "write_json", full)
    journal.undo(device, entry)
    assert values(device) == ["before"] * 3
    assert journal.everything(device) == []


def test_a_car_that_is_switched_on_in_the_middle_stops_it(device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = changed(device)
    write = params.write

    def onroad(device: Places, key: str, value: bytes | None) -> None:
        if key == SECOND:
            raise Refusal("rail", "the device is onroad")
        write(device, key, value)

    monkeypatch.setattr(params, "write", onroad)
    with pytest.raises(Refusal, match="onroad"):
        journal.undo(device, entry)
    assert values(device) == ["test", "test", "before"]
    (left,) = journal.everything(device)
    assert [step["key"] for step in left["steps"]] == [FIRST, SECOND]


@pytest.mark.parametrize("room", [0, 2])
def test_a_parameter_is_written_whole_or_not_at_all(device: Places, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    left = [room]
    write = os.write

    def filling(handle: int, data: bytes) -> int:
        part = bytes(data)[: left[0]]
        if not part:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= len(part)
        return write(handle, part)

    monkeypatch.setattr(os, "write", filling)
    with pytest.raises(OSError, match="No space"):
        params.write(device, FIRST, b"a value")
    assert values(device) == ["before"] * 3
    assert sorted(os.listdir(device.params)) == sorted([FIRST, SECOND, BUNDLE, "IsOnroad"])


def test_a_write_that_takes_a_part_is_gone_on_with(device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, bytes(data)[:3]))
    params.write(device, FIRST, b"a longer value")
    assert Path(device.params, FIRST).read_bytes() == b"a longer value"


def waits_for(path: str, act: Callable[[], object]) -> bool:
    """Holds the lock file while something acts: does that wait for it, and is it done afterwards?"""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    done = threading.Event()
    thread = threading.Thread(target=lambda: (act(), done.set()))
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        thread.start()
        waited = not done.wait(0.3)
    thread.join(20)
    return waited and done.is_set()


def test_a_parameter_is_written_under_the_lock_that_the_devices_own_software_takes(device: Places) -> None:
    assert waits_for(os.path.join(os.path.dirname(device.params), ".lock"), lambda: params.write(device, FIRST, b"1"))
    assert values(device)[0] == "1"


def test_two_commands_do_not_take_the_same_change_back_at_once(device: Places) -> None:
    changed(device)
    assert waits_for(os.path.join(device.state, "recovery.lock"), lambda: recover(device))
    assert values(device) == ["before"] * 3


def test_what_killed_writers_left_beside_their_files_is_removed_and_what_living_ones_write_is_not(
    device: Places,
) -> None:
    changed(device)
    gone = subprocess.Popen(["true"])
    gone.wait()
    for folder in ("", "journal", "jobs/abc"):
        for pid in (gone.pid, os.getpid()):
            Path(device.state_dir(*filter(None, [folder])), f"file.json.{pid}.tmp").touch()
    Path(device.params, f".tmp_{FIRST}_{gone.pid}").touch()
    Path(device.params, ".tmp_value_Xy12ab").touch()
    recover(device)
    torn = list(Path(device.state).rglob("*.tmp"))
    assert {path.name for path in torn} == {f"file.json.{os.getpid()}.tmp"}
    assert len(torn) == 3
    assert [path.name for path in Path(device.params).glob(".tmp*")] == [".tmp_value_Xy12ab"]


def test_the_last_change_is_taken_back_first(device: Places) -> None:
    changed(device)
    entry = journal.begin(device, "a later test", hold=0)
    journal.add(device, entry, params.undo_of(device, FIRST))
    params.write(device, FIRST, b"later")
    recover(device)
    assert values(device) == ["before"] * 3


@pytest.mark.parametrize(
    ("entry", "due"),
    [
        ({"job": "a"}, False),
        ({"job": "b"}, True),
        ({"job": "b", "until": 2e9}, True),
        ({"until": None}, True),
        ({"until": 0.0}, True),
        ({"until": 2e9}, False),
        ({"until": 2e9, "boot": "another"}, True),
    ],
)
def test_a_change_is_taken_back_when_nobody_works_on_it_any_more(
    device: Places, entry: dict[str, object], due: bool
) -> None:
    """Its job has ended, its time is over, or the device was started anew."""
    assert journal.due(device, {"boot": boot_id(device), **entry}, {"a"}) is due


CORE, GOVERNOR = power.FULL_SPEED[0][0], power.FULL_SPEED[-1][0]


@pytest.fixture
def phone(device: Places) -> Places:
    for path, text in ((CORE, "0"), (GOVERNOR, "performance")):
        os.makedirs(os.path.dirname(device.real(path)))
        Path(device.real(path)).write_text(text)
    return device


def test_power_saving_that_is_off_already_is_not_switched_on_afterwards(phone: Places) -> None:
    entry = journal.begin(phone, "a test", hold=0)
    power.off(phone, entry)
    assert [step["path"] for step in entry["steps"]] == [CORE]
    assert Path(phone.real(CORE)).read_text() == "1"
    journal.undo(phone, entry)
    assert Path(phone.real(CORE)).read_text() == "0"
    assert Path(phone.real(GOVERNOR)).read_text() == "performance"


@pytest.mark.parametrize("why", ["the car was on", "the device was started anew"])
def test_power_saving_that_is_the_cars_again_is_left_as_it_is(phone: Places, why: str) -> None:
    entry = journal.begin(phone, "a test", hold=0)
    power.off(phone, entry)
    if why == "the device was started anew":
        entry["boot"] = "another"
    assert journal.undo(phone, entry, onroad=why == "the car was on") == []
    assert Path(phone.real(CORE)).read_text() == "1"


def test_no_file_but_power_savings_own_is_written_whatever_a_journal_says(phone: Places) -> None:
    entry = journal.begin(phone, "a test", hold=0)
    path = phone.device(os.path.join(phone.params, "IsOnroad"))
    journal.add(phone, entry, {"undo": "power", "path": path, "old": "1"})
    with pytest.raises(Refusal, match="not a power saving file"):
        journal.undo(phone, entry)
    assert Path(phone.params, "IsOnroad").read_text() == "0"
