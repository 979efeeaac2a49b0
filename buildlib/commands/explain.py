"""`doit explain M`: every difference between a step's last key and its present one, in words."""

from __future__ import annotations

from typing import Any

from buildlib.commands.base import ProjectCommand, chosen_models, opt_json, print_json
from buildlib.console.table import columns
from buildlib.core import freshness, wording
from buildlib.core.catalog import GitSource
from buildlib.core.freshness import Judgement, State
from buildlib.core.sources.lockfile import NAME as LOCK_NAME
from buildlib.core.stages import wanted
from buildlib.core.world import Subject
from buildlib.doit_parts.session import Session
from buildlib.steps.world import FileWorld


class ExplainCommand(ProjectCommand):
    """Reads receipts and files; asks no device."""

    name = "explain"
    doc_purpose = "say why a model's steps would run"
    doc_usage = "[MODEL ...]"
    own_options = (opt_json,)

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Explains each model's stages up to its goal, and those beyond it that were done once."""
        world = FileWorld(session.workspace)
        everything: dict[str, Any] = {}
        for name in chosen_models(session, arguments):
            subject = session.subject(name)
            goal = {stage.name for stage in wanted(subject)}
            everywhere = freshness.judge_model(subject, world)
            judged = {
                stage: judgement
                for stage, judgement in everywhere.items()
                if stage in goal or judgement.state is not State.NEVER
            }
            if options["json"]:
                everything[name] = {stage: as_plain(judgement) for stage, judgement in judged.items()}
            else:
                print("\n".join(as_lines(subject, judged, world)))
        if options["json"]:
            print_json(everything)
        return 0


def as_lines(subject: Subject, judged: dict[str, Judgement], world: FileWorld) -> list[str]:
    """One paragraph a stage that is not done; one line where all is."""
    lines: list[str] = []
    following = [j.stage for j in judged.values() if not j.done and j.reason.startswith("follows")]
    for judgement in judged.values():
        if judgement.done or judgement.stage in following:
            continue
        last = world.latest(subject, judgement.stage)
        since = f" (last done {last.finished})" if last else ""
        told = f"is {judgement.state}" if judgement.is_only_changed else judgement.told()
        lines.append(f"{subject.model.name} {judgement.stage} {told}{since}")
        rows = [
            [
                f"  {wording.subject_of(change)}",
                f"{wording.short(change.before)} -> {wording.short(change.after)}",
                wording.place_of(change, subject.catalog, subject.model, subject.device),
            ]
            for change in judgement.changes
        ]
        if judgement.stage == "source":
            rows += moved_commits(subject, world)
        lines += columns(rows)
    if following:
        lines.append(f"{subject.model.name} {', '.join(following)} follow{'s' if len(following) == 1 else ''}.")
    assumed = [judgement for judgement in judged.values() if judgement.done and judgement.reason]
    lines += [f"{subject.model.name} {judgement.stage} is assumed: {judgement.reason}" for judgement in assumed[:1]]
    return lines or [f"{subject.model.name} is up to date: every step has a receipt for its present key."]


def moved_commits(subject: Subject, world: FileWorld) -> list[list[str]]:
    """Rows for git sources whose pin was moved since the last build: their commits, which no key holds."""
    last = world.latest(subject, "source")
    if last is None:
        return []
    rows = []
    for role, spec in subject.model.sources.items():
        if not isinstance(spec, GitSource):
            continue
        pin = world.workspace.lock.pin(subject.model.name, role)
        before = last.result["sources"].get(role, {}).get("detail", {}).get("commit")
        if pin is not None and before not in (None, pin.commit):
            rows.append(
                [f"  commit of {spec.ref}", f"{before[:12]} -> {pin.commit[:12]}", f"{LOCK_NAME} ({spec.repository})"]
            )
    return rows


def as_plain(judgement: Judgement) -> dict[str, Any]:
    """A judgement for programs."""
    return {
        "state": str(judgement.state),
        "reason": judgement.reason,
        "changes": [{"path": c.path, "before": c.before, "after": c.after} for c in judgement.changes],
    }
