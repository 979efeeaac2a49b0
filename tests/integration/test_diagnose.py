"""`doit diagnose`: the device's own logs, a file, a stock tree; and failed steps that tell their diagnosis unasked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.devices.layout import git, write_sconscript
from tests.support.projects import Project

MISMATCH = (
    "Traceback (most recent call last):\n"
    '  File "daemon.py", line 3, in main\n'
    "    step()\n"
    "tinygrad.engine.jit.JitError: args mismatch in JIT: img_q arg=2 vs arg=5\n"
)


def crash(project: Project, name: str, text: str) -> Path:
    folder = project.device() / "data/community/crashes"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def test_the_devices_logs_are_fetched_and_named(built: Project) -> None:
    crash(built, "error.log", MISMATCH)
    crash(built, "2026-12-01.log", "iqmodeld died with exitcode -9\n")
    out = built.doit("diagnose", "one").ok().out
    assert "one on local: error.log" in out
    assert "compiled with another frame_skip" in out
    assert "one on local: 2026-12-01.log" in out
    assert "the model process died" in out
    assert "crash files are newer than the installed artifact" in out
    told = json.loads(built.doit("diagnose", "one", "--json").ok().out)
    codes = [sign["code"] for sign in told["one on local: error.log"]["findings"]]
    assert {"jit_args", "queue_depth"} <= set(codes), "one sign hides no other"


def test_a_device_without_bad_signs_says_so(built: Project) -> None:
    assert "no bad signal" in built.doit("diagnose", "one").ok().out


def test_a_device_that_is_away_is_told_and_the_rest_is_read(built: Project) -> None:
    built.switch_off()
    (built.root / "artifacts/one/compile.log").write_text(MISMATCH)
    out = built.doit("diagnose", "one").ok().out
    assert "which was not asked" in out
    assert "queue of another depth" in out
    assert "doit doctor" in out or "python cannot be run" in out, "why it was not asked is told too"
    assert "not asked" not in built.doit("diagnose", "one", "--here").ok().out


def test_a_failure_that_no_sign_explains_is_told_in_its_own_words(built: Project) -> None:
    """`no known sign of failure, and no error` was the answer to it."""
    built.artifact("one").unlink()
    (built.artifact("one") / "mine").mkdir(parents=True)
    assert built.doit("one").status == 1
    words = ("diagnose", "one", "--here")
    out = built.doit(*words).ok().out
    assert "one pull, failed 20" in out
    assert "cannot be written: Is a directory" in out
    assert "move that directory away" in out
    (told,) = [told for name, told in json.loads(built.doit(*words, "--json").out).items() if "failed" in name]
    assert told["unknown"]


def test_the_log_of_each_artifact_of_a_model_is_read(built: Project) -> None:
    for role in ("vision", "policy"):
        (built.root / f"artifacts/one/compile-{role}.log").write_text("Ran out of input\n")
    out = built.doit("diagnose", "one", "--here").ok().out
    assert out.count("the artifact is incomplete") == 2


def test_an_unknown_error_is_shown_whole(built: Project, tmp_path: Path) -> None:
    log = tmp_path / "a log.txt"
    log.write_text("zork.OddError: never seen\n")
    out = built.doit("diagnose", "--file", str(log)).ok().out
    assert "unknown error" in out
    assert "zork.OddError: never seen" in out
    assert built.doit("diagnose", "--file", str(tmp_path / "none")).status == 3


@pytest.mark.skipif(
    shutil.which("tmux") is None and os.environ.get("CI") != "true", reason="no tmux here: apt install tmux"
)
def test_the_tmux_pane_is_read(built: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    # A socket's path is short, a test's directory is not: the device's /tmp lies elsewhere.
    place = tmp_path_factory.mktemp("t")
    (built.device() / "tmp").symlink_to(place)
    (place / "tmux-0").mkdir(mode=0o700)
    socket = ["tmux", "-f", os.devnull, "-S", str(place / "tmux-0/default")]
    script = "printf 'selfdrived: commIssue\\n%.0s' 1 2 3 4; sleep 60"
    subprocess.run([*socket, "new-session", "-d", "-s", "comma", "sh", "-c", script], check=True)
    try:
        deadline = time.monotonic() + 20
        out = ""
        while "commIssue spam" not in out and time.monotonic() < deadline:
            out = built.doit("diagnose", "one").ok().out
        assert "one on local: tmux pane" in out
        assert "commIssue spam" in out
    finally:
        subprocess.run([*socket, "kill-server"], check=False)


# Failed steps


def test_a_failed_install_tells_its_diagnosis(built: Project) -> None:
    models = built.device() / "data/media/0/models"
    active = models / "driving_supercombo_one.pkl"
    active.unlink()
    active.mkdir()
    run = built.doit("install:one")
    assert run.status == 1
    assert "try   doit diagnose one" in run.text
    assert "one install, failed" in built.doit("diagnose", "one", "--here").ok().out


def test_the_words_of_a_failure_are_diagnosed_unasked() -> None:
    from buildlib import errors
    from buildlib.steps.perform import explain

    full = errors.DeviceError("No space left on device", where="desk")
    explain(full)
    assert any("the disk is full" in sign for sign in full.signs)
    assert full.remedy
    assert "sign  the disk is full" in full.render()
    known = errors.RailRefused("the device is onroad", remedy="park the car")
    explain(known)
    assert known.signs == ()


def test_the_log_of_a_failure_is_diagnosed_unasked(tmp_path: Path) -> None:
    from buildlib import errors
    from buildlib.steps.perform import explain

    log = tmp_path / "validate.log"
    log.write_text(MISMATCH)
    died = errors.VerdictRefused("the model process died", remedy="compile it again", log=str(log))
    explain(died)
    text = died.render()
    assert "does not match the runtime" in text
    assert "a queue of another depth" in text
    assert died.remedy == "compile it again"


# Guide 18: against a stock tree


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    """An openpilot tree with its own tinygrad."""
    tree = tmp_path / "stock openpilot"
    (tree / "selfdrive/modeld").mkdir(parents=True)
    flags = ("DEV=CPU", "IMAGE=0", "OPENPILOT_HACKS=1")
    made = write_sconscript(tree, plain=flags, fused=flags)
    # A stock tree has no file of IQPilot's.
    shutil.move(made, tree / "selfdrive/modeld/SConscript")
    shutil.rmtree(tree / "data")
    (tree / "selfdrive/modeld/compile_modeld.py").write_text("import tinygrad\n")
    package = tree / "tinygrad_repo/tinygrad"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("version = 2\n")
    git(tree / "tinygrad_repo", "init", "-q")
    return tree


def test_flags_tinygrad_and_script_are_set_against_a_stock_tree(built: Project, stock: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in stock.rglob("*")}
    run = built.doit("diagnose", "--compare-stock", str(stock), "one")
    assert run.status == 1, run.text
    assert "OPENPILOT_HACKS differs" in run.out
    assert "compiles with another tinygrad" in run.out
    assert "compiles with another script" in run.out
    image = [line for line in run.out.splitlines() if "IMAGE differs" in line]
    assert {"0 is the same as unset" in line for line in image} == {True}, run.out
    assert {path: path.stat().st_mtime_ns for path in stock.rglob("*")} == before, "the tree is only read"


def test_the_same_tinygrad_and_flags_are_no_difference(built: Project, stock: Path) -> None:
    shutil.copy(built.device() / "data/openpilot/tinygrad_repo/tinygrad/__init__.py", stock / "tinygrad_repo/tinygrad")
    built.models["one"]["flags"] = {"OPENPILOT_HACKS": 1}
    built.declare()
    run = built.doit("diagnose", "--compare-stock", str(stock), "one", "--json").ok()
    for findings in json.loads(run.out).values():
        assert [one["code"] for one in findings if one["severity"] == "refuse"] == []
        assert "script_differs" in [one["code"] for one in findings]


def test_where_a_device_decides_for_another_profile_the_models_own_is_compared(built: Project, stock: Path) -> None:
    """`local` compiles a QCOM model for the CPU: six differences of no interest, with remedies that change nothing."""
    built.models["one"].update(profile="qcom")
    built.declare()
    run = built.doit("diagnose", "--compare-stock", str(stock), "one", "--json")
    findings = next(iter(json.loads(run.out).values()))
    assert findings[0]["code"] == "other_profile"
    assert findings[0]["found"] == "local, profile cpu"
    flags = {one["found"] for one in findings if one["code"] == "flag_differs"}
    assert "DEV=QCOM" in flags, "the stand-in of a stock tree is compiled for the CPU"
    assert "tinygrad_differs" not in [one["code"] for one in findings]


def test_a_folder_that_is_no_openpilot_is_a_usage_error(built: Project, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        run = built.doit("diagnose", "--compare-stock", str(folder))
        assert run.status == 3
        assert "name the root of the checkout" in run.err
