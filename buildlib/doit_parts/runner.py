"""Runners that stop at a cancel, and that give a device one task at a time."""

from __future__ import annotations

import bisect
import itertools
from typing import Any

from doit.exceptions import UnmetDependency
from doit.runner import FAILURE, JobHold, JobTaskPickle, MThreadRunner, Runner

from buildlib.doit_parts.session import Session


class _Ready:
    """Tasks that could run now. The next is the first model's, so that one model is finished before another begins."""

    def __init__(self, runner: Any, session: Session) -> None:
        self._runner = runner
        self._order = {name: place for place, name in enumerate(session.workspace.catalog.models)}
        self._count = itertools.count()
        self.parked: list[tuple[int, int, Any]] = []
        """(model's place, order of arrival, node), sorted."""
        self.exhausted = False

    def drain(self, dispatcher: Any, completed: Any) -> None:
        """Takes from the dispatcher all that is ready, so that a parked task never hides one that could run."""
        node = completed
        while not self.exhausted:
            try:
                node = dispatcher.generator.send(node)
            except StopIteration:
                self.exhausted = True
                return
            if node == "hold on":
                return
            if self._runner.select_task(node, dispatcher.tasks):
                place = self._order.get(_meta(node, "model") or "", -1)
                bisect.insort(self.parked, (place, next(self._count), node))
                node = None

    def take(self, busy: set[str]) -> Any:
        """The next task whose device is free, or None."""
        for at, (_, _, node) in enumerate(self.parked):
            if _meta(node, "device") not in busy:
                del self.parked[at]
                return node
        return None


def _meta(node: Any, name: str) -> str | None:
    value: str | None = (node.task.meta or {}).get(name)
    return value


class _OneStatus:
    """A failed step is exit status 1, also where others could not run because of it; 2 is left to doit's own errors."""

    final_result: int

    def _handle_task_error(self, node: Any, base_fail: Any) -> None:
        before = self.final_result
        super()._handle_task_error(node, base_fail)  # type: ignore[misc] # a mixin of doit's runners
        if isinstance(base_fail, UnmetDependency):
            self.final_result = max(before, FAILURE)


class CancellableRunner(_OneStatus, Runner):  # type: ignore[misc] # doit is untyped
    """One task after the other, in this thread, until the build is asked to stop."""

    def __init__(self, session: Session, *args: Any) -> None:
        super().__init__(*args)
        self.session = session

    def run_tasks(self, task_dispatcher: Any) -> None:
        """Runs what is ready, one model after the other."""
        ready = _Ready(self, self.session)
        node = None
        while not (self._stop_running or self.session.cancel.is_set()):
            ready.drain(task_dispatcher, node)
            node = ready.take(set())
            if node is None:
                return
            self.process_task_result(node, self.execute_task(node.task))


class DeviceRunner(_OneStatus, MThreadRunner):  # type: ignore[misc] # doit is untyped
    """Threads, each device held by one task at a time; tasks whose device is busy are parked, not waited for.

    A task names its device in `meta["device"]`; tasks without one run whenever a thread is free.
    """

    def __init__(self, session: Session, *args: Any) -> None:
        super().__init__(*args)
        self.session = session
        self._ready = _Ready(self, session)
        self._busy: dict[str, str] = {}

    def get_next_job(self, completed: Any) -> Any:
        """The next task whose device is free; JobHold while all that is ready waits for a device; None at the end."""
        if completed is not None:
            self._busy = {device: task for device, task in self._busy.items() if task != completed.task.name}
        if self._stop_running or self.session.cancel.is_set():
            return None
        self._ready.drain(self.task_dispatcher, completed)
        node = self._ready.take(set(self._busy))
        if node is not None:
            device = _meta(node, "device")
            if device is not None:
                self._busy[device] = node.task.name
            return JobTaskPickle(node.task)
        if self._ready.exhausted and not self._ready.parked:
            return None
        self.free_proc += 1
        return JobHold()
