"""Validation by IQPilot's own harness: never a pass for other bytes than those under test, and nothing left behind."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.devices.iqpilot import add_iqpilot, wish
from tests.support.projects import Project, Run, until
from tests.support.ssh_projects import processes_in

ONE, TWO = "driving_supercombo_one.pkl", "driving_supercombo_two.pkl"
OTHER = {"internalName": "OTHER", "models": [{"type": "supercombo", "artifact": {"fileName": TWO}}]}


@pytest.fixture
def desk(built: Project) -> Project:
    """A device with IQPilot's harness, both models installed, another bundle active."""
    add_iqpilot(built.device())
    set_active(built, OTHER)
    built.settings = {"validate_seconds": 1.5}
    built.declare()
    return built


def set_active(project: Project, bundle: dict[str, Any]) -> None:
    (parameters(project) / "ModelManager_ActiveBundle").write_text(json.dumps(bundle))


def parameters(project: Project) -> Path:
    return project.device() / "data/params/d"


def active(project: Project, name: str = ONE) -> Path:
    return project.device() / "data/media/0/models" / name


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def verdict(project: Project, model: str = "one") -> dict[str, Any]:
    """The verdict in the receipt of the last good validation."""
    receipts = [json.loads(path.read_text()) for path in project.receipts() if path.parent.name == "validate"]
    (found,) = [receipt for receipt in receipts if receipt["model"] == model]
    return dict(found["result"]["verdicts"]["supercombo"])


def assert_put_back(project: Project) -> None:
    """Offroad, the earlier selection, no open journal, no model process's doing left."""
    assert json.loads((parameters(project) / "ModelManager_ActiveBundle").read_text()) == OTHER
    assert (parameters(project) / "IsOnroad").read_text() == "0"
    assert list((project.device() / "data/supercombo-build/journal").glob("*.json")) == []


def refused(project: Project, *words: str) -> Run:
    run = project.doit("validate:one")
    assert run.status == 1, run.text
    for word in words:
        assert word in run.text, f"{word!r} is not in\n{run.text}"
    receipts = [path for path in project.receipts() if path.parent.name == "validate"]
    assert receipts == [], "a refusal leaves no receipt"
    return run


def test_the_model_is_selected_for_the_run_and_its_bytes_are_proven(desk: Project) -> None:
    sha256 = digest(active(desk))
    desk.doit("validate:one").ok()
    told = verdict(desk)
    (model,) = told["proof"]["models"]
    assert list(model["holds"]) == [str(active(desk))]
    assert not model["older"]
    (artifact,) = told["proof"]["artifacts"]
    assert artifact["before"] == artifact["after"]
    assert artifact["before"]["sha256"] == sha256
    ((_, names, digests),) = told["proof"]["selection"]
    assert (names, digests) == ([ONE], [sha256])
    assert told["numbers"]["services"]["modelV2"] > 3
    assert "iqPlan" in " ".join(told["unseen"]), "a service that the harness does not start is told as unseen"
    assert_put_back(desk)
    assert "up to date" in desk.doit("validate:one").ok().text
    assert "fake onroad at 15.0 m/s" in (desk.root / "artifacts/one/validate.log").read_text()


def stock(desk: Project) -> str:
    """A model of the runtime's own, outside the models directory."""
    path = desk.device() / "data/openpilot/driving_supercombo.pkl"
    path.write_bytes(active(desk).read_bytes()[:-1] + b"x")
    return str(path)


OTHERS: dict[str, Callable[[Project], dict[str, Any]]] = {
    "the runtime takes another file": lambda desk: {"runs": TWO},
    "the runtime falls back to a file of its own": lambda desk: {"others_file": stock(desk)},
    "a manager selects another one in mid-run": lambda desk: {"select_other_at": 0.7, "other": OTHER},
    "a manager resets the selection in mid-run": lambda desk: {"reset_at": 0.7},
    "the file is replaced in mid-run": lambda desk: {"replace_at": 0.7, "replace": ONE},
    "the file is replaced in mid-run and comes back": lambda desk: {
        "replace_at": 0.7,
        "replace": ONE,
        "and_back": True,
    },
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_bytes_never_pass(desk: Project, case: str) -> None:
    wish(desk.device(), **OTHERS[case](desk))
    run = desk.doit("validate:one")
    assert run.status == 1, run.text
    if "replaced" not in case:
        assert "another model ran" in run.text
    assert [path for path in desk.receipts() if path.parent.name == "validate"] == []
    assert_put_back(desk)


def test_a_refused_validation_restores_the_former_file(desk: Project) -> None:
    former = digest(active(desk))
    desk.models["one"]["flags"] = {"NOLOCALS": 1}
    desk.declare()
    wish(desk.device(), raise_at=0.5, error="args mismatch in JIT")
    refused(desk, "does not match the runtime", f"{former[:12]} is active again")
    assert digest(active(desk)) == former
    assert_put_back(desk)


def test_keep_prevents_that(desk: Project) -> None:
    former = digest(active(desk))
    desk.models["one"]["flags"] = {"NOLOCALS": 1}
    desk.declare()
    wish(desk.device(), raise_at=0.5, error="args mismatch in JIT")
    run = desk.doit("run", "--keep", "validate:one")
    assert run.status == 1
    assert digest(active(desk)) != former
    assert_put_back(desk)


def test_a_refused_run_is_done_again_and_can_pass(desk: Project) -> None:
    wish(desk.device(), raise_at=0.5, error="args mismatch in JIT")
    refused(desk)
    wish(desk.device())
    desk.doit("validate:one").ok()


def stopped_in_its_test(desk: Project, number: signal.Signals) -> str:
    """A build that is ended while other bytes of `one` are driven; the sha256 of those before."""
    former = digest(active(desk))
    desk.models["one"]["flags"] = {"NOLOCALS": 1}
    desk.settings["validate_seconds"] = 60
    desk.declare()
    run = desk.start("validate:one")
    until(lambda: (parameters(desk) / "IsOnroad").read_text() == "1")
    run.send_signal(number)
    run.communicate(timeout=100)
    assert digest(active(desk)) != former
    return former


def end_all(desk: Project) -> None:
    """Nothing on the device lives on."""
    for pid in processes_in(desk.device()):
        os.kill(pid, signal.SIGKILL)
    (parameters(desk) / "IsOnroad").write_text("0")


def power_cut(desk: Project) -> None:
    """As that, and its boot is another one."""
    end_all(desk)
    boot = desk.device() / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True, exist_ok=True)
    boot.write_text("another boot")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_what_was_installed_for_a_test_that_never_ended_is_taken_back(desk: Project, number: signal.Signals) -> None:
    former = stopped_in_its_test(desk, number)
    power_cut(desk)
    assert (
        "put back what an unfinished test had changed: driving_supercombo_one.pkl put back" in desk.doit("doctor").out
    )
    assert digest(active(desk)) == former
    assert_put_back(desk)
    desk.settings["validate_seconds"] = 1.5
    desk.declare()
    desk.doit("validate:one").ok()
    assert digest(active(desk)) != former
    assert_put_back(desk)


def test_an_install_that_is_then_asked_for_by_name_stays(desk: Project) -> None:
    former = stopped_in_its_test(desk, signal.SIGKILL)
    assert "driving_supercombo_one.pkl is there for its validation, and taken back" in desk.doit("doctor").out
    desk.doit("install:one").ok()
    assert "is there for its validation" not in desk.doit("doctor").out
    power_cut(desk)
    desk.doit("doctor")
    assert digest(active(desk)) != former


def holds(desk: Project) -> list[dict[str, Any]]:
    """The journals of installs that wait for their verdict."""
    entries = [json.loads(path.read_text()) for path in (desk.device() / "data/supercombo-build/journal").iterdir()]
    return [entry for entry in entries if entry["what"].startswith("install")]


def test_other_bytes_that_are_then_asked_for_by_name_replace_those_from_before_the_test(desk: Project) -> None:
    """Else the way back would lead to bytes that nobody has passed."""
    former = stopped_in_its_test(desk, signal.SIGKILL)
    end_all(desk)
    desk.models["one"]["flags"] = {"NOLOCALS": 0, "RANGEIFY": 1}
    desk.declare()
    desk.doit("install:one").ok()
    assert digest(active(desk)) != former
    desk.doit("rollback", "one").ok()
    assert digest(active(desk)) == former


def test_a_new_run_begins_its_time_anew_where_it_finds_the_install_done(desk: Project) -> None:
    stopped_in_its_test(desk, signal.SIGKILL)
    end_all(desk)
    (before,) = holds(desk)
    shutil.rmtree(desk.device() / "data/supercombo-build/scripts")
    (parameters(desk) / "IsOnroad").write_text("1")
    assert "the device is onroad" in desk.doit("validate:one").text, "and nothing is sent to it"
    (after,) = holds(desk)
    assert after["id"] == before["id"]
    assert after["until"] > before["until"] + 3600


def test_an_install_that_has_passed_before_is_held_no_more(desk: Project) -> None:
    stopped_in_its_test(desk, signal.SIGKILL)
    end_all(desk)
    (journal,) = holds(desk)
    desk.settings["validate_seconds"] = 1.5
    desk.declare()
    desk.doit("validate:one").ok()
    (desk.device() / f"data/supercombo-build/journal/{journal['id']}.json").write_text(json.dumps(journal))
    assert len(holds(desk)) == 1
    desk.doit("validate:one").ok()
    assert_put_back(desk)


def test_a_rollback_after_it_goes_back_one_step(desk: Project) -> None:
    former = stopped_in_its_test(desk, signal.SIGKILL)
    power_cut(desk)
    assert f"is {former[:12]} again, from before its validation" in desk.doit("rollback", "one").ok().out
    assert digest(active(desk)) == former
    assert_put_back(desk)


def test_an_install_that_no_test_follows_is_not_held(desk: Project) -> None:
    desk.models["one"]["flags"] = {"NOLOCALS": 1}
    desk.declare()
    desk.doit("install:one").ok()
    assert_put_back(desk)


@pytest.mark.slow
@pytest.mark.ssh
def test_over_ssh_it_is_the_same(tmp_path: Path, sample_artifact: Path, sample_onnx: Path) -> None:
    from tests.support.ssh_projects import ssh_project

    with ssh_project(tmp_path, sample_artifact, sample_onnx) as desk:
        desk.set(validate_seconds=1.5)
        add_iqpilot(desk.comma.root)
        set_active(desk, OTHER)
        desk.doit("validate:one").ok()
        assert verdict(desk)["proof"]["models"][0]["holds"]
        assert any("frozen UI" in text for text in verdict(desk)["unseen"])
        assert_put_back(desk)
        wish(desk.comma.root, select_other_at=0.7, other=OTHER)
        run = desk.doit("-a", "validate:one")
        assert run.status == 1
        assert "another model ran" in run.text
        assert_put_back(desk)
