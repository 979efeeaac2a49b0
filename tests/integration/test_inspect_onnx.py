"""`doit inspect FILE.onnx`: what it is, what is wrong with it, and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.onnx_files import INPUTS, write_onnx
from tests.support.projects import Project


def test_a_good_one_is_described_without_problems(project: Project) -> None:
    out = project.doit("inspect", "one.onnx").ok().out
    assert "a supercombo" in out
    assert "for QCOM with 2 cameras" in out
    assert "BAD" not in out
    assert "for CPU with 2 cameras" in project.doit("inspect", "one.onnx", "-m", "one").ok().out
    assert json.loads(project.doit("inspect", "one.onnx", "--json").ok().out)["problems"] == []


@pytest.mark.parametrize(
    ("inputs", "said", "remedy"),
    [
        ({"images": ("float32", (1, 3))}, "this is an object detector", "name the driving model's own .onnx"),
        ({**INPUTS, "action_t": ("float16", (1, 3))}, "action_t has another shape", "try: "),
        ({k: v for k, v in INPUTS.items() if k != "desire_pulse"}, "desire_pulse is missing", "try: "),
        ({**INPUTS, "speed": ("int64", (1, 1))}, "extra input speed cannot be fed", "export the model without it"),
    ],
)
def test_a_wrong_one_is_told_with_its_remedy_and_status_1(
    project: Project, tmp_path: Path, inputs: dict[str, tuple[str, tuple[int, ...]]], said: str, remedy: str
) -> None:
    path = write_onnx(tmp_path / "odd.onnx", inputs=inputs)
    run = project.doit("inspect", str(path))
    assert run.status == 1
    (line,) = [line for line in run.out.splitlines() if line.startswith("BAD")]
    assert said in line
    assert remedy in run.out
    plain = json.loads(project.doit("inspect", str(path), "--json").out)
    assert said in plain["problems"][0]["what"]


def test_a_part_of_a_split_model_is_judged_as_that_and_against_a_supercombo_as_wrong(
    project: Project, split_parts: dict[str, Path]
) -> None:
    for role, path in split_parts.items():
        assert "BAD" not in project.doit("inspect", str(path)).ok().out, role
        run = project.doit("inspect", str(path), "-m", "one")
        assert run.status == 1
        assert "part of a split model" in run.out
