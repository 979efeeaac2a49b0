"""A device behind SSH that falls silent in the middle of a step: an error in the configured time (issue 4)."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from tests.devices.held_copy import held_copy
from tests.devices.iqpilot import add_iqpilot
from tests.devices.network import link
from tests.devices.server import SSHD_MARKS
from tests.support.projects import end, until
from tests.support.ssh_projects import (
    IDLE,
    SshProject,
    processes_in,
)

pytestmark = SSHD_MARKS
ONE = "driving_supercombo_one.pkl"


@pytest.mark.parametrize(
    ("before", "stage"),
    [
        ("source", "upload"),
        ("upload", "compile"),
        pytest.param("compile", "pull", marks=pytest.mark.slow),
        pytest.param("verify", "install", marks=pytest.mark.slow),
        pytest.param("install", "validate", marks=pytest.mark.slow),
    ],
)
def test_a_device_that_falls_silent_is_an_error_in_the_configured_time(
    desk: SshProject, before: str, stage: str
) -> None:
    desk.doit(before).ok()
    with in_the_middle(desk, stage) as reached:
        run = desk.start()
        try:
            until(reached)
            with desk.comma.server.silenced():
                began = time.monotonic()
                out, err = run.communicate(timeout=100)
                took = time.monotonic() - began
        finally:
            end(run)
    assert "Traceback" not in out + err
    assert run.returncode == 1
    assert f"one {stage} failed\n" in out
    # Silence in the command, or in the login that follows a link given up.
    assert f"within {IDLE:g} s, got silence" in out
    assert "  try   " in out
    assert took < 3 * IDLE + 10, "bounded by the configured times, not by the machine"
    for pid in processes_in(desk.comma.root):
        subprocess.run(["kill", "-9", str(pid)], check=False)
    # A harness that was killed could not unfake what it faked; a restart does.
    desk.comma.set_param("IsOnroad", "0")
    desk.doit().ok()
    desk.assert_right()


@contextlib.contextmanager
def in_the_middle(desk: SshProject, stage: str) -> Iterator[Callable[[], object]]:
    """A stage that takes its time; yields what becomes true in the middle of it."""
    if stage == "compile":
        desk.wish("sleep", "one", "60")
        yield desk.calls
        desk.wish("sleep", "one", "0")
    elif stage == "validate":
        add_iqpilot(desk.comma.root)
        desk.set(goal="validate", validate_seconds=60)
        yield lambda: desk.there("data/params/d/IsOnroad").read_text() == "1"
        desk.set(validate_seconds=1.5)
    elif stage == "install":
        with held_copy(desk.comma.root, ONE) as held:
            yield held.reached.exists
    else:
        folder, name = (
            (desk.there("data/media/0"), "*.part*") if stage == "upload" else (desk.root / ".build/incoming", "*.part")
        )
        with link(desk.comma.port, rate=1.5e6) as slow:
            desk.through(slow)
            yield lambda: [path for path in folder.glob(f".{name}") if path.stat().st_size]
            desk.set(port=desk.comma.port, known_hosts=str(desk.comma.home / "known_hosts"))
