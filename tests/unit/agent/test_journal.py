"""What was changed for a test comes back, all of it that can, whatever keeps a part of it from coming back."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from buildlib.device_scripts.agent import journal, params
from buildlib.device_scripts.agent.places import Places
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
