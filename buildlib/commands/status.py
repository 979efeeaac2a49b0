"""`doit status`: a row a model, a column a stage, and the first reason of what is not fresh."""

from __future__ import annotations

from typing import Any, NamedTuple

from buildlib.commands.base import ProjectCommand, chosen_models, opt_json, print_json
from buildlib.console.table import columns
from buildlib.core import freshness
from buildlib.core.attestation import last_drive
from buildlib.core.freshness import Judgement, State
from buildlib.core.key import digest
from buildlib.core.stages import STAGES, published_digests, wanted
from buildlib.core.world import Subject
from buildlib.doit_parts.session import Session
from buildlib.steps.world import FileWorld
from buildlib.store import attestations

BEFORE_ONROAD = "validate"
"""The column that attested drives follow, as in guide section 9."""

opt_only = {
    "name": "only",
    "short": "",
    "long": "only",
    "type": str,
    "default": "",
    "choices": (("stale", "models that have something to do"),),
    "help": "show only these models",
}


class Row(NamedTuple):
    """One model. onroad: of its attested drives, see `last_drive`."""

    subject: Subject
    judged: dict[str, Judgement]
    onroad: str | None


class StatusCommand(ProjectCommand):
    """Reads receipts and files; asks no device."""

    name = "status"
    doc_purpose = "show what is fresh, stale, failed, assumed or never done"
    doc_usage = "[MODEL ...]"
    own_options = (opt_json, opt_only)

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Judges every stage of every model."""
        world = FileWorld(session.workspace)
        found: list[Row] = []
        for name in chosen_models(session, arguments):
            subject = session.subject(name)
            judged = freshness.judge_model(subject, world)
            if options["only"] != "stale" or not _settled(subject, judged):
                found.append(Row(subject, judged, _onroad(world, subject, judged)))
        if options["json"]:
            print_json([as_plain(row) for row in found])
        elif not found:
            print("Nothing is stale.")
        else:
            print("\n".join(as_lines(found)))
        return 0


def _onroad(world: FileWorld, subject: Subject, judged: dict[str, Judgement]) -> str | None:
    kept, compiled = attestations.read_all(world.workspace.root, subject.model.name), judged["compile"].receipt
    made = published_digests(subject.model, {"compile": compiled}) if compiled else {}
    identity = world.device(subject.device.name).identity
    return last_drive(kept, made, digest(identity) if identity is not None else None)


def _settled(subject: Subject, judged: dict[str, Judgement]) -> bool:
    goal = wanted(subject)
    return all(judged[stage.name].done or (stage not in goal and _never(judged[stage.name])) for stage in STAGES)


def _never(judgement: Judgement) -> bool:
    return judgement.state is State.NEVER


def cell(judgement: Judgement) -> str:
    """A state as the table shows it: what needs a person's eye stands out without colour."""
    return judgement.state.upper() if judgement.state in (State.STALE, State.FAILED) else str(judgement.state)


def first_reason(judged: dict[str, Judgement]) -> str | None:
    """Why the first stage that is not done is not."""
    for judgement in judged.values():
        if not judgement.done:
            return f"{judgement.stage} {judgement.told()}"
    assumed = next((judgement for judgement in judged.values() if judgement.state is State.ASSUMED), None)
    return f"assumed: {assumed.reason}" if assumed else None


def as_lines(found: list[Row]) -> list[str]:
    """The table, then a line a model that has something to say."""
    names = [stage.name for stage in STAGES]
    place = names.index(BEFORE_ONROAD) + 1
    rows = [["", "device", *names[:place], "onroad", *names[place:]]]
    reasons = []
    for subject, judged, onroad in found:
        goal = {stage.name for stage in wanted(subject)}
        cells = [
            "-" if name not in goal and _never(judgement) else cell(judgement) for name, judgement in judged.items()
        ]
        cells.insert(place, onroad.partition("T")[0] if onroad else "-")
        rows.append([subject.model.name, subject.device.name, *cells])
        told = (State.STALE, State.FAILED)
        reason = first_reason({name: seen for name, seen in judged.items() if name in goal or seen.state in told})
        if reason:
            reasons.append(f"{subject.model.name}: {reason}")
    return columns(rows) + reasons


def as_plain(row: Row) -> dict[str, Any]:
    """A model's state for programs: hashes whole. onroad: when it was driven, "void" for other bytes, or null."""
    return {
        "model": row.subject.model.name,
        "device": row.subject.device.name,
        "onroad": row.onroad,
        "stages": {
            name: {
                "state": str(judgement.state),
                "reason": judgement.reason,
                "key": judgement.key,
                "finished": judgement.receipt.finished if judgement.receipt else None,
                "result": judgement.receipt.result if judgement.receipt else None,
            }
            for name, judgement in row.judged.items()
        },
    }
