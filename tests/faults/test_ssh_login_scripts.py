"""Login scripts that print, without an end of line, without end at all, or something that looks like an answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.devices.server import SSHD_MARKS
from tests.support.ssh_projects import ACTIVE, SshProject
from tests.support.ssh_said import fresh

pytestmark = SSHD_MARKS


@pytest.fixture
def desk(one_desk: SshProject) -> Iterator[SshProject]:
    """A project that has done nothing yet; the login script is taken away afterwards."""
    with fresh(one_desk) as project:
        yield project
    script(one_desk, "")


def script(desk: SshProject, text: str) -> None:
    home = desk.there("data/root-user")
    home.mkdir(parents=True, exist_ok=True)
    (home / ".bashrc").write_text(text)


def test_what_login_scripts_print_costs_nothing(desk: SshProject) -> None:
    script(desk, "echo welcome\necho '{\"ok\": {}}'\nprintf '\\033[2J' >&2\nprintf 'no end of line'\n")
    assert "\x1b" not in desk.doit().ok().text
    assert desk.there(ACTIVE).read_bytes() == desk.artifact("one").read_bytes()


@pytest.mark.parametrize("text", ["yes\n", "yes >&2\n"])
def test_a_login_script_that_prints_without_end_is_an_error_that_names_it(desk: SshProject, text: str) -> None:
    script(desk, text)
    run = desk.doit("doctor", "desk")
    assert run.status == 1
    assert "without end" in run.out
    assert "look at what the login shell prints there" in run.out
