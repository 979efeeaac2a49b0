"""The command line as doit reads it, with errors that say what was meant, and no word that is silently ignored."""

from __future__ import annotations

import getopt
import io
import sys
from collections.abc import Iterable
from typing import Any

from buildlib.errors import UsageError

VARIABLES = ("device",)
"""`NAME=VALUE` words that mean something, on any command."""


class Spoken:
    """Before a command of doit: options are taken after names too, and a wrong word is an error that helps."""

    def parse_execute(self, in_args: list[str]) -> Any:
        """Checks the words, then does as doit's."""
        from doit import doit_cmd

        command: Any = self
        if isinstance(sys.stdout, io.TextIOWrapper):  # a model's name is any text, a terminal's encoding is not
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            taken = doit_cmd._CMDLINE_VARS or {}
            check_variables([name for name in taken if is_variable(name)], command.get_name())
            words = in_args if all(map(is_variable, taken)) else with_equals_signs(in_args, sys.argv[1:])
            words = options_first(words, command.cmdparser, command.get_name())
        except UsageError as error:
            print(error.render(), file=sys.stderr)
            return error.exit_status
        return super().parse_execute(words)  # type: ignore[misc] # doit's Command is next in line


def options_first(words: list[str], parser: Any, command: str) -> list[str]:
    """The words with options before names, which is all that doit's parser takes: `doit publish:nopp --supersede`.

    Raises UsageError for an option that the command does not have, that lacks its value, or has a wrong one.
    """
    from doit.cmdparse import CmdParseError

    try:
        options, names = getopt.gnu_getopt(words, parser.get_short(), parser.get_long())
    except getopt.GetoptError as error:
        raise UsageError(f"{spelt(command)}: {error.msg}", remedy=_near_option(error.opt, parser, command)) from None
    ordered = []
    for word, value in options:
        option, _ = parser.get_option(word)
        ordered += [word] if option.type is bool else [word, value]
    if any(name.startswith("-") for name in names):
        ordered.append("--")
    try:
        parser.parse([*ordered, *names])
    except CmdParseError as error:
        text = " ".join(str(error).replace("\n", " ").split()).rstrip(".:")
        raise UsageError(f"{spelt(command)}: {text}", remedy=f"doit help {command}") from None
    return [*ordered, *names]


def is_variable(name: str) -> bool:
    """False for what lies before the = of a path or URL, which doit takes for a variable all the same."""
    return name.isidentifier()


def with_equals_signs(words: list[str], typed: list[str]) -> list[str]:
    """What doit left of the words that were typed, with the paths and URLs that it took for variables in their places.

    `doit new nopp https://host/nopp.onnx?token=1`
    """
    left = list(words)
    found = []
    for word in typed:
        if left and word == left[0]:
            found.append(left.pop(0))
        elif not word.startswith("-") and "=" in word and not is_variable(word.partition("=")[0]):
            found.append(word)
    return found + left


def check_variables(names: Iterable[str], command: str) -> None:
    """Raises UsageError for a `NAME=VALUE` word that nothing listens to."""
    from difflib import get_close_matches

    for name in names:
        if name in VARIABLES:
            continue
        near = get_close_matches(name, VARIABLES, 1)
        raise UsageError(
            f"{spelt(command)}: nothing listens to {name}=",
            expected=" or ".join(f"{known}=NAME" for known in VARIABLES),
            remedy=f"did you mean {near[0]}=NAME?" if near else f"a file of that name is ./{name}=...",
        )


def chosen_device() -> str | None:
    """The device of `device=NAME`, or None. Raises UsageError for an empty name: it would build on the usual device."""
    from doit.doit_cmd import get_var

    device: str | None = get_var("device")
    if device is not None and not device.strip():
        raise UsageError("device= names no device", expected="device=NAME", remedy="leave it out for the usual device")
    return device


def spelt(command: str) -> str:
    """A command as it is typed: `run` is what a bare `doit` does."""
    return "doit" if command == "run" else f"doit {command}"


def _near_option(wrong: str, parser: Any, command: str) -> str:
    from difflib import get_close_matches

    known = [option.rstrip("=") for option in parser.get_long()]
    near = [name for name in get_close_matches(wrong, known, 1) if name != wrong]
    return f"did you mean --{near[0]}? `doit help {command}` lists them all" if near else f"doit help {command}"
