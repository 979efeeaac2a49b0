"""`doit rebuild M`: do a model's work again although nothing changed."""

from __future__ import annotations

import sys
from typing import Any

from buildlib.commands.base import chosen_models
from buildlib.doit_parts.run_command import RunCommand
from buildlib.doit_parts.session import Session
from buildlib.errors import UsageError


class RebuildCommand(RunCommand):
    """`doit --always MODEL` for models only. What was recorded stands until something new takes its place."""

    name = "rebuild"
    doc_purpose = "compile a model again although nothing changed"
    doc_usage = "MODEL ..."

    def execute(self, opt_values: Any, pos_args: list[str]) -> int:
        """As `doit --always MODEL`."""
        if not pos_args:
            error = UsageError("no model was named", expected="doit rebuild MODEL ...")
            print(error.render(), file=sys.stderr)
            return error.exit_status
        opt_values["always"] = True
        return super().execute(opt_values, pos_args)

    def before(self, session: Session, pos_args: list[str]) -> None:
        """Refuses what is no model's name."""
        chosen_models(session, pos_args)
