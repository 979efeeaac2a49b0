"""`doit plan [TASK ...]`: what would run and why, changing nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from buildlib.commands.base import ProjectCommand, opt_json, print_json
from buildlib.console.table import columns
from buildlib.core import freshness
from buildlib.core.catalog import Model
from buildlib.core.freshness import Judgement
from buildlib.core.stages import BY_NAME, Stage, stages_up_to, wanted
from buildlib.core.unknown_names import check_apart, unknown_device, unknown_model, unknown_task
from buildlib.core.wording import change_of, counted, for_device
from buildlib.core.world import Subject
from buildlib.doit_parts.session import Session
from buildlib.steps.world import FileWorld


class PlanCommand(ProjectCommand):
    """Reads receipts and files; asks no device and writes nothing."""

    name = "plan"
    doc_purpose = "show what would run and why"
    doc_usage = "[TASK ...]"
    own_options = (opt_json,)

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Plans the named tasks, or all that a bare `doit` does."""
        world = FileWorld(session.workspace)
        plans: list[tuple[Subject, list[Judgement]]] = []
        for name, stages in goals(session, arguments).items():
            subject = session.subject(name)
            judged = freshness.judge_model(subject, world, stages)
            plans.append((subject, [judgement for judgement in judged.values() if not judgement.done]))
        if not options["json"]:
            print("\n".join(as_lines(plans, world)))
        told: dict[str, dict[str, Any]] = {s.model.name: {j.stage: j.reason for j in todo} for s, todo in plans}
        for name in [argument.partition(":")[2] for argument in arguments if argument.startswith("publish:")]:
            from buildlib.commands import publishing

            publication = publishing.plan_publish(session, name)
            if options["json"]:
                told[name]["publication"] = publishing.as_values(publication)
            else:
                print(for_device("\n".join(publishing.as_lines(publication)), session.chosen_device))
        if options["json"]:
            print_json(told)
        return 0


def goals(session: Session, arguments: list[str]) -> dict[str, tuple[Stage, ...]]:
    """The stages that a command line asks of each model: `nopp`, `compile`, `compile:nopp`; nothing means all."""
    models, devices = session.workspace.catalog.models, session.workspace.catalog.devices
    check_apart(arguments, BY_NAME, models)
    asked: dict[str, tuple[Stage, ...]] = {}
    for argument in arguments or list(models):
        stage, _, model = argument.partition(":")
        if argument in models:
            stages, names = wanted(session.subject(argument)), [argument]
        elif stage in BY_NAME:
            if model and model not in models:
                raise unknown_model(model, list(models))
            stages, names = stages_up_to(stage), [model] if model else list(models)
        elif stage == "preflight":
            if model and model not in devices:
                raise unknown_device(model, devices)
            continue
        elif (made := made_by(argument, models.values())) is not None:
            stages, names = stages_up_to("pull"), [made]
        else:
            tasks = [*models, *(f"{row}{each}" for row in BY_NAME for each in ("", *(f":{name}" for name in models)))]
            raise unknown_task(argument, tasks, "task or artifact")
        for name in names:
            asked[name] = max(asked.get(name, ()), stages, key=len)
    return asked


def made_by(path: str, models: Iterable[Model]) -> str | None:
    """The model that a path names an artifact of, as `doit PATH` takes it."""
    for model in models:
        if path.removesuffix(".sha256") in (f"artifacts/{model.name}/{name}" for name in model.artifacts.values()):
            return model.name
    return None


SHOWN = 3
"""Of a step's changes so many are told; `doit explain` tells all."""


def why(judgement: Judgement) -> str:
    """The reason for a step in one line."""
    if judgement.is_only_changed:
        left = len(judgement.changes) - SHOWN
        told = "; ".join(change_of(change) for change in judgement.changes[:SHOWN])
        return f"{told}; and {left} more" if left > 0 else told
    return f"failed at {judgement.tried}: {judgement.reason}" if judgement.tried else judgement.reason


def as_lines(plans: list[tuple[Subject, list[Judgement]]], world: FileWorld) -> list[str]:
    """A line a step that has its own reason, one for those that only follow, and a sum."""
    rows: list[list[str]] = []
    seconds = 0.0
    busy = [subject for subject, todo in plans if todo]
    for subject, todo in plans:
        own = [judgement for judgement in todo if not judgement.reason.startswith("follows")]
        following = [judgement.stage for judgement in todo if judgement.reason.startswith("follows")]
        for judgement in own:
            what = "restore" if judgement.restorable else judgement.stage
            rows.append([subject.model.name, what, why(judgement)])
        if following:
            rows.append([subject.model.name, ", ".join(following), "follow"])
        for judgement in todo:
            last = world.latest(subject, judgement.stage)
            seconds += last.seconds if last is not None and not judgement.restorable else 0.0
    if not busy:
        return ["Nothing to do."]
    idle = [subject.model.name for subject, todo in plans if not todo]
    rest = f" {', '.join(idle)} stay{'s' if len(idle) == 1 else ''} as {'it is' if len(idle) == 1 else 'they are'}."
    about = f", about {seconds:.0f} s" if seconds >= 1 else ""
    return [*columns(rows), f"{counted(len(busy), 'model')}{about}.{rest if idle else ''}"]
