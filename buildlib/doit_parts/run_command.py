"""`doit` and `doit TASK`: doit's own run command, with the build lock before it and a cancel instead of a crash."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

from doit.cmd_run import Run
from doit.doit_cmd import get_var
from doit.exceptions import InvalidCommand

from buildlib import errors
from buildlib.doit_parts import session as sessions
from buildlib.doit_parts.reporter import LinesReporter
from buildlib.store import leftovers, locks
from buildlib.store.workspace import Workspace

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


class RunCommand(Run):  # type: ignore[misc] # doit is untyped
    """One build at a time in a checkout; a second waits and says for whom."""

    name = "run"
    doc_purpose = "build what is stale"
    new_bundle = False
    cmd_options = (*Run.cmd_options, opt_keep, opt_without_onroad, opt_supersede, opt_debug)

    def execute(self, opt_values: Any, pos_args: list[str]) -> int:
        """Takes the lock before models.yaml is read, so that a waiting build sees what the first one left."""
        debug = bool(opt_values.get("debug"))
        session = sessions.Session(Workspace(project_root(opt_values)), get_var("device"))
        session.debug = debug
        session.options = {
            "keep_refused": bool(opt_values.get("keep_refused")),
            "without_onroad": opt_values.get("without_onroad") or None,
            "supersede": bool(opt_values.get("supersede")),
            "new_bundle": self.new_bundle,
        }
        sessions.enter(session)
        restore = session.listen_to_signals()
        try:
            return self._locked(session, opt_values, pos_args)
        except errors.BuildError as error:
            if debug:
                traceback.print_exc()
            print(error.render(), file=sys.stderr)
            return session.exit_status or error.exit_status
        except KeyboardInterrupt:
            return errors.EXIT_INTERRUPTED
        finally:
            restore()

    def before(self, session: sessions.Session, pos_args: list[str]) -> None:
        """What a command like this one does under the lock before the build starts."""

    def _locked(self, session: sessions.Session, opt_values: Any, pos_args: list[str]) -> int:
        purpose = " ".join(["doit", *pos_args])
        workspace = session.workspace
        with (
            locks.exclusive(
                workspace.state / "lock",
                purpose,
                wait=LOCK_WAIT,
                on_wait=lambda holder: print(f"waiting for {holder}", file=sys.stderr),
                stop=session.cancel.is_set,
            ) as former_died,
            workspace.saving(),
        ):
            if former_died:
                leftovers.sweep(workspace)
            self.before(session, pos_args)
            status: int = super().execute(opt_values, pos_args)
        return session.exit_status if session.exit_status is not None else status

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

        from buildlib.doit_parts.runner import CancellableRunner, DeviceRunner

        session = sessions.current()
        assert session is not None
        session.always = always
        self.control = TaskControl(self.task_list, auto_delayed_regex=auto_delayed_regex)
        try:
            self.control.process(self.sel_tasks)
        except InvalidCommand as invalid:
            raise unknown_task(str(invalid.not_found), list(self.control.tasks)) from None
        if single:
            self._drop_dependencies()
        chosen = self.reporters[reporter] if isinstance(reporter, str) else reporter
        stream = Path(outfile).open("w", encoding="utf-8") if isinstance(outfile, str) else outfile  # noqa: SIM115
        try:
            listener = chosen(stream, {"failure_verbosity": failure_verbosity}) if isinstance(chosen, type) else chosen
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

    def _drop_dependencies(self) -> None:
        for name in self.control.selected_tasks:
            task = self.control.tasks[name]
            for inner in [self.control.tasks[dep] for dep in task.task_dep] if task.has_subtask else [task]:
                inner.task_dep = []


def unknown_task(name: str, tasks: list[str]) -> errors.UsageError:
    """The error for a name on the command line that is no task."""
    from difflib import get_close_matches

    near = get_close_matches(name, tasks, 1)
    return errors.UsageError(
        f"{name!r} is no command, task or artifact",
        remedy=f"did you mean {near[0]!r}?" if near else "`doit list --all` shows all tasks, `doit help` all commands",
    )


def project_root(opt_values: Any) -> Path:
    """The directory of the dodo file that doit is about to load."""
    return Path(opt_values.get("dodoFile") or "dodo.py").absolute().parent


__all__ = ["LinesReporter", "RunCommand"]
