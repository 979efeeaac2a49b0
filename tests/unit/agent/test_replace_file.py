"""The moment in which an installed file takes its place: the car is asked right before it, and so are the bytes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from buildlib.device_scripts.agent.install import replace_file
from buildlib.device_scripts.agent.places import Places
from buildlib.device_scripts.agent.wire import Refusal
from tests.unit.agent.test_hashes import places

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
    replace_file(device, os.path.join(device.models, "new"), os.path.join(device.models, "m.pkl"), SHA256)


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
