"""`doit publish-new MODEL`: publish a model whose bundle the manifests do not have yet."""

from __future__ import annotations

from typing import Any

from buildlib import errors
from buildlib.doit_parts.run_command import RunCommand


class PublishNewCommand(RunCommand):
    """As `doit publish:MODEL`, and the bundle is added in each manifest's own style."""

    name = "publish-new"
    doc_purpose = "publish a model and add its bundle to the manifests"
    doc_usage = "MODEL ..."
    new_bundle = True

    def execute(self, opt_values: Any, pos_args: list[str]) -> int:
        """Runs publish:MODEL with permission to add."""
        if not pos_args:
            error = errors.UsageError("no model was named", expected="doit publish-new MODEL")
            print(error.render())
            return error.exit_status
        return super().execute(opt_values, [f"publish:{name}" for name in pos_args])
