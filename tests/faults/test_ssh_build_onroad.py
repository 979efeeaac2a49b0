"""A car that is switched on, before any step and in the middle of one: it is left as it is (issue 4)."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

import pytest

from tests.devices.held_copy import held_copy
from tests.devices.iqpilot import add_iqpilot
from tests.devices.server import SSHD_MARKS
from tests.support.projects import end, until, variant
from tests.support.ssh_projects import ACTIVE, REMOTE_OUTPUT, SshProject, processes_in
from tests.support.ssh_said import of_build, snapshot

pytestmark = SSHD_MARKS
ONE = "driving_supercombo_one.pkl"
IS_ONROAD = (
    '  what  desk:/data/params/d/IsOnroad: the device is onroad: expected "0", got "1"\n'
    "  try   switch the ignition off and try again"
)


@pytest.mark.parametrize("before", ["source", "upload", "verify"])
def test_nothing_is_changed_on_a_device_that_is_onroad(desk: SshProject, before: str) -> None:
    desk.doit(before).ok()
    desk.comma.set_param("IsOnroad", "1")
    there = snapshot(desk)
    stage = {"source": "upload", "upload": "compile", "verify": "install"}[before]
    assert of_build(desk, stage) == IS_ONROAD
    assert snapshot(desk) == there


def test_no_harness_comes_to_a_device_that_is_onroad(desk: SshProject) -> None:
    desk.set(goal="validate")
    desk.doit("install").ok()
    refused_before_the_drive(desk)


def test_no_harness_that_is_there_drives_on_a_device_that_is_onroad(desk: SshProject) -> None:
    desk.set(goal="validate", validate_seconds=1.5)
    with its_own_harness(desk):
        desk.doit().ok()
        shutil.rmtree(desk.root / ".build/receipts/validate")
        refused_before_the_drive(desk)


def refused_before_the_drive(desk: SshProject) -> None:
    """Nothing was driven, selected or judged; what is installed stays."""
    desk.comma.set_param("IsOnroad", "1")
    there, jobs = snapshot(desk), desk.jobs()
    assert of_build(desk, "validate") == IS_ONROAD
    assert (snapshot(desk), desk.jobs()) == (there, jobs)
    assert desk.there(ACTIVE).read_bytes() == desk.artifact("one").read_bytes()
    assert not list((desk.root / ".build/receipts").glob("validate/*"))


def test_an_artifact_comes_home_from_a_device_that_is_onroad_for_that_only_reads(desk: SshProject) -> None:
    desk.doit("compile").ok()
    desk.comma.set_param("IsOnroad", "1")
    there = snapshot(desk)
    out = desk.doit("verify").ok().out
    assert "one         pull       7.7 MB from the device, sha256 " in out
    assert desk.artifact("one").read_bytes() == desk.there(REMOTE_OUTPUT).read_bytes()
    desk.doit("doctor", "desk")
    desk.status()
    assert snapshot(desk) == there


@pytest.mark.parametrize("former", [False, True])
def test_a_car_that_is_switched_on_in_the_middle_of_an_install_keeps_what_it_has(
    desk: SshProject, former: bool
) -> None:
    if former:
        desk.doit().ok()
        path = desk.root / "one.onnx"
        path.write_bytes(variant(path.read_bytes(), 5))
    active = desk.there(ACTIVE).read_bytes() if former else None
    desk.doit("verify").ok()
    compiles = desk.calls()
    with held_copy(desk.comma.root, ONE) as held:
        run = desk.start()
        try:
            held.wait()
            desk.comma.set_param("IsOnroad", "1")
            there = snapshot(desk)
            held.release()
            out, err = run.communicate(timeout=100)
        finally:
            end(run)
        assert "Traceback" not in out + err
        assert run.returncode == 1
        assert f"one install failed\n{IS_ONROAD}\n" in out
        assert there.pop(str(held.copy)), "it was in the middle of the copy"
        assert snapshot(desk) == there
    assert (desk.there(ACTIVE).read_bytes() if desk.there(ACTIVE).exists() else None) == active
    # Parked again, it is installed, and nothing else is done again.
    desk.comma.set_param("IsOnroad", "0")
    desk.doit().ok()
    desk.assert_right()
    assert desk.calls() == compiles


@pytest.mark.parametrize("saving", ["0", "1"])
def test_a_device_that_goes_onroad_in_a_compile_ends_it_and_keeps_its_power_saving(
    desk: SshProject, saving: str
) -> None:
    cores = [desk.there(f"sys/devices/system/cpu/cpu{number}/online") for number in (4, 5, 6, 7)]
    for core in cores:
        core.parent.mkdir(parents=True, exist_ok=True)
        core.write_text("0")
    try:
        desk.wish("sleep", "one", "60")
        run = desk.start()
        until(desk.calls)
        assert {core.read_text() for core in cores} == {"1"}, "full speed for the compile"
        # The car's own daemon sets it, and says that it is onroad.
        for core in cores:
            core.write_text(saving)
        desk.comma.set_param("IsOnroad", "1")
        until(lambda: not processes_in(desk.comma.root))
        out, _ = run.communicate(timeout=60)
        assert run.returncode == 1
        assert "one compile failed\n  what  one on desk: the compile was ended: the device went onroad" in out
        assert {core.read_text() for core in cores} == {saving}
        assert not desk.there(REMOTE_OUTPUT).exists()
        # Parked again, nothing of the past is put "back" over what the car left.
        desk.comma.set_param("IsOnroad", "0")
        (desk.control() / f"sleep-{ONE}").unlink()
        desk.doit().ok()
        assert {core.read_text() for core in cores} == {saving}
    finally:
        shutil.rmtree(desk.there("sys"))


@contextlib.contextmanager
def its_own_harness(desk: SshProject) -> Iterator[None]:
    """IQPilot's harness lies on the device."""
    add_iqpilot(desk.comma.root)
    try:
        yield
    finally:
        folder = desk.there("data/openpilot/iqpilot/selfdrive/iqmodeld")
        for path in ("tools/force_onroad_iqmodeld_test.py", "tools/validate_supercombo.py", "daemon.py"):
            (folder / path).unlink()
        shutil.rmtree(folder / "tools/supercombo_build_validate")
