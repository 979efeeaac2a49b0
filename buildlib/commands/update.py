"""`doit update [MODEL ...]`: follow git sources' moving references and write models.lock."""

from __future__ import annotations

from typing import Any

from buildlib.commands.base import ProjectCommand, chosen_models
from buildlib.commands.update_pins import update_pins
from buildlib.console.lines import Console
from buildlib.core.sources.lockfile import changes
from buildlib.doit_parts.session import Session


class UpdateCommand(ProjectCommand):
    """The only command that moves a pin; a build never does."""

    name = "update"
    doc_purpose = "resolve git sources' refs anew and write models.lock"
    doc_usage = "[MODEL ...]"
    writes = True

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Says what moved."""
        models = chosen_models(session, arguments) if arguments else []
        before, after = update_pins(session.workspace, models, events=Console(), cancel=session.cancel)
        moved = changes(before, after)
        print("\n".join(moved) if moved else "Nothing moved.")
        return 0
