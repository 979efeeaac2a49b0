"""Which process is the selector's manager, and which bundle is which."""

from __future__ import annotations

import json

import pytest

from buildlib.device_scripts.agent.processes import Process
from buildlib.device_scripts.agent.selector import bundle_name, runs_manager


@pytest.mark.parametrize(
    ("name", "argv", "expected"),
    [
        ("python", ["/usr/local/venv/bin/python", "/data/openpilot/iqpilot/models/manager.py"], True),
        ("python3", ["python3", "-m", "sunnypilot.models.manager"], True),
        ("python3", ["python3", "-u", "-m", "iqpilot.models.manager", "x"], True),
        ("models_manager", [], True),
        # As setproctitle leaves it.
        ("sunnypilot.mode", ["sunnypilot.models.manager"], True),
        ("python", ["python", "/data/openpilot/system/manager/manager.py"], False),
        ("python", ["python", "editor.py", "/data/openpilot/iqpilot/models/manager.py"], False),
        ("vim", ["vim", "models/manager.py"], False),
        ("iqmodeld", ["iqpilot.selfdrive.iqmodeld.iqmodeld"], False),
        ("kthreadd", [], False),
    ],
)
def test_the_manager_is_known_by_what_it_runs(name: str, argv: list[str], expected: bool) -> None:
    assert runs_manager(Process(1, 0, "S", name, argv)) is expected


def test_bundles_are_told_apart_by_their_names_not_by_their_spelling() -> None:
    one = json.dumps({"internalName": "A", "ref": "r", "status": 1})
    assert bundle_name(one) == bundle_name(json.dumps({"status": 2, "ref": "r", "internalName": "A"}, indent=2))
    assert bundle_name(one) != bundle_name(json.dumps({"internalName": "B", "ref": "r"}))
    assert bundle_name(None) is None
    assert bundle_name("{") is None
    assert bundle_name("[]") is None
