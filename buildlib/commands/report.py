"""`doit report`: guide section 17's fifteen points for each model, filled from receipts."""

from __future__ import annotations

from typing import Any

import msgspec

from buildlib.commands.base import ProjectCommand, chosen_models, opt_json, print_json
from buildlib.core import freshness
from buildlib.core.checklist import Point, checklist
from buildlib.core.doctor import flag_differences
from buildlib.core.flags import effective_profile
from buildlib.core.stages import published_digests
from buildlib.doit_parts.session import Session
from buildlib.steps.publish import runtime_digest
from buildlib.steps.world import FileWorld, read_observation
from buildlib.store import attestations


class ReportCommand(ProjectCommand):
    """Reads receipts; asks nobody."""

    name = "report"
    doc_purpose = "show the release checklist of the guide, point by point"
    doc_usage = "[MODEL ...]"
    own_options = (opt_json,)

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """One list a model."""
        found = {name: points_of(session, name) for name in chosen_models(session, arguments)}
        if options["json"]:
            print_json({name: msgspec.to_builtins(points) for name, points in found.items()})
            return 0
        for name, points in found.items():
            done = sum(point.done for point in points)
            print(f"{name}: {done} of {len(points)} points")
            for point in points:
                print(f"  {point.number:>2} {'done' if point.done else '  - '}  {point.text}: {point.evidence}")
        return 0


def points_of(session: Session, name: str) -> list[Point]:
    """The checklist of one model."""
    workspace, subject = session.workspace, session.subject(name)
    judged = freshness.judge_model(subject, FileWorld(workspace))
    compiled = judged["compile"].receipt
    artifacts = published_digests(subject.model, {"compile": compiled}) if compiled else {}
    seen = read_observation(workspace, subject.device.name)
    profile = effective_profile(subject.catalog, subject.model, subject.device)
    return checklist(
        judged,
        artifacts,
        attestations.read_all(workspace.root, name),
        runtime=runtime_digest(workspace, subject.device.name),
        flags_differ=flag_differences(seen.flags if seen is not None else None, profile),
    )
