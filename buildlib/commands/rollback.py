"""`doit rollback MODEL`: put back the newest backup of a model's artifact that verifies (guide, section 8)."""

from __future__ import annotations

from typing import Any

from buildlib import errors
from buildlib.commands.base import ProjectCommand, chosen_models
from buildlib.console.lines import Console
from buildlib.doit_parts.session import Session
from buildlib.steps.services import open_services
from buildlib.steps.world import observe_files


class RollbackCommand(ProjectCommand):
    """The device checks its own state in the same command; nothing is changed on one that is onroad."""

    name = "rollback"
    doc_purpose = "put back the artifact that was installed before"
    doc_usage = "MODEL ..."
    writes = True

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Rolls each named model back on its device."""
        if not arguments:
            raise errors.UsageError("no model was named", expected="doit rollback MODEL")
        services = open_services(session.workspace, session.cancel, Console())
        for name in chosen_models(session, arguments):
            subject = session.subject(name)
            for artifact in subject.model.artifacts.values():
                done = services.link(subject.device).call("rollback", name=artifact, model=name)
                observe_files(session.workspace, subject.device.name, {done["active"]: done["sha256"] or ""})
                print(f"{name}: {done['active']} {_told(done)}")
            stays = f"devices.{subject.device.name}.install: false"
            print(f"{name}: the next build installs the newest artifact again; set {stays} to stay with this one")
        return 0


def _told(done: dict[str, Any]) -> str:
    """What became of the active file."""
    if done["sha256"] is None:
        return "was there for its validation, and is removed; there was none before"
    return f"is {done['sha256'][:12]} again, from {done['backup'] or 'before its validation'}"
