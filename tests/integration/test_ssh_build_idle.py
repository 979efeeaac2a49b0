"""A run with nothing to do asks a device behind SSH once, also when it is silent or says something new (issue 4)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.devices.network import Link, link
from tests.devices.server import SSHD_MARKS
from tests.support.projects import end, until
from tests.support.ssh_projects import ACTIVE, IDLE, SshProject, ssh_project

pytestmark = SSHD_MARKS
UP_TO_DATE = "1 model up to date.\n"


@pytest.fixture(scope="module")
def one_desk(
    tmp_path_factory: pytest.TempPathFactory, sample_artifact: Path, sample_onnx: Path
) -> Iterator[tuple[SshProject, Link]]:
    with (
        ssh_project(tmp_path_factory.mktemp("idle"), sample_artifact, sample_onnx) as project,
        link(project.comma.port) as proxy,
    ):
        yield project, proxy


@pytest.fixture
def proxy(one_desk: tuple[SshProject, Link]) -> Link:
    """The way to the device of `desk`."""
    one_desk[1].delay = 0.0
    return one_desk[1]


@pytest.fixture
def desk(one_desk: tuple[SshProject, Link], proxy: Link) -> SshProject:
    """A built project with a note of its idle run, its device behind `proxy`."""
    project = one_desk[0]
    project.through(proxy)
    project.doit().ok()
    note = project.root / ".build/cache/idle"
    for _ in range(40):
        if note.exists():
            break
        time.sleep(0.2)
        assert project.doit().ok().text == UP_TO_DATE
    assert note.exists(), "no run left a note"
    return project


def test_an_idle_run_is_one_connection_and_one_command(desk: SshProject, proxy: Link) -> None:
    taken, asked = proxy.taken, desk.commands
    assert desk.doit().ok().text == UP_TO_DATE
    assert (proxy.taken, desk.commands) == (taken + 1, asked + 1)


def test_a_silent_device_costs_its_time_once(desk: SshProject, proxy: Link) -> None:
    taken = proxy.taken
    with desk.comma.server.silenced():
        out = desk.doit().ok().out
    assert proxy.taken == taken + 1
    assert f"within {IDLE:g} s, got silence" in out
    assert "last seen" in out
    assert "assumed" in out
    assert desk.doit().ok().text == UP_TO_DATE


def test_what_a_device_says_anew_is_acted_on_without_asking_it_again(desk: SshProject) -> None:
    desk.doit().ok()
    calls, asked = desk.calls(), desk.commands
    desk.there(ACTIVE).unlink()
    out = desk.doit().ok().out
    assert "one         install" in out
    assert desk.commands == asked + 3, "the probe, the hash of what is to be installed, the install"
    assert desk.calls() == calls
    desk.assert_right()


def test_a_device_that_is_declared_anew_while_the_old_one_keeps_silent_is_asked(desk: SshProject, proxy: Link) -> None:
    taken, asked = proxy.taken, desk.commands
    proxy.delay = 3600
    run = desk.start()
    try:
        until(lambda: proxy.taken > taken)
        desk.set(port=desk.comma.port, known_hosts=str(desk.comma.home / "known_hosts"))
        out, err = run.communicate(timeout=100)
    finally:
        end(run)
    assert run.returncode == 0
    assert out + err == UP_TO_DATE
    assert (proxy.taken, desk.commands) == (taken + 1, asked + 1)
