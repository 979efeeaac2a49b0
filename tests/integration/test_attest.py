"""`doit attest`, and the gate that asks for what it leaves: answers of a person, against the device's own words."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from buildlib.core.attestation import AFTER_PUBLISHING, POINTS
from tests.support.projects import CHECKOUT, Project

ONE = "driving_supercombo_one.pkl"
YES = dict.fromkeys(POINTS, True)


@pytest.fixture
def built(built: Project) -> Project:
    """Installed, and onroad since."""
    os.utime(built.device() / "data/params/d/IsOnroad")
    return built


def git(project: Project, *argv: str) -> str:
    command = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.org", *argv]
    return subprocess.run(command, cwd=project.root, check=True, capture_output=True, text=True).stdout


def answers(project: Project, points: dict[str, Any] = YES, **more: Any) -> str:
    path = project.root.parent / "answers.json"
    path.write_text(json.dumps({"by": "Ann Driver", "points": points, **more}))
    return str(path)


def attest(project: Project, **points: Any) -> str:
    """All points yes but those given, None for one that is not answered."""
    told = {name: value for name, value in {**YES, **points}.items() if value is not None}
    run = project.doit("attest", "one", "--json", answers(project, told))
    assert run.status == (0 if told == YES else 1), run.text
    return run.text


def refused(project: Project) -> str:
    run = project.doit("attest", "one", "--json", answers(project))
    assert run.status == 1, run.text
    assert kept(project) == []
    return run.text


def kept(project: Project) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(project.root.glob("attestations/one/*.json"))]


def there(project: Project, path: str) -> Path:
    return project.device() / path


def test_an_attestation_is_bound_to_bytes_and_runtime_signed_and_committed(built: Project) -> None:
    git(built, "init", "-q")
    built.environment = {f"GIT_{role}_{what}": "ann" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    out = attest(built)
    (told,) = kept(built)
    assert told["by"] == "Ann Driver"
    assert list(told["artifacts"]) == [ONE]
    assert len(told["artifacts"][ONE]) == len(told["runtime"]) == 64
    assert told["observed"]["active"] == told["artifacts"]
    assert told["observed"]["boot"]
    assert "committed" in out
    assert git(built, "status", "--porcelain", "attestations") == ""
    assert f"Attest one {told['artifacts'][ONE][:8]}" in git(built, "log", "-1", "--format=%s")


@pytest.mark.parametrize("point", POINTS)
def test_a_no_or_a_missing_answer_is_no_attestation(point: str) -> None:
    from buildlib.core.attestation import contradictions

    for points in ({**YES, point: False}, {name: True for name in YES if name != point}):
        assert any(point in text for text in contradictions(points, {}, {}))


def test_a_no_is_told(built: Project) -> None:
    assert "the UI did not freeze" in attest(built, ui_not_frozen=False)
    assert "normal_boot was not answered" in attest(built, normal_boot=None)
    assert "try   answer each of normal_boot, selected" in attest(built, normal_boot=None)
    assert "why   guide section 9.2" in attest(built, normal_boot=None)
    run = built.doit("attest", "one", "--published", "--json", answers(built))
    assert "redownloaded was not answered" in run.text
    assert "why   guide section 16" in run.text
    assert kept(built) == []


def test_another_file_on_the_device_contradicts(built: Project) -> None:
    there(built, f"data/media/0/models/{ONE}").write_bytes(b"somebody else's")
    assert "the device has" in refused(built)


def test_another_selected_model_contradicts(built: Project) -> None:
    bundle = {"models": [{"artifact": {"fileName": "other.pkl"}}]}
    there(built, "data/params/d/ModelManager_ActiveBundle").write_text(json.dumps(bundle))
    assert "another model is selected on the device: other.pkl" in refused(built)


def test_a_device_that_was_not_onroad_since_the_install_contradicts(built: Project) -> None:
    flag = there(built, "data/params/d/IsOnroad")
    os.utime(flag, (1, 1))
    assert "was not onroad since" in refused(built)
    os.utime(flag)
    attest(built)


def test_the_recorders_folders_tell_of_a_drive(built: Project) -> None:
    recorded = there(built, "data/media/0/realdata")
    (recorded / "00000012--0a1b2c3d4e--0").mkdir(parents=True)
    os.utime(recorded / "00000012--0a1b2c3d4e--0", (1, 1))
    os.utime(recorded, (1, 1))
    assert "was not onroad since" in refused(built)
    os.utime(recorded / "00000012--0a1b2c3d4e--0")
    os.utime(there(built, "data/params/d/IsOnroad"), (1, 1))
    attest(built)
    (told,) = kept(built)
    assert told["observed"]["onroad_since_install"] is True


def test_a_crash_since_the_install_contradicts_and_an_older_one_does_not(built: Project) -> None:
    crashes = there(built, "data/community/crashes")
    crashes.mkdir(parents=True)
    (crashes / "old.log").write_text("Traceback")
    os.utime(crashes / "old.log", (1, 1))
    attest(built)
    (crashes / "error.log").write_text("Traceback")
    run = built.doit("attest", "one", "--json", answers(built))
    assert run.status == 1
    assert "error.log" in run.text
    assert "old.log" not in run.text


def test_what_was_never_installed_is_not_attested(project: Project) -> None:
    assert "no installed artifact" in refused(project)


def test_a_runtime_that_moved_since_the_build_is_not_attested_though_no_build_has_seen_it(built: Project) -> None:
    there(built, "data/openpilot/tinygrad_repo/tinygrad/__init__.py").write_text("version = 2\n")
    assert "not for what its device runs now" in refused(built)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"points": {}}', '{"by": " ", "points": {}}', '{"by":"a","points":{"x":1}}']
)
def test_answers_of_another_form_are_refused(built: Project, text: str) -> None:
    path = built.root.parent / "answers.json"
    path.write_text(text)
    run = built.doit("attest", "one", "--json", str(path))
    assert run.status == 3
    assert "the points are normal_boot, selected" in run.err
    assert kept(built) == []


def test_nobody_at_the_terminal_is_a_usage_error(built: Project) -> None:
    run = built.doit("attest", "one")
    assert run.status == 3
    assert "--json" in run.text


def at_terminal(project: Project, *typed: str) -> tuple[int, str]:
    """Runs `doit attest one` at a pseudo terminal; each line is typed when it is asked for."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        project.command("attest", "one"),
        cwd=project.root,
        env=project.environ(),
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    told, asked, lines = b"", 0, list(typed)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        ready, _, _ = select.select([master], [], [], 0.2)
        if ready:
            try:
                block = os.read(master, 4096)
            except OSError:
                break
            if not block:
                break
            told += block
        prompts = told.count(b"? [y/N] ") + told.count(b"your name [") + told.count(b"notes: ")
        if lines and prompts > asked and not ready:
            asked += 1
            os.write(master, lines.pop(0).encode() + b"\n")
    os.close(master)
    return process.wait(60), told.decode()


def test_each_point_is_asked_at_the_terminal(built: Project) -> None:
    status, told = at_terminal(built, *["y"] * len(POINTS), "Ann Driver", "dry road, 40 minutes")
    assert status == 0, told
    (found,) = kept(built)
    assert (found["by"], found["notes"]) == ("Ann Driver", "dry road, 40 minutes")
    for question in POINTS.values():
        assert question in told


@pytest.mark.parametrize(("stop", "status"), [("end", 3), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_who_stops_in_the_middle_of_the_questions_attests_nothing(built: Project, stop: Any, status: int) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        built.command("attest", "one"), cwd=built.root, env=built.environ(), stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    told = b""
    while b"? [y/N] " not in told:
        told += os.read(master, 4096)
    if stop == "end":
        os.write(master, b"y\n\x04")
    else:
        process.send_signal(stop)
    with contextlib.suppress(OSError):
        while block := os.read(master, 4096):
            told += block
    os.close(master)
    assert process.wait(60) == status
    assert b"Traceback" not in told, told.decode()
    assert kept(built) == []


def test_a_drive_after_publishing_has_its_own_points() -> None:
    from buildlib.core.attestation import contradictions

    assert contradictions(dict.fromkeys(AFTER_PUBLISHING, True), {}, {}, published=True) == []
    assert contradictions(YES, {}, {}, published=True)


# The gate


def gate(project: Project) -> list[str]:
    """What `plan publish:one` says is missing."""
    return [line for line in project.doit("plan", "publish:one").out.splitlines() if line.startswith("Not yet")]


@pytest.fixture
def with_policy(built: Project) -> Project:
    """`one` is published to a sandbox that asks for a drive."""
    built.head = {
        "targets": {"box": {"repository": ".build/sandbox/IQModels", "sandbox": True, "policy": ["harness", "onroad"]}}
    }
    built.models["one"] |= {"target": "box", "folder": "One (June 26, 2026)-165", "bundle": {"short_name": "ONE"}}
    built.declare()
    return built


def lacks_a_drive(project: Project) -> bool:
    return any("onroad attestation" in line for line in gate(project))


def onroad(project: Project) -> str:
    """What `doit status` shows of the drives."""
    head, row, *_ = project.doit("status", "one").ok().out.splitlines()
    (told,) = json.loads(project.doit("status", "--json", "one").ok().out)
    cell = row[head.index("onroad") :].split()[0]
    assert cell == ((told["onroad"] or "-").partition("T")[0])
    return cell


def test_the_gate_asks_for_a_drive_of_exactly_these_bytes_and_this_runtime(with_policy: Project) -> None:
    project = with_policy
    assert lacks_a_drive(project)
    assert onroad(project) == "-"
    attest(project)
    assert not lacks_a_drive(project)
    assert onroad(project) == kept(project)[0]["on"][:10]
    (path,) = project.root.glob("attestations/one/*.json")
    told = json.loads(path.read_text())
    for change in ({"runtime": "0" * 64}, {"artifacts": {ONE: "0" * 64}}, {"published": True}, {"model": "two"}):
        path.write_text(json.dumps({**told, **change}))
        assert lacks_a_drive(project), change
        assert onroad(project) == ("void" if change.keys() & {"runtime", "artifacts"} else "-"), change
    path.write_text(json.dumps(told))
    assert not lacks_a_drive(project)


def test_other_bytes_make_it_void(with_policy: Project) -> None:
    attest(with_policy)
    with_policy.models["one"]["flags"] = {"NOLOCALS": 1}
    with_policy.declare()
    assert onroad(with_policy) == "void"
    with_policy.doit("one").ok()
    assert lacks_a_drive(with_policy)
    assert onroad(with_policy) == "void"


def test_the_guide_to_releasing_shows_every_point() -> None:
    text = (CHECKOUT / "docs/how-to/release-a-model.md").read_text()
    assert [point for point in POINTS if f'"{point}": true' not in text] == []
