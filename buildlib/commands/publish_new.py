"""`doit publish-new MODEL`: publish a model whose bundle the manifests do not have yet."""

from __future__ import annotations

import sys
from typing import Any

from buildlib import errors
from buildlib.commands.base import chosen_models
from buildlib.doit_parts.run_command import RunCommand
from buildlib.doit_parts.session import Session

PUBLISH = "publish:"


class PublishNewCommand(RunCommand):
    """As `doit publish:MODEL`, and the bundle is added in each manifest's own style."""

    name = "publish-new"
    doc_purpose = "publish a model and add its bundle to the manifests"
    doc_usage = "MODEL ..."
    new_bundle = True

    def execute(self, opt_values: Any, pos_args: list[str]) -> int:
        """Runs publish:MODEL with permission to add."""
        if not pos_args:
            error = errors.UsageError("no model was named", expected="doit publish-new MODEL ...")
            print(error.render(), file=sys.stderr)
            return error.exit_status
        return super().execute(opt_values, [f"{PUBLISH}{name}" for name in pos_args])

    def before(self, session: Session, pos_args: list[str]) -> None:
        """Refuses what is no model's name."""
        chosen_models(session, [word.removeprefix(PUBLISH) for word in pos_args])
