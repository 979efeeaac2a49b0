"""`doit new NAME FILE|URL|REPOSITORY#REF:PATH ...`: look into a model and append it to models.yaml."""

from __future__ import annotations

from typing import Any

from buildlib import errors
from buildlib.commands.base import ProjectCommand
from buildlib.commands.new_model import add_model
from buildlib.console.lines import Console
from buildlib.doit_parts.session import Session


class NewCommand(ProjectCommand):
    """Guesses kind, artifact name, display name and folder as the guide does; comments and layout stay."""

    name = "new"
    doc_purpose = "add a model to models.yaml after looking into it"
    doc_usage = "NAME SOURCE ..."
    writes = True

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Appends the entry and says what to run next."""
        if len(arguments) < 2:
            raise errors.UsageError(
                "a name and a source are needed",
                expected="doit new NAME FILE|URL|REPOSITORY#REF:PATH",
                remedy="a split model has one source a part",
            )
        name, *texts = arguments
        print(add_model(session.workspace, name, texts, events=Console(), cancel=session.cancel).text())
        return 0
