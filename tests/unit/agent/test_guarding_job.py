"""A job that is over and waits for the word on what it was left with."""

from __future__ import annotations

from pathlib import Path

import pytest

from buildlib.device_scripts.agent import journal, runner
from buildlib.device_scripts.agent.places import Places
from tests.unit.agent.test_hashes import places


@pytest.fixture
def device(tmp_path: Path) -> Places:
    found = places(tmp_path)
    Path(found.params).mkdir(parents=True)
    (Path(found.params) / "IsOnroad").write_text("1")
    return found


def test_it_costs_a_car_that_drives_nearly_nothing(device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is over time then waits for hours, and each try may read a whole artifact."""
    entry = journal.begin(device, "install of m.pkl", hold=0)
    tries: list[Places] = []
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if sum(pauses) > 3600:
            journal.finish(device, entry)

    monkeypatch.setattr(runner, "recover", tries.append)
    monkeypatch.setattr(runner.time, "sleep", sleep)
    runner._guard(device, {entry["id"]})
    assert 0 < len(tries) < 500
