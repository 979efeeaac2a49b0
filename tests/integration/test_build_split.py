"""Split models: parts by role, one artifact a part or one for all, compiled on `local` for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.projects import CHECKOUT, Project

pytestmark = [pytest.mark.compile, pytest.mark.slow]

MODELS = """
defaults: { device: local }
models:
  two:
    display_name: Two parts
    kind: vision_policy
    sources:
      vision: { kind: sample, seed: 1, width: 32 }
      policy: { kind: sample, seed: 2, width: 32 }
    artifacts: { vision: driving_vision_two.pkl, policy: driving_policy_two.pkl }
  multi:
    display_name: Three parts
    kind: vision_multi_policy
    sources:
      vision: { kind: sample, seed: 1, width: 32 }
      on_policy: { kind: sample, seed: 2, width: 32 }
      off_policy: { kind: sample, seed: 3, width: 32 }
    artifact: driving_multi.pkl
"""


def test_split_models_are_built_verified_and_installed_and_then_fresh(tmp_path: Path) -> None:
    for name in ("dodo.py", "pyproject.toml"):
        (tmp_path / name).write_text((CHECKOUT / name).read_text())
    (tmp_path / "models.yaml").write_text(MODELS)
    project = Project(root=tmp_path)
    project.doit().ok()
    for name in ("two/driving_vision_two.pkl", "two/driving_policy_two.pkl", "multi/driving_multi.pkl"):
        assert (tmp_path / "artifacts" / name).stat().st_size > 500_000
    assert project.doit().ok().out == "2 models up to date.\n"
    states = {stage: told["state"] for stage, told in project.status("multi")["multi"].items()}
    assert {states[stage] for stage in ("source", "upload", "compile", "pull", "verify", "install", "validate")} == {
        "fresh"
    }
    # Other artifacts of the same parts are another compile.
    combined = "artifact: driving_multi.pkl"
    parted = "artifacts: { vision: v.pkl, on_policy: on.pkl, off_policy: off.pkl }"
    (tmp_path / "models.yaml").write_text(MODELS.replace(combined, parted))
    assert "artifacts: combined -> off_policy on_policy vision" in project.doit("plan", "multi").ok().out
    project.doit("multi").ok()
    for name in ("v.pkl", "on.pkl", "off.pkl"):
        assert (tmp_path / "artifacts/multi" / name).is_file()
    (tmp_path / "models.yaml").write_text(MODELS)
    project.doit().ok()
    assert "compile" not in project.doit("plan").ok().out
