"""A compile that a killed build left on a device, and that is not declared any more: whose is it, and who ends it?"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.devices.server import SSHD_MARKS
from tests.support.projects import end, hear, until, variant
from tests.support.ssh_projects import SshProject, processes_in, ssh_project

pytestmark = SSHD_MARKS
ENDED = "ended this checkout's compile from before the change"


@pytest.fixture
def desk(tmp_path: Path, sample_artifact: Path, sample_onnx: Path) -> Iterator[SshProject]:
    """A device on which a compile of `one` goes on, for its build was killed."""
    with ssh_project(tmp_path, sample_artifact, sample_onnx) as project:
        begun = project.hold("one")
        first = project.start()
        until(begun.exists)
        first.kill()
        first.communicate()
        yield project


def change_a_flag(desk: SshProject) -> None:
    desk.models["one"]["flags"] = {"NOLOCALS": 1}
    desk.declare()


def change_the_source(desk: SshProject) -> None:
    path = desk.root / "one.onnx"
    path.write_bytes(variant(path.read_bytes(), 7))


@pytest.mark.parametrize("change", [change_a_flag, change_the_source])
def test_it_is_ended_where_its_model_is_built_otherwise_now(desk: SshProject, change: object) -> None:
    assert callable(change)
    change(desk)
    out = desk.doit().ok().out
    assert out.count(ENDED) == 1
    desk.assert_right()
    assert len(desk.calls()) == 2
    assert not processes_in(desk.comma.root)


def test_it_is_taken_up_where_nothing_changed(desk: SshProject) -> None:
    run = desk.start()
    try:
        hear(run, "one         compile    takes up the compile that runs there already\n")
    finally:
        end(run)
    assert len(desk.calls()) == 1


def test_a_twin_takes_it_up_and_finds_what_it_makes_under_the_others_name(desk: SshProject) -> None:
    shutil.copy(desk.root / "one.onnx", desk.root / "two.onnx")
    desk.add("two", "two.onnx")
    run = desk.start("two")
    try:
        hear(run, "two         compile    takes up the compile that runs there already\n")
        (desk.control() / "held-driving_supercombo_one.pkl").unlink()
        assert run.wait(200) == 0
    finally:
        end(run)
    assert (
        desk.there("data/media/0/models/driving_supercombo_two.pkl").read_bytes() == desk.artifact("two").read_bytes()
    )
    desk.doit().ok()
    desk.assert_right()
    assert len(desk.calls()) == 1


def test_another_models_is_left_alone_and_called_the_checkouts_own(desk: SshProject) -> None:
    shutil.copy(desk.root / "one.onnx", desk.root / "two.onnx")
    desk.add("two", "two.onnx", flags={"NOLOCALS": 1})
    run = desk.doit("two")
    assert run.status == 1
    assert "  try   it is this checkout's own, from before models.yaml or a source changed: wait, or undo" in run.out
    assert len(processes_in(desk.comma.root)) > 0


@pytest.mark.parametrize("change", [change_a_flag, change_the_source])
def test_another_checkouts_is_left_alone(desk: SshProject, tmp_path: Path, change: object) -> None:
    other = desk.second_checkout(tmp_path / "other")
    assert callable(change)
    change(other)
    run = other.doit()
    assert run.status == 1
    assert "end it with doit from its own checkout" in run.out
    assert len(processes_in(desk.comma.root)) > 0
