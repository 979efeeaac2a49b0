"""How words on the command line are read."""

from __future__ import annotations

from typing import Any

import pytest

from buildlib.doit_parts import command_line
from buildlib.doit_parts.run_command import RunCommand
from buildlib.errors import UsageError


@pytest.fixture
def parser() -> Any:
    from doit.cmd_base import DodoTaskLoader

    return RunCommand(task_loader=DodoTaskLoader()).cmdparser


def test_options_are_taken_after_names_as_remedies_write_them(parser: Any) -> None:
    words = ["publish:one", "--supersede", "--without-onroad", "", "-n", "2"]
    assert command_line.options_first(words, parser, "run") == [
        "--supersede",
        "--without-onroad",
        "",
        "-n",
        "2",
        "publish:one",
    ]


def test_names_behind_two_dashes_stay_names(parser: Any) -> None:
    words = command_line.options_first(["--keep", "--", "-odd"], parser, "run")
    assert parser.parse(words)[1] == ["-odd"]


@pytest.mark.parametrize("words", [["--bogus"], ["-n", "x"], ["--db-file"], ["one", "--supresede"]])
def test_a_wrong_option_is_told_in_one_line_with_a_remedy(parser: Any, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        command_line.options_first(words, parser, "run")
    assert "CmdOption" not in caught.value.render()
    assert caught.value.remedy is not None
    assert len(caught.value.headline().splitlines()) == 1


def test_the_near_option_is_named(parser: Any) -> None:
    with pytest.raises(UsageError, match="did you mean --supersede"):
        command_line.options_first(["--supresede"], parser, "run")


def test_a_misspelt_variable_is_refused_and_the_right_one_is_not() -> None:
    command_line.check_variables(["device"], "run")
    with pytest.raises(UsageError, match="did you mean device=NAME"):
        command_line.check_variables(["devise"], "run")


def test_paths_and_urls_that_hold_an_equals_sign_keep_their_places() -> None:
    typed = ["-k", "new", "device=desk", "one", "https://host/a.onnx?b=c", "--debug", "/tmp/d=e"]
    words = ["one", "--debug"]
    assert command_line.with_equals_signs(words, typed) == ["one", "https://host/a.onnx?b=c", "--debug", "/tmp/d=e"]
