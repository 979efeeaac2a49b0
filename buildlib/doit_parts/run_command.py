"""`doit` and `doit TASK`: doit's own run command, with the build lock before it and a cancel instead of a crash."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doit.cmd_run import Run
from doit.exceptions import InvalidCommand

from buildlib import errors
from buildlib.core.unknown_names import check_apart, unknown_task
from buildlib.doit_parts import idle
from buildlib.doit_parts.command_line import Spoken, chosen_device, spelt
from buildlib.doit_parts.interrupts import Interrupts
from buildlib.store import locks

if TYPE_CHECKING:
    from buildlib.doit_parts.session import Session

LOCK_WAIT = 6 * 3600.0
"""Seconds that a second build waits for the first."""

opt_debug = {
    "name": "debug",
    "short": "",
    "long": "debug",
    "type": bool,
    "default": False,
    "help": "show tracebacks",
}


opt_keep = {
    "name": "keep_refused",
    "short": "",
    "long": "keep",
    "type": bool,
    "default": False,
    "help": "leave an artifact that validation refused installed, to look at it",
}
opt_without_onroad = {
    "name": "without_onroad",
    "short": "",
    "long": "without-onroad",
    "type": str,
    "default": "",
    "help": "publish without an onroad attestation; the REASON is written into the commit",
}
opt_supersede = {
    "name": "supersede",
    "short": "",
    "long": "supersede",
    "type": bool,
    "default": False,
    "help": "replace a manifest entry that somebody else has made newer",
}


class RunCommand(Spoken, Run):  # type: ignore[misc] # doit is untyped
    """One build at a time in a checkout; a second waits and says for whom."""

    name = "run"
    doc_purpose = "build what is stale"
    new_bundle = False
    cmd_options = (*Run.cmd_options, opt_keep, opt_without_onroad, opt_supersede, opt_debug)

    def execute(self, opt_values: Any, pos_args: list[str]) -> int:
        """Takes the lock before models.yaml is read, so that a waiting build sees what the first one left."""
        interrupts = Interrupts()
        restore = interrupts.listen()
        try:
            return self._locked(interrupts, opt_values, pos_args)
        except errors.BuildError as error:
            if opt_values.get("debug"):
                traceback.print_exc()
            print(error.render(), file=sys.stderr)
            return interrupts.exit_status or error.exit_status
        except KeyboardInterrupt:
            return errors.EXIT_INTERRUPTED
        finally:
            restore()

    def before(self, session: Session, pos_args: list[str]) -> None:
        """What a command like this one does under the lock before the build starts."""

    def _locked(self, interrupts: Interrupts, opt_values: Any, pos_args: list[str]) -> int:
        root, device = project_root(opt_values), chosen_device()
        plain = type(self) is RunCommand and is_plain(opt_values, pos_args)
        with locks.exclusive(
            root / ".build" / "lock",
            " ".join([spelt(self.name), *pos_args]),
            wait=LOCK_WAIT,
            on_wait=lambda holder: print(f"waiting for {holder}", file=sys.stderr),
            stop=interrupts.cancel.is_set,
        ) as former_died:
            heard: dict[str, Any] = {}
            if plain and not former_died:
                line = idle.nothing_to_do(root, device, interrupts.cancel, heard)
                if line is not None and interrupts.exit_status is None:
                    print(line)
                    return 0
            status = self._build(root, interrupts, opt_values, pos_args, heard, plain=plain, former_died=former_died)
        return interrupts.exit_status if interrupts.exit_status is not None else status

    def _build(
        self,
        root: Path,
        interrupts: Interrupts,
        opt_values: Any,
        pos_args: list[str],
        heard: dict[str, Any],
        *,
        plain: bool,
        former_died: bool,
    ) -> int:
        from buildlib.core.stages import BY_NAME, FROM_INSTALL
        from buildlib.doit_parts import session as sessions
        from buildlib.store import leftovers
        from buildlib.store.workspace import Workspace

        session = sessions.Session(Workspace(root), chosen_device(), interrupts)
        session.heard = heard
        session.debug = bool(opt_values.get("debug"))
        session.options = {
            "keep_refused": bool(opt_values.get("keep_refused")),
            "without_onroad": opt_values.get("without_onroad") or None,
            "supersede": bool(opt_values.get("supersede")),
            "to_install": self.new_bundle or any(word.partition(":")[0] in FROM_INSTALL for word in pos_args),
            "new_bundle": self.new_bundle,
        }
        sessions.enter(session)
        with session.workspace.saving():
            if former_died:
                leftovers.sweep(session.workspace)
            check_apart(pos_args, BY_NAME, session.workspace.catalog.models)
            self.before(session, pos_args)
            status: int = super().execute(opt_values, pos_args)
            if plain and status == 0 and interrupts.exit_status is None and self._was_idle(session):
                from buildlib.doit_parts import idle_note

                idle_note.leave(session, self._listener.summary())
        return status

    def _was_idle(self, session: Session) -> bool:
        """All that models.yaml declares, and nothing else, was looked at, and nothing of it had to be done."""
        return (
            not self._listener.worked_on
            and self.control.selected_tasks == list(session.workspace.catalog.models)
            and all(task.has_subtask or (task.meta or {}).get("ours") for task in self.control.tasks.values())
        )

    def _execute(
        self,
        outfile: Any,
        verbosity: Any = None,
        always: bool = False,
        continue_: bool = False,
        reporter: Any = "console",
        num_process: int = 0,
        par_type: str = "thread",
        single: bool = False,
        auto_delayed_regex: bool = False,
        force_verbosity: bool = False,
        failure_verbosity: int = 0,
        pdb: bool = False,
    ) -> int:
        """As doit's, with runners that know about cancelling and about devices."""
        from doit.control import TaskControl
        from doit.task import Stream

        from buildlib.core.declaration.names import COMMANDS, DOIT_COMMANDS
        from buildlib.doit_parts import session as sessions
        from buildlib.doit_parts.runner import CancellableRunner, DeviceRunner

        session = sessions.current()
        assert session is not None
        session.always = always
        self.control = TaskControl(self.task_list, auto_delayed_regex=auto_delayed_regex)
        try:
            self.control.process(self.sel_tasks)
        except InvalidCommand as invalid:
            known = [*self.control.tasks, *COMMANDS, *DOIT_COMMANDS]
            raise unknown_task(str(invalid.not_found), known, "command, task or artifact") from None
        if single:
            self._drop_dependencies()
        session.options |= {
            "to_validate": self._models_of("validate", self._reached()),
            "to_stay": self._models_of("install", self.control.selected_tasks),
        }
        chosen = self.reporters[reporter] if isinstance(reporter, str) else reporter
        stream = Path(outfile).open("w", encoding="utf-8") if isinstance(outfile, str) else outfile  # noqa: SIM115
        try:
            listener = chosen(stream, {"failure_verbosity": failure_verbosity}) if isinstance(chosen, type) else chosen
            self._listener = listener
            arguments = [self.dep_manager, listener, continue_, always, Stream(verbosity, force_verbosity)]
            runner = (
                DeviceRunner(session, *arguments, num_process)
                if num_process
                else CancellableRunner(session, *arguments)
            )
            status: int = runner.run_all(self.control.task_dispatcher())
            return status
        finally:
            if isinstance(outfile, str):
                stream.close()

    def _reached(self) -> set[str]:
        """The selected tasks and all that they wait for."""
        reached: set[str] = set()
        waiting = list(self.control.selected_tasks)
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += self.control.tasks[name].task_dep
        return reached

    def _models_of(self, stage: str, names: Iterable[str]) -> frozenset[str]:
        """The models whose task of a stage is among the names, be it by its group's."""
        inner = [dep for name in names if name == stage for dep in self.control.tasks[name].task_dep]
        return frozenset(name.removeprefix(f"{stage}:") for name in (*names, *inner) if name.startswith(f"{stage}:"))

    def _drop_dependencies(self) -> None:
        """Of what comes before a task the look at its devices alone stays: no step acts on yesterday's observation.

        Raises UsageError for a name that is no step but all steps of a model: without them nothing is left of it.
        """
        for name in self.control.selected_tasks:
            task = self.control.tasks[name]
            if not task.actions and not task.has_subtask:
                raise errors.UsageError(
                    f"{name} is no single step: -s does the named steps without those before them",
                    expected=f"a step, such as compile:{name}",
                    remedy="doit" if self.sel_default_tasks else f"doit {name}",
                )
            for inner in [self.control.tasks[dep] for dep in task.task_dep] if task.has_subtask else [task]:
                inner.task_dep = self._looks_before(inner.name) if inner.actions else []

    def _looks_before(self, name: str) -> list[str]:
        before = self.control.tasks[name].task_dep
        found = [dep for dep in before if dep.startswith("preflight:")]
        for dep in before:
            found += self._looks_before(dep)
        return list(dict.fromkeys(found))


def is_plain(opt_values: Any, pos_args: list[str]) -> bool:
    """True for a bare `doit`, with nothing said that asks for more than looking after everything."""
    from doit import doit_cmd

    words = ("always", "single", "pdb", "debug", "cwdPath", "seek_file", "auto_delayed_regex")
    own = ("keep_refused", "without_onroad", "supersede")
    return (
        not pos_args
        and not any(opt_values.get(name) for name in (*words, *own))
        and opt_values.get("reporter") == "lines"
        and opt_values.get("outfile") is sys.stdout
        and set(doit_cmd._CMDLINE_VARS or ()) <= {"device"}
    )


def project_root(opt_values: Any) -> Path:
    """The directory of the dodo file that doit is about to load."""
    return Path(opt_values.get("dodoFile") or "dodo.py").absolute().parent
