"""What is told of a git command that failed: the lines that say why."""

from __future__ import annotations

import pytest

from buildlib.targets.git_commands import Done

NOISE = "error: failed to push some refs to 'https://example.org/models.git'\n"


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        (f"no pushes on friday\n{NOISE}", "no pushes on friday"),
        (f"remote: protected branch\n{NOISE}hint: see the manual\n", "remote: protected branch"),
        (NOISE, NOISE.strip()),
        (
            "ann@host: Permission denied (publickey).\nfatal: Could not read\n\nPlease make sure that you may\n",
            "ann@host: Permission denied (publickey).; fatal: Could not read",
        ),
        ("warning: old\nfatal: no such remote\n", "fatal: no such remote"),
        ("", ""),
    ],
)
def test_the_words_that_git_adds_to_every_refused_push_hide_no_others(stderr: str, words: str) -> None:
    assert Done(argv=("push",), status=1, stdout=b"", stderr=stderr).last_words == words
