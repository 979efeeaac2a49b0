"""Catalog -> doit tasks. `dodo.py` is the table; here is what a row becomes.

Each task has one `uptodate` callable, the judge of freshness, and no `file_dep`: doit schedules, receipts remember.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from doit.exceptions import InvalidDodoFile, TaskFailed

from buildlib import errors
from buildlib.core import stages
from buildlib.core.wording import for_device
from buildlib.doit_parts import session as sessions
from buildlib.doit_parts.session import Session
from buildlib.store.workspace import Workspace

Task = dict[str, Any]
NO_CAPTURE = {"capture": False}


class Project:
    """The tasks of one checkout, in one run of doit."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.catalog = session.workspace.catalog
        self._services: Any = None

    def preflight(self) -> Iterator[Task]:
        """One probe of each device in use, every run: an observation that never fails a build."""
        for device in self.session.devices_in_use():
            yield {
                "name": device.name,
                "doc": f"look at {device.name}: toolchain, health, what of ours is there",
                "actions": [(self._probe, (device.name,))],
                "uptodate": [False],
                "io": NO_CAPTURE,
                "meta": {"device": device.name, "ours": True},
            }

    def stage(self, name: str) -> Iterator[Task]:
        """One subtask a model for a stage."""
        row = stages.BY_NAME[name]
        for model in self.catalog.models.values():
            device = self.session.device_of(model).name
            looked_at = [f"preflight:{candidate.name}" for candidate in self.session.candidates(model)]
            after = [f"{before}:{model.name}" for before in row.after] or looked_at
            yield {
                "name": model.name,
                "doc": f"{name} {model.display_name}",
                "actions": [(self._step, (model.name, name))],
                "task_dep": after,
                "uptodate": [(self._is_done, (model.name, name))],
                "targets": self._targets(model.name) if name == "pull" else (),
                "io": NO_CAPTURE,
                "meta": {"device": device if row.on_device else None, "model": model.name, "ours": True},
            }

    def models(self) -> Iterator[Task]:
        """A task by each model's bare name: all that a bare `doit` does, for it alone."""
        for model in self.catalog.models.values():
            yield {
                "basename": model.name,
                "doc": f"build {model.display_name}",
                "actions": None,
                "task_dep": [f"{self._goal(model.name)}:{model.name}"],
                "meta": {"ours": True},
            }

    def default_tasks(self) -> list[str]:
        """What a bare `doit` selects."""
        return list(self.catalog.models)

    def _goal(self, model: str) -> str:
        return stages.default_goal(self.session.subject(model))

    def _targets(self, model: str) -> list[str]:
        names = self.catalog.models[model].artifacts.values()
        return [f"artifacts/{model}/{name}{suffix}" for name in names for suffix in ("", ".sha256")]

    def _is_done(self, model: str, stage: str) -> bool:
        judged = self.session.judged(model).get(stage)
        if judged is None:  # a stage past the model's default goal
            judged = self._judge_beyond(model, stage)
        if judged.done and judged.receipt is not None and judged.receipt.model != model:
            self.session.workspace.receipts.note_done(self.session.subject(model), judged)
        if stage == "source" and judged.done and judged.reason:
            self.services.events.warning(model, f"{judged.reason}; what came from there last is in the store")
        return judged.done

    def _judge_beyond(self, model: str, stage: str) -> Any:
        from buildlib.steps import perform

        return perform.is_done(self.services, self.session.subject(model), stage)

    def _step(self, model: str, stage: str) -> TaskFailed | None:
        from buildlib.steps import perform

        try:
            if stage == "compile":
                self.session.require_one_toolchain(model)
            perform.perform(self.services, self.session.subject(model), stage, again=self.session.always)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others go on and no traceback is shown
            return self._failed(f"{model} {stage} failed", error)
        finally:
            self.session.moved(model)
        return None

    def _probe(self, device: str) -> TaskFailed | None:
        from buildlib.steps import preflight

        try:
            seen = preflight.probe(
                self.services, self.catalog, self.catalog.devices[device], self.session.heard.pop(device, None)
            )
            if seen.reachable and seen.health["held"]:
                self._settle(device, set(seen.health["held"]))
        except Exception as error:  # noqa: BLE001 - as above
            return self._failed(f"{device} preflight failed", error)
        finally:
            self.session.moved()
        return None

    def _settle(self, device: str, held: set[str]) -> None:
        """Files that are there for a test: an install that is fresh, and so will not say it, begins their time anew."""
        from buildlib.steps import install

        for subject in map(self.session.subject, self.catalog.models):
            if subject.device.name == device and held & set(subject.model.artifacts.values()):
                install.settle(self.services, subject)

    def _failed(self, what: str, error: Exception) -> TaskFailed:
        if isinstance(error, errors.Cancelled):
            return TaskFailed(f"{what}: stopped on request", report=False)
        trace = "".join(traceback.format_exception(error)) if self.session.debug else ""
        if not isinstance(error, errors.BuildError):
            error = errors.internal(error)
        told = for_device(error.render(), self.session.chosen_device)
        return TaskFailed(f"{trace}{what}\n  what  {told}")

    @property
    def services(self) -> Any:
        """What steps act through; made when the first step runs, for a run with nothing to do needs none."""
        if self._services is None:
            from buildlib.console.lines import Console
            from buildlib.steps.context import RunOptions
            from buildlib.steps.services import open_services

            self._services = open_services(
                self.session.workspace,
                self.session.cancel,
                Console(warnings=self.session.warnings, device=self.session.chosen_device),
                RunOptions(**self.session.options),
            )
        return self._services


def open_project(dodo: str) -> Project:
    """The project of a dodo file. A wrong models.yaml ends the process here: all errors, status 4, nothing run."""
    if "buildlib.doit_parts.backend" not in sys.modules:
        raise InvalidDodoFile(
            "doit reads this project's parts from pyproject.toml in the current directory: "
            f"run doit in {Path(dodo).absolute().parent}"
        )
    session = sessions.current()
    if session is None:  # one of doit's own commands, such as list
        session = Session(Workspace(Path(dodo).absolute().parent))
        sessions.enter(session)
    try:
        return Project(session)
    except errors.BuildError as error:
        print(error.render(), file=sys.stderr)
        raise SystemExit(error.exit_status) from None
