"""`doit rebuild M`: do a model's work again although nothing changed."""

from __future__ import annotations

from typing import Any

from buildlib.core import freshness
from buildlib.doit_parts.run_command import RunCommand
from buildlib.doit_parts.session import Session
from buildlib.errors import UsageError
from buildlib.steps.world import FileWorld

REDONE = ("source", "upload", "compile", "verify", "install")
"""Stages whose receipts are dropped; `pull` follows from the new compile."""


class RebuildCommand(RunCommand):
    """Drops the receipts of the model's present keys under the build lock, then builds it."""

    name = "rebuild"
    doc_purpose = "compile a model again although nothing changed"
    doc_usage = "MODEL ..."

    def execute(self, opt_values: Any, pos_args: list[str]) -> int:
        """As `doit MODEL`, after forgetting."""
        if not pos_args:
            print("doit rebuild: name the models to rebuild, or use `doit rebuild $(doit list -q)` with care")
            return UsageError.exit_status
        return super().execute(opt_values, pos_args)

    def before(self, session: Session, pos_args: list[str]) -> None:
        """Forgets under the lock, so that no other build sees half of it."""
        forget(session, pos_args)


def forget(session: Session, names: list[str]) -> None:
    """Drops the receipts of the models' present keys; older ones stay."""
    from buildlib.commands.base import chosen_models

    for name in chosen_models(session, names):
        subject = session.subject(name)
        for judgement in freshness.judge_model(subject, FileWorld(session.workspace)).values():
            if judgement.key is not None and judgement.stage in REDONE:
                session.workspace.receipts.forget(judgement.stage, judgement.key)
    session.moved()
