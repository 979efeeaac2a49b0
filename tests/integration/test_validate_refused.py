"""`doit validate:M` with our own harness, on `local`: a refused artifact does not stay installed, unless asked for.

The device's tinygrad of these projects loads nothing, so every artifact is refused.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.projects import Project


def active(project: Project) -> Path:
    return project.device() / "data/media/0/models/driving_supercombo_one.pkl"


def another(project: Project) -> tuple[bytes, bytes]:
    """Installs another artifact of `one`: what was active before, and what is now."""
    former = active(project).read_bytes()
    project.models["one"]["flags"] = {"NOLOCALS": 1}
    project.declare()
    project.doit("one").ok()
    assert active(project).read_bytes() != former
    return former, active(project).read_bytes()


def test_a_refused_artifact_gives_way_to_the_former_one(built: Project) -> None:
    former, _ = another(built)
    run = built.doit("validate:one")
    assert run.status == 1
    assert "one validate failed" in run.out
    assert "cannot be loaded" in run.out
    assert "  try   " in run.out
    assert "was refused: " in run.out
    assert active(built).read_bytes() == former
    assert built.status("one")["one"]["validate"]["state"] == "failed"
    assert "one validate, failed 20" in built.doit("diagnose", "one", "--here").ok().out


def test_keep_leaves_it_there_to_be_looked_at(built: Project) -> None:
    _, refused = another(built)
    assert built.doit("validate:one", "--keep").status == 1
    assert active(built).read_bytes() == refused


def test_one_that_replaced_nothing_is_removed(built: Project) -> None:
    run = built.doit("validate:one")
    assert run.status == 1
    assert "it was removed; there was none before" in run.out
    assert not active(built).exists()
    built.doit("install:one").ok()
    assert active(built).exists()


def test_a_bare_build_does_not_bring_back_what_was_refused(built: Project) -> None:
    """The goal of these projects is `install`: nothing would drive it again."""
    assert built.doit("validate:one").status == 1
    for words in ((), ("one",), ("rebuild", "one")):
        run = built.doit(*words)
        assert run.status == 1, run.text
        assert "failed its validation with these bytes" in run.text
        assert "try   doit validate:one drives it again; doit install:one puts it there" in run.text
        assert not active(built).exists()
    assert built.status()["two"]["install"]["state"] == "fresh"
    built.models["one"]["flags"] = {"NOLOCALS": 1}
    built.declare()
    built.doit().ok()
    assert active(built).read_bytes() == built.artifact("one").read_bytes()
