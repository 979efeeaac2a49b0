"""What a run says: nothing for what is fresh, a line for what was done, and the failures last, each with its remedy."""

from __future__ import annotations

import time
from typing import Any


class LinesReporter:
    """doit's reporter interface. Steps print their own lines through the events port."""

    desc = "one line a step, silence for what is fresh"

    def __init__(self, outstream: Any, options: Any) -> None:
        self.out = outstream
        self.failures: list[tuple[str, str]] = []
        self.blocked: list[str] = []
        self.errors: list[str] = []
        self.worked_on: set[str] = set()
        self.compiled = False
        self.touched: set[str] = set()
        self.ignored: dict[str, str | None] = {}
        self.selected: list[str] = []
        self.started = time.monotonic()

    def initialize(self, tasks: Any, selected_tasks: Any) -> None:
        """Called before the first task."""
        self.selected = list(selected_tasks)

    def get_status(self, task: Any) -> None:
        """A task is looked at."""
        model = (task.meta or {}).get("model")
        if model is not None:
            self.touched.add(model)

    def execute_task(self, task: Any) -> None:
        """A task starts; its step speaks for itself."""

    def add_success(self, task: Any) -> None:
        """A task ended well."""
        model = (task.meta or {}).get("model")
        if model is not None and task.actions:
            self.worked_on.add(model)
            self.compiled |= task.name.startswith("compile:")

    def skip_uptodate(self, task: Any) -> None:
        """Silence is the reward."""

    def skip_ignore(self, task: Any) -> None:
        """A task that `doit ignore` named, or one that waits for such a one and says nothing."""
        if not self.ignored.keys() & set(task.task_dep):
            self._say(f"{task.name} is ignored (doit ignore); `doit forget {task.name}` ends that")
        self.ignored[task.name] = (task.meta or {}).get("model")

    def add_failure(self, task: Any, fail: Any) -> None:
        """A task failed, or could not run because another one did."""
        if type(fail).__name__ == "UnmetDependency":
            self.blocked.append(task.name)
            return
        self.failures.append((task.name, fail.get_msg().strip()))

    def cleanup_error(self, exception: Any) -> None:
        """No task has a teardown."""
        self.errors.append(exception.get_msg())

    def runtime_error(self, msg: str) -> None:
        """An error of doit's own."""
        self.errors.append(msg)

    def teardown_task(self, task: Any) -> None:
        """No task has a teardown."""

    def complete_run(self) -> None:
        """The last lines: failures first, then one line that sums up."""
        for _, message in self.failures:
            self._say(message)
        for error in self.errors:
            self._say(error)
        self._say(self.summary())

    def summary(self) -> str:
        """The last line."""
        # Here and not above: doit loads its reporter also for a run that finds nothing to do (see `idle`).
        from buildlib.core.freshness import State
        from buildlib.core.wording import counted
        from buildlib.doit_parts import session as sessions

        session = sessions.current()
        if session is not None and session.cancel.is_set():
            return "Stopped on request. What was finished stays finished."
        if self.failures or self.errors:
            failed = len(self.failures) + len(self.errors)
            own = {name.partition(":")[2] for name, _ in self.failures}
            rest = sorted({name.partition(":")[2] for name in self.blocked if ":" in name} - own)
            waiting = f" Not done for that reason: {', '.join(rest)}." if rest else ""
            return f"{counted(failed, 'step')} failed.{waiting}"
        if self.worked_on:
            seconds = time.monotonic() - self.started
            warned = len(session.warnings) if session is not None else 0
            told = f", {counted(warned, 'warning')} above" if warned else ""
            done = "built" if self.compiled else "done"
            return f"{counted(len(self.worked_on), 'model')} {done} in {seconds:.0f} s{told}."
        if self.selected and not self.touched:
            return "No model was asked for, devices only: `doit doctor` shows what they say."
        assumed = session is not None and any(
            judgement.state is State.ASSUMED for model in self.touched for judgement in session.judged(model).values()
        )
        passed_over = self.touched & set(self.ignored.values())
        ignored = f", {len(passed_over)} ignored" if passed_over else ""
        fresh = len(self.touched) - len(passed_over)
        return f"{counted(fresh, 'model')} up to date{' (assumed)' if assumed else ''}{ignored}."

    def _say(self, text: str) -> None:
        self.out.write(f"{text}\n")
        self.out.flush()
