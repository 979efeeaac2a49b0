"""`doit abandon MODEL`: drop our commit that did not reach the remote."""

from __future__ import annotations

from typing import Any

from buildlib import errors
from buildlib.commands.base import ProjectCommand, chosen_models
from buildlib.commands.publishing import target_and_model
from buildlib.doit_parts.session import Session


class AbandonCommand(ProjectCommand):
    """What was pushed stays; see `unpublish` for that."""

    name = "abandon"
    doc_purpose = "drop a publication that was committed and not pushed"
    doc_usage = "MODEL ..."
    writes = True

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Says what was dropped."""
        if not arguments:
            raise errors.UsageError("no model was named", expected="doit abandon MODEL")
        for name in chosen_models(session, arguments):
            target, model = target_and_model(session, name)
            dropped = target.abandon(model)
            if dropped:
                session.workspace.receipts.drop_attempt("publish", name)
            print(f"{name}: dropped {dropped}" if dropped else f"{name}: nothing of it waits for a push")
        return 0
