"""doit's own commands, as they are, behind this project's way of reading a command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from doit.cmd_clean import Clean
from doit.cmd_completion import TabCompletion
from doit.cmd_dumpdb import DumpDB
from doit.cmd_forget import Forget
from doit.cmd_help import Help
from doit.cmd_ignore import Ignore
from doit.cmd_info import Info
from doit.cmd_list import List
from doit.cmd_resetdep import ResetDep
from doit.cmd_strace import Strace

from buildlib.doit_parts.command_line import Spoken


class CleanCommand(Spoken, Clean):  # type: ignore[misc] # doit is untyped
    """`doit clean`."""

    name = "clean"


class TabCompletionCommand(Spoken, TabCompletion):  # type: ignore[misc]
    """`doit tabcompletion`."""

    name = "tabcompletion"


class DumpDbCommand(Spoken, DumpDB):  # type: ignore[misc]
    """`doit dumpdb`: doit's own reads dbm files only, and ours is text."""

    name = "dumpdb"
    doc_purpose = "show doit's own marks; the truth is in receipts: doit status --json"

    def execute(self, opt_values: Any, pos_args: list[str]) -> int:
        """Prints the file."""
        marks = Path(opt_values["dep_file"])
        print(marks.read_text(encoding="utf-8", errors="replace").rstrip() if marks.is_file() else "{}")
        return 0


class ForgetCommand(Spoken, Forget):  # type: ignore[misc]
    """`doit forget`."""

    name = "forget"


class HelpCommand(Spoken, Help):  # type: ignore[misc]
    """`doit help`."""

    name = "help"


class IgnoreCommand(Spoken, Ignore):  # type: ignore[misc]
    """`doit ignore`."""

    name = "ignore"


class InfoCommand(Spoken, Info):  # type: ignore[misc]
    """`doit info`."""

    name = "info"


class ListCommand(Spoken, List):  # type: ignore[misc]
    """`doit list`."""

    name = "list"


class ResetDepCommand(Spoken, ResetDep):  # type: ignore[misc]
    """`doit reset-dep`."""

    name = "reset-dep"


class StraceCommand(Spoken, Strace):  # type: ignore[misc]
    """`doit strace`."""

    name = "strace"
