"""For which tinygrad a new catalog is: what the devices that compile its models were last seen with."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from buildlib.commands.catalog import seen_tinygrad
from buildlib.errors import UsageError
from buildlib.steps.world import Observation, write_observation
from buildlib.store.workspace import Workspace

YAML = """
defaults: { target: shared }
devices: { desk: { host: desk.lan }, car: { host: car.lan } }
targets: { shared: { repository: shared } }
models:
  one: { source: one.onnx, artifact: one.pkl, device: desk }
  two: { source: two.onnx, artifact: two.pkl, device: car }
"""


def asked(place: Path, **commits: str) -> str:
    """commits: device -> commit of the tinygrad that was last seen there."""
    (place / "models.yaml").write_text(YAML)
    workspace = Workspace(place, {})
    for device, commit in commits.items():
        write_observation(workspace, Observation(device=device, people={"tinygrad_commit": commit}))
    devices = workspace.catalog.devices
    session: Any = SimpleNamespace(workspace=workspace, device_of=lambda model: devices[model.device])
    return seen_tinygrad(session, workspace.catalog.targets["shared"])


def test_devices_that_agree_say_it(tmp_path: Path) -> None:
    assert asked(tmp_path, desk="a" * 40, car="a" * 40) == "a" * 40


def test_one_that_was_never_seen_is_to_be_looked_at(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        asked(tmp_path, desk="a" * 40)
    assert caught.value.remedy == "doit preflight, or --tinygrad COMMIT"


def test_where_they_differ_another_look_is_no_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        asked(tmp_path, desk="a" * 40, car="b" * 40)
    assert caught.value.remedy == "say which: device=NAME, or --tinygrad COMMIT"
