"""`status`, `explain` and `plan` on a build in which much is to do: what they show, and that they change nothing."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.support.projects import Project, variant


@pytest.fixture
def unfinished(built: Project) -> Project:
    """`one` is stale and its last compile failed, `two` lost its artifact, and `three` was never built."""
    built.models["one"]["flags"] = {"NOLOCALS": 1}
    (built.root / "three.onnx").write_bytes(variant((built.root / "two.onnx").read_bytes(), 3))
    built.add("three", "three.onnx")
    built.artifact("two").unlink()
    return built


def everything(project: Project) -> dict[str, tuple[str, int]]:
    """Files of project and device, but the lock and what was read before: path -> content and time of last change."""
    files = [path for top in (project.root, project.device()) for path in top.rglob("*") if path.is_file()]
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in files
        if path != project.root / ".build/lock" and not path.is_relative_to(project.root / ".build/cache")
    }


@pytest.mark.parametrize("command", ["plan", "explain", "status", "list", "gc"])
def test_who_looks_changes_nothing(unfinished: Project, command: str) -> None:
    before = everything(unfinished)
    unfinished.doit(command).ok()
    if command != "list":
        unfinished.doit(command, *(["--json"] if command != "gc" else [])).ok()
    assert everything(unfinished) == before
    assert unfinished.calls() == []


def test_a_plan_says_what_would_run_and_the_build_runs_that(unfinished: Project) -> None:
    planned = json.loads(unfinished.doit("plan", "--json").ok().out)
    assert planned == {
        "one": {
            "compile": "NOLOCALS: unset -> 1",
            "pull": "follows compile",
            "verify": "follows compile",
            "install": "follows compile",
        },
        "two": {"pull": "artifacts/two/driving_supercombo_two.pkl is missing"},
        "three": {
            "source": "never done",
            "upload": "follows source",
            "compile": "follows source",
            "pull": "follows compile",
            "verify": "follows source",
            "install": "follows compile",
        },
    }
    ran = [line.split()[:2] for line in unfinished.doit().ok().out.splitlines()[:-1]]
    assert [name for name in ran if name[1] != "preflight"] == [[m, stage] for m in planned for stage in planned[m]]


def test_status_has_a_row_a_model_a_column_a_stage_and_the_first_reason(unfinished: Project) -> None:
    wish = unfinished.wish("fail", "one", "no luck")
    assert unfinished.doit("compile:one").status == 1
    wish.unlink()
    rows = unfinished.doit("status").ok().out.splitlines()
    stages = ["source", "upload", "compile", "pull", "verify", "install", "validate", "onroad", "publish", "confirm"]
    assert [row.split() for row in rows[:4]] == [
        ["device", *stages],
        ["one", "local", "fresh", "fresh", "FAILED", "STALE", "STALE", "STALE", "-", "-", "-", "-"],
        ["two", "local", "fresh", "fresh", "fresh", "STALE", "fresh", "fresh", "-", "-", "-", "-"],
        ["three", "local", "never", "never", "never", "never", "never", "never", "-", "-", "-", "-"],
    ]
    assert [row.partition(": ")[0] for row in rows[4:]] == ["one", "two", "three"]
    assert "compile failed at " in rows[4]
    assert "no luck" in rows[4]
    assert rows[5] == "two: pull is stale: artifacts/two/driving_supercombo_two.pkl is missing"
    assert rows[6] == "three: source was never done"


def test_status_of_what_is_stale_leaves_out_what_is_not(built: Project) -> None:
    assert built.doit("status", "--only", "stale").ok().out == "Nothing is stale.\n"
    built.models["one"]["flags"] = {"NOLOCALS": 1}
    built.declare()
    told = built.doit("status", "--only", "stale").ok().out
    assert "one" in told
    assert "two" not in told
    assert list(built.status("--only", "stale")) == ["one"]


def test_a_device_that_is_away_is_assumed_in_the_table(built: Project) -> None:
    built.switch_off()
    built.doit().ok()
    rows = built.doit("status").ok().out.splitlines()
    assert rows[1].split()[2:8] == ["fresh", *["assumed"] * 5]
    assert rows[3].startswith("one: assumed: local was last seen ")
