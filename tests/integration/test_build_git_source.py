"""A model in a git repository: pinned, moved only by `doit update`, and explained by its commits."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.projects import Project


def git(where: Path, *argv: str) -> str:
    """git as somebody with a name."""
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *argv], cwd=where, capture_output=True, text=True, check=True).stdout.strip()


def test_a_moved_branch_changes_nothing_until_update_and_explain_names_the_commits(
    project: Project, sample_onnx: Path, tmp_path: Path
) -> None:
    theirs = tmp_path / "their models"
    theirs.mkdir()
    git(theirs, "init", "-q", "-b", "main")
    (theirs / "m.onnx").write_bytes(sample_onnx.read_bytes())
    git(theirs, "add", "-A")
    git(theirs, "commit", "-q", "-m", "one")
    first = git(theirs, "rev-parse", "HEAD")
    project.add("nopp", {"kind": "git", "repository": str(theirs), "ref": "main", "path": "m.onnx"})

    unpinned = project.doit("nopp")
    assert unpinned.status == 1
    assert "doit update nopp" in unpinned.text
    project.doit("update", "nopp").ok()
    project.doit("nopp").ok()
    lock = (project.root / "models.lock").read_bytes()

    (theirs / "m.onnx").write_bytes(sample_onnx.read_bytes() + b"\x7a\x00")  # an empty unknown field: still an ONNX
    git(theirs, "commit", "-q", "-am", "two")
    second = git(theirs, "rev-parse", "HEAD")
    assert project.doit("nopp").ok().out == "1 model up to date.\n"
    assert (project.root / "models.lock").read_bytes() == lock

    project.doit("update").ok()
    told = project.doit("explain", "nopp").ok().out
    assert f"{first[:12]} -> {second[:12]}" in told
    project.doit("nopp").ok()
    assert project.compiled("nopp") == 2


def test_a_damaged_lock_is_told_by_the_models_that_need_it_and_hinders_no_other(built: Project) -> None:
    built.add("three", {"kind": "git", "repository": str(built.root.parent / "r.git"), "ref": "main", "path": "m.onnx"})
    (built.root / "models.lock").write_text("{garbage")
    for command in ("status", "plan", "explain"):
        out = built.doit(command).ok().out
        assert "three" in out
        assert out.count("models.lock: cannot be read") == 1
    run = built.doit()
    assert run.status == 1
    assert "three source failed" in run.out
    assert "git checkout models.lock" in run.out
    assert run.out.endswith("\n1 step failed.\n"), "one and two are not held up"
