"""Only a device that says "0", and runs no model, may be changed; and of its parameters the selector's alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from buildlib.device_scripts.agent import guard, params
from buildlib.device_scripts.agent.places import Places
from buildlib.device_scripts.agent.processes import Process
from buildlib.device_scripts.agent.wire import Refusal
from tests.unit.agent.test_hashes import places


@pytest.fixture
def device(tmp_path: Path) -> Places:
    device = places(tmp_path)
    Path(device.params).mkdir(parents=True)
    return device


@pytest.mark.parametrize(
    ("text", "reason"),
    [(None, "does not say"), ("1", "is onroad"), ("", "is onroad"), ("00", "is onroad"), ("false", "is onroad")],
)
def test_what_is_not_a_0_is_not_offroad(device: Places, text: str | None, reason: str) -> None:
    if text is not None:
        Path(device.params, "IsOnroad").write_text(text)
    with pytest.raises(Refusal, match=reason) as caught:
        guard.require_offroad(device)
    assert caught.value.value["kind"] == "rail"


def test_a_model_that_runs_offroad_is_left_alone(device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(device.params, "IsOnroad").write_text("0\n")
    guard.require_offroad(device)
    running = [Process(7, 1, "S", "modeld", ["modeld"])]
    monkeypatch.setattr(guard, "model_processes", lambda places, except_under: running)
    with pytest.raises(Refusal, match="a model process is running"):
        guard.require_offroad(device)


@pytest.mark.parametrize("key", ["IsOnroad", "OffroadMode", "ModelManager_ClearCache", "../IsOnroad"])
def test_no_other_parameter_is_written(device: Places, key: str) -> None:
    with pytest.raises(Refusal, match="does not write this parameter"):
        params.write(device, key, b"1")
    assert list(Path(device.params).iterdir()) == []
