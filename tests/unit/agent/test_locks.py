"""The device's lock: one holder, known by name to whoever waits for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from buildlib.device_scripts.agent import locks
from buildlib.device_scripts.agent.wire import Refusal
from tests.unit.agent.test_hashes import places


def test_one_at_a_time_and_the_other_hears_for_whom_it_waits(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    device = places(tmp_path)
    assert locks.holder(device) is None
    held = locks.acquire(device, "ann@desk", "nopp compile with a long name")
    with pytest.raises(Refusal) as caught:
        locks.acquire(device, "bob@desk", "x", wait=0)
    assert caught.value.value["kind"] == "busy"
    assert "ann@desk, nopp compile" in caught.value.value["got"]
    assert "ann@desk" in capsys.readouterr().out
    with pytest.raises(Refusal) as caught:
        locks.acquire(device, "ann@desk", "x", wait=0)
    assert "this checkout's own" in caught.value.value["remedy"]
    os.close(held)
    assert locks.holder(device) is None
    again = locks.acquire(device, "b", "y")
    assert (locks.holder(device) or {}).get("owner") == "b"
    os.close(again)
