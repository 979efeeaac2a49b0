"""`doit confirm:M` on a device with a model selector: downloaded by its own manager, validated again, put back."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from buildlib.toolchain.c_compiler import CCompiler
from tests.devices.manager import add_params_class, as_active, log_of, start_manager, wish
from tests.support.confirming import ACTIVE, MODEL, NAME, TARGET, assert_as_before, select_another, serve
from tests.support.projects import Project, end, new_project, until, variant

pytestmark = pytest.mark.compile


def declared(folder: Path, artifact: Path, onnx: Path, compiler: CCompiler) -> Project:
    """A project with the model `nopp`, to be published to the sandbox."""
    project = new_project(folder, artifact, (compiler.path, compiler.identity))
    # The harness runs a real artifact, so it needs the real tinygrad.
    shutil.rmtree(project.device() / "data/openpilot/tinygrad_repo")
    (project.root / "nopp.onnx").write_bytes(variant(onnx.read_bytes(), 1))
    project.models["nopp"] = dict(MODEL)
    project.head = {"targets": {"sandbox": {**TARGET, "sandbox": True}}}
    project.declare()
    text = yaml.safe_load((project.root / "models.yaml").read_text())
    project.head["devices"] = {"local": {**text["devices"]["local"], "goal": "validate", "validate_seconds": 1}}
    project.declare()
    return project


@pytest.fixture(scope="module")
def desk(
    tmp_path_factory: pytest.TempPathFactory, sample_artifact: Path, sample_onnx: Path, c_compiler: CCompiler
) -> Iterator[Project]:
    """A project whose `nopp` is published; its device runs a model manager and has another model selected."""
    folder = tmp_path_factory.mktemp("a desk")
    project = declared(folder, sample_artifact, sample_onnx, c_compiler)
    project.doit("sandbox").ok()
    with serve(project) as server:
        project.doit("publish:nopp").ok()
        add_params_class(project.device())
        select_another(project.device())
        manager = start_manager(project.device(), f"{server.url}/docs/model_selector_b.json")
        yield project
        manager.kill()
        manager.wait()


@pytest.fixture(autouse=True)
def _behave(request: pytest.FixtureRequest) -> None:
    if "desk" in request.fixturenames:
        desk: Project = request.getfixturevalue("desk")
        wish(desk.device())
        select_another(desk.device())


def receipt(project: Project) -> dict[str, Any]:
    (path,) = (project.root / ".build/receipts/confirm").glob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())["result"]
    return found


def test_a_manager_that_gives_up_fails_the_confirm_and_the_device_is_as_before(desk: Project) -> None:
    wish(desk.device(), other_bytes=True)
    run = desk.doit("confirm:nopp")
    assert run.status == 1
    assert f"gave up the download of {NAME}" in run.text
    assert "confirm.log" in run.text
    assert_as_before(desk)


def test_a_manager_that_does_not_let_go_of_its_selection_is_told(desk: Project) -> None:
    wish(desk.device(), holds_on=True)
    run = desk.doit("confirm:nopp")
    assert run.status == 1
    assert "the earlier selection did not stay: its selection was TobyRL and is No PP" in run.text
    wish(desk.device())
    select_another(desk.device())
    assert_as_before(desk)


def test_a_workstation_that_died_in_the_validation_is_made_good_by_the_next_confirm(desk: Project) -> None:
    run = desk.start("confirm:nopp")
    try:
        active = desk.device() / ACTIVE
        until(lambda: "NOPP" in active.read_text())
        jobs = desk.device() / "data/supercombo-build/jobs"
        until(lambda: any((job / "status.json").exists() for job in jobs.glob("*-selector")))
        os.killpg(run.pid, signal.SIGKILL) if os.getpgid(run.pid) == run.pid else run.kill()
        run.wait()
        assert "NOPP" in active.read_text()
    finally:
        end(run)
    desk.doit("confirm:nopp").ok()
    assert_as_before(desk)
    proved = receipt(desk)["on_device"]
    assert proved["asked"].keys() == {"ModelManager_DownloadIndex"}
    assert proved["verdicts"]["supercombo"]["verdict"] == "good"
    assert proved["through"] == "Params"
    assert f"downloaded {NAME}" in log_of(desk.device())


def test_a_confirmed_model_is_up_to_date_and_the_report_says_where(desk: Project) -> None:
    desk.doit("confirm:nopp").ok()
    asked = log_of(desk.device())
    assert desk.doit("confirm:nopp").ok().out == "1 model up to date.\n"
    assert log_of(desk.device()) == asked
    points = {p["number"]: p for p in json.loads(desk.doit("report", "--json", "nopp").ok().out)["nopp"]}
    assert points[15]["done"]
    assert "by local's selector" in points[15]["evidence"]


def test_what_a_person_saw_of_the_download_is_attested_apart_from_the_drive(desk: Project) -> None:
    answers = desk.root / "answers.json"
    points = {"redownloaded": True, "loaded": True, "survived_onroad": True}
    answers.write_text(json.dumps({"by": "A. Driver", "points": {**points, "loaded": False}}))
    refused = desk.doit("attest", "--published", "--json", str(answers), "nopp")
    assert refused.status == 1
    assert "loaded was answered with no" in refused.text
    answers.write_text(json.dumps({"by": "A. Driver", "points": points}))
    unseen = desk.doit("attest", "--published", "--json", str(answers), "nopp")
    assert unseen.status == 1
    assert "was not onroad since" in unseen.text
    os.utime(desk.device() / "data/params/d/IsOnroad")
    desk.doit("attest", "--published", "--json", str(answers), "nopp").ok()
    desk.doit("confirm:nopp").ok()
    rows = {p["number"]: p for p in json.loads(desk.doit("report", "--json", "nopp").ok().out)["nopp"]}
    assert "seen on the road by A. Driver" in rows[15]["evidence"]
    # It is no drive of guide section 9.2: publishing still waits for that one.
    assert not rows[8]["done"]


def test_an_install_by_hand_beside_a_running_manager_is_warned_of(desk: Project) -> None:
    sha256 = "5" * 64
    models = [{"type": "supercombo", "artifact": {"file_name": NAME, "download_uri": {"url": "", "sha256": sha256}}}]
    bundle = {"index": 1, "ref": "x", "short_name": "NOPP", "display_name": "No PP", "models": models}
    wish(desk.device(), keeps_anything=True)
    (desk.device() / ACTIVE).write_text(json.dumps(as_active(bundle)))
    (desk.device() / "data/media/0/models" / NAME).unlink()
    run = desk.doit("install:nopp").ok()
    assert "it will delete or replace" in run.out
    doctor = desk.doit("doctor", "local")
    assert "note  the device's model manager runs and its active bundle has driving_supercombo_nopp.pkl" in doctor.out


def test_a_device_without_a_selector_is_skipped_with_a_note(
    tmp_path: Path, sample_artifact: Path, sample_onnx: Path, c_compiler: CCompiler
) -> None:
    project = declared(tmp_path, sample_artifact, sample_onnx, c_compiler)
    project.doit("sandbox").ok()
    run = project.doit("publish:nopp", "confirm:nopp").ok()
    assert "not on a device: local has no model selector\n" in run.out
    assert "skipped" in receipt(project)["on_device"]
