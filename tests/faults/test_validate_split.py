"""The harness for split models: a good artifact of each form, and one fault each."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from buildlib.core.verdicts.validation import Asked, judge_run
from tests.support import faulty

pytestmark = pytest.mark.compile

Validate = Callable[..., dict[str, Any]]
Spoil = Callable[..., Path]


@pytest.fixture
def validate(split_scripts: Path, cpu_environment: dict[str, str], tmp_path: Path) -> Validate:
    """Runs the harness; the report, with the exit status under "exit"."""

    def run(artifact: Path, *options: str) -> dict[str, Any]:
        path = tmp_path / "report.json"
        command = [sys.executable, str(split_scripts / "validate_split.py"), str(artifact), "--frames=60"]
        command += ["--rate=400", "--report", str(path), *options]
        environment = cpu_environment | {"PYTHONPATH": str(Path(faulty.__file__).parent)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        report: dict[str, Any] = json.loads(path.read_text())
        assert (done.returncode == 0) == (report["verdict"] == "good"), done.stderr
        return report | {"exit": done.returncode}

    return run


@pytest.fixture
def spoil(split_artifact: Path, cpu_environment: dict[str, str], tmp_path: Path) -> Spoil:
    """spoil("vision=Leaks"): the artifact with faults, see tests/support/faulty.py."""

    def make(*faults: str) -> Path:
        output = tmp_path / "spoiled.pkl"
        command = [sys.executable, faulty.__file__, str(split_artifact), str(output), *faults]
        subprocess.run(command, env=cpu_environment, check=True)
        return output

    return make


def test_all_parts_in_one_artifact_are_driven_together(validate: Validate, split_artifact: Path) -> None:
    report = validate(split_artifact)
    assert report["verdict"] == "good"
    status = {"state": "ok", "exit": report.pop("exit"), "report": report}
    asked = Asked(sha256=report["proof"]["sha256"], frames=60, cameras=(), realtime=False)
    assert judge_run(status, asked).good
    assert report["numbers"]["cameras"]["vision+on_policy+off_policy"]["frames"] == 60


@pytest.mark.slow
def test_one_part_alone_is_driven_when_its_role_is_said(
    validate: Validate, run_split: Callable[..., Any], split_parts: dict[str, Path], tmp_path: Path
) -> None:
    output = tmp_path / "policy.pkl"
    assert run_split(onnx={"policy": split_parts["policy"]}, output=output).returncode == 0
    assert validate(output, "--role=policy")["verdict"] == "good"
    assert validate(output)["verdict"] == "contract"


def test_a_policy_that_freezes_is_named(validate: Validate, spoil: Spoil) -> None:
    report = validate(spoil("on_policy=Freezes"), "--stall-limit=5")
    assert report["verdict"] == "frozen"
    assert report["findings"][0]["got"].startswith("none in on_policy, after ")


def test_a_part_whose_output_is_no_number_is_named(validate: Validate, spoil: Spoil) -> None:
    report = validate(spoil("off_policy=Poisons"))
    assert report["verdict"] == "not_finite"
    assert report["findings"][0]["what"] == "off_policy: an output is not a number"
    assert report["findings"][0]["frame"] > 0


def test_a_part_called_with_anothers_inputs_is_named(validate: Validate, spoil: Spoil) -> None:
    """The vision under the policy's key: it would answer, but a runtime feeds it features."""
    report = validate(spoil("on_policy=vision"))
    assert report["verdict"] == "contract"
    assert report["findings"][0]["what"] == "on_policy is called with other inputs"


@pytest.mark.parametrize("root", [{"metadata": {}, "vision": 1}, {"vision": 1, "policy": 2}, {}])
def test_missing_parts_and_metadata_are_said(validate: Validate, tmp_path: Path, root: dict[str, Any]) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(root))
    assert validate(tmp_path / "a.pkl")["verdict"] == "contract"
