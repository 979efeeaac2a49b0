"""A disk that takes nothing more: one line with what to do, and all is right once there is room."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.projects import Project, Run

SANDBOX = {"targets": {"sandbox": {"repository": ".build/sandbox/IQModels", "sandbox": True, "policy": []}}}


def full(project: Project, *arguments: str, blocks: int) -> Run:
    """doit where no file may grow beyond so many blocks, which is how a full disk looks to whoever writes."""
    script = 'ulimit -f "$0"; exec "$@"'
    command = ["bash", "-c", script, str(blocks), *project.command(*arguments)]
    done = subprocess.run(
        command, cwd=project.root, env=project.environ(), capture_output=True, text=True, check=False, timeout=280
    )
    return Run(done.returncode, done.stdout, done.stderr).without_traceback()


@pytest.mark.parametrize(
    ("command", "blocks"),
    [
        (("one",), 0),
        (("sandbox",), 0),
        (("sandbox",), 8),
        (("sandbox",), 64),
        (("catalog", "new"), 0),
        (("catalog", "new"), 8),
        (("unpublish", "one"), 0),
        (("unpublish", "one"), 8),
    ],
)
def test_every_command_says_it_in_words_and_goes_on_once_there_is_room(
    project: Project, command: tuple[str, ...], blocks: int
) -> None:
    project.head |= SANDBOX
    project.models["one"]["target"] = "sandbox"
    project.declare()
    if command[0] in ("catalog", "unpublish"):
        project.doit("sandbox").ok()
    run = full(project, *command, blocks=blocks)
    assert run.status in (0, 1, 3)
    assert "an error of this tool" not in run.text
    if blocks == 0:
        assert run.status == 1
        assert "File too large" in run.text
    if command[0] in ("sandbox", "one"):
        project.doit(*command).ok()
