"""A second run: nothing runs twice, what changed runs alone, and a failure stops its own branch only (issue 2)."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.projects import Project, variant


def test_a_second_run_runs_nothing_and_says_so_in_one_line(project: Project) -> None:
    first = project.doit().ok()
    assert first.out.splitlines()[-1].startswith("2 models built in ")
    project.assert_right()
    receipts = {path: path.stat().st_mtime_ns for path in project.receipts()}
    second = project.doit().ok()
    assert second.text == "2 models up to date.\n"
    assert project.calls() == ["driving_supercombo_one.pkl", "driving_supercombo_two.pkl"]
    assert {path: path.stat().st_mtime_ns for path in project.receipts()} == receipts
    checked = subprocess.run(
        ["sha256sum", "-c", "driving_supercombo_one.pkl.sha256"], cwd=project.artifact("one").parent, check=False
    )
    assert checked.returncode == 0


def test_one_flag_of_one_model_compiles_that_model_alone(built: Project) -> None:
    built.models["one"]["flags"] = {"NOLOCALS": 1}
    built.declare()
    explained = built.doit("explain", "one").ok().out
    assert "one compile is stale" in explained
    assert "NOLOCALS" in explained
    assert "unset -> 1" in explained
    built.doit().ok()
    assert built.calls() == ["driving_supercombo_one.pkl"]
    built.assert_right()
    # Taken back: the receipt of the former key still stands.
    del built.models["one"]["flags"]
    built.declare()
    built.doit().ok()
    assert built.calls() == ["driving_supercombo_one.pkl"]
    built.assert_right()


def test_a_touched_onnx_runs_nothing(built: Project) -> None:
    os.utime(built.root / "one.onnx")
    assert built.doit().ok().text == "2 models up to date.\n"
    assert built.calls() == []


def test_a_moved_project_runs_nothing(built: Project) -> None:
    assert built.doit().ok().text == "2 models up to date.\n"
    assert built.calls() == []


def replaced(path: Path, data: bytes) -> None:
    """A new file under the name, with the old times (`cp -p`, `rsync -t`)."""
    before = path.stat()
    new = path.with_name("new")
    new.write_bytes(data)
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    new.replace(path)


def overwritten(path: Path, data: bytes) -> None:
    """Other bytes in the same inode, and the old times put back."""
    before = path.stat()
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_ino, path.stat().st_size, path.stat().st_mtime_ns) == (
        before.st_ino,
        before.st_size,
        before.st_mtime_ns,
    )


@pytest.mark.parametrize("change", [replaced, overwritten])
def test_other_bytes_at_the_old_size_and_time_are_built(built: Project, change: object) -> None:
    assert built.doit().ok().text == "2 models up to date.\n"
    path = built.root / "one.onnx"
    change(path, variant(path.read_bytes(), 77))  # type: ignore[operator]
    built.doit().ok()
    assert built.calls() == ["driving_supercombo_one.pkl"]
    built.assert_right()


def test_two_changes_within_one_clock_tick_are_both_built(built: Project) -> None:
    path = built.root / "one.onnx"
    first, second = variant(path.read_bytes(), 78), variant(path.read_bytes(), 79)
    stamp = time.time_ns()
    overwritten(path, first)
    os.utime(path, ns=(stamp, stamp))
    built.doit().ok()
    built.assert_right()
    overwritten(path, second)
    built.doit().ok()
    assert built.compiled("one") == 2
    built.assert_right()


def test_one_broken_onnx_leaves_the_others_finished_and_says_what_to_do(project: Project) -> None:
    (project.root / "broken.onnx").write_bytes(b"this is no ONNX" * 999)
    project.models = {"bad": {}, **project.models}
    project.add("bad", "broken.onnx")
    run = project.doit()
    assert run.status == 1
    assert project.calls() == ["driving_supercombo_one.pkl", "driving_supercombo_two.pkl"]
    tail = "\n".join(run.out.splitlines()[-6:])
    assert "bad source failed" in tail
    assert "broken.onnx" in tail
    assert "  try   " in tail
    assert run.out.endswith("\n1 step failed.\n"), "the model that failed is named once"
    del project.models["bad"]
    project.assert_right()


def test_a_failed_compile_names_model_step_cause_remedy_and_log_and_leaves_no_target(built: Project) -> None:
    built.models["one"]["flags"] = {"NOLOCALS": 1}
    built.declare()
    former = built.artifact("one").read_bytes()
    wish = built.wish("fail", "one", "the op Frobnicate is not known to DEV=CPU")
    run = built.doit()
    assert run.status == 1
    tail = "\n".join(run.out.splitlines()[-6:])
    assert "one compile failed" in tail
    assert "  what  one on local: the op Frobnicate is not known to DEV=CPU\n" in tail, "in its own words, and once"
    assert "  sign  " not in tail
    assert "  try   look at what it names" in tail
    log = next(line for line in tail.splitlines() if line.startswith("  log   ")).removeprefix("  log   ")
    assert "Frobnicate" in (built.root / log).read_text()
    assert built.artifact("one").read_bytes() == former
    assert built.status()["one"]["compile"]["state"] == "failed"
    assert not list(built.device().rglob("*.recompiled.pkl.*"))
    assert built.doit().status == 1, "a failure is not forgotten by running again"
    wish.unlink()
    built.doit().ok()
    assert built.status()["one"]["compile"]["state"] == "fresh"
    assert not list((built.root / ".build" / "attempts").rglob("*.json"))
    built.assert_right()


def test_a_warning_of_the_compile_reaches_the_summary_unless_every_good_build_has_it(project: Project) -> None:
    usual = "onnx.py:409: UserWarning: input img has mismatch on dtype. Expected dtypes.half, received dtypes.float."
    odd = "uop.py:7: UserWarning: the weights of conv7 are all zero"
    project.wish("hook", "one", f"print({usual!r})\nprint({odd!r})\n")
    out = project.doit("one").ok().out
    assert f"one         warning    {odd}\n" in out
    assert "mismatch on dtype" not in out
    assert out.splitlines()[-1].startswith("1 model built in ")
    assert out.endswith(" s, 1 warning above.\n")
    log = (project.root / "artifacts/one/compile.log").read_text()
    assert usual in log
    assert odd in log
