"""doit's own commands, as they are, behind this project's way of reading a command line."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

from doit.cmd_base import DoitCmdBase
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
from doit.exceptions import InvalidCommand, InvalidDodoFile, InvalidTask

from buildlib.core.unknown_names import unknown_task
from buildlib.doit_parts.command_line import Spoken
from buildlib.errors import BuildError, UsageError, unforeseen


class Named(Spoken):
    """Before a command of doit that takes names of tasks: an unknown one is told as everywhere else."""

    name: str
    task_list: Any

    def execute(self, opt_values: Any, pos_args: list[str]) -> int:
        """As doit's, which has a message without remedy for such a name, or a traceback; so has a full disk."""
        try:
            status: int = super().execute(opt_values, pos_args)  # type: ignore[misc] # doit's Command is next in line
        except (InvalidCommand, InvalidTask, KeyError):
            tasks = [task.name for task in getattr(self, "task_list", ())]
            unknown = next((word for word in pos_args if word not in tasks and "*" not in word), None)
            if unknown is None or not tasks:
                raise
            error = unknown_task(unknown, tasks)
            print(error.render(), file=sys.stderr)
            return error.exit_status
        except (BuildError, OSError) as refused:
            told = refused if isinstance(refused, BuildError) else unforeseen(f"doit {self.name}", refused)
            print(told.render(), file=sys.stderr)
            return told.exit_status
        return status


class CleanCommand(Named, Clean):  # type: ignore[misc] # doit is untyped
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


class ForgetCommand(Named, Forget):  # type: ignore[misc]
    """`doit forget`."""

    name = "forget"


class HelpCommand(Spoken, Help):  # type: ignore[misc]
    """`doit help`: doit's own takes an unknown word for none, and ends well."""

    name = "help"

    def execute(self, opt_values: Any, pos_args: list[str]) -> int:
        """As doit's; a word that is neither command nor task is a usage error."""
        if len(pos_args) == 1 and pos_args[0] != "task" and pos_args[0] not in self.cmds:
            found = False
            with contextlib.suppress(InvalidDodoFile):  # where no project is, commands can still be asked about
                found = DoitCmdBase.execute(self, opt_values, pos_args)
            if not found:
                known = [*self.cmds, *(task.name for task in getattr(self, "task_list", ()))]
                error = unknown_task(pos_args[0], known, "command or task")
                print(error.render(), file=sys.stderr)
                return error.exit_status
            return 0
        status: int = super().execute(opt_values, pos_args)
        return status


class IgnoreCommand(Named, Ignore):  # type: ignore[misc]
    """`doit ignore`."""

    name = "ignore"


class InfoCommand(Named, Info):  # type: ignore[misc]
    """`doit info`."""

    name = "info"


class ListCommand(Named, List):  # type: ignore[misc]
    """`doit list`."""

    name = "list"


class ResetDepCommand(Named, ResetDep):  # type: ignore[misc]
    """`doit reset-dep`."""

    name = "reset-dep"


class StraceCommand(Spoken, Strace):  # type: ignore[misc]
    """`doit strace`: doit's own would build outside the lock, and sees shell commands only; here are none."""

    name = "strace"
    doc_purpose = "not for this project: its steps start no shell commands"

    def execute(self, opt_values: Any, pos_args: list[str]) -> int:
        """Runs nothing."""
        error = UsageError("doit strace traces shell commands, and no step here is one", remedy="strace -f doit TASK")
        print(error.render(), file=sys.stderr)
        return error.exit_status
