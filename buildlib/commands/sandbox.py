"""`doit sandbox`: a models repository with manifests, a bare origin and a server, to try publishing on."""

from __future__ import annotations

from typing import Any

from buildlib import errors
from buildlib.commands.base import ProjectCommand
from buildlib.core.catalog import Target
from buildlib.doit_parts.session import Session
from buildlib.sandbox import make_sandbox
from buildlib.steps.targets import root_of, sandbox_of

opt_serve = {
    "name": "serve",
    "short": "",
    "long": "serve",
    "type": bool,
    "default": False,
    "help": "serve its files until Ctrl-C (confirm starts the server by itself)",
}


class SandboxCommand(ProjectCommand):
    """Makes what `sandbox: true` targets of models.yaml point at."""

    name = "sandbox"
    doc_purpose = "make a models repository with its own origin and server to practise publishing on"
    own_options = (opt_serve,)
    writes = True
    takes_words = False

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Makes the sandbox, or says that it is there."""
        for settings in practice_targets(session):
            root = root_of(session.workspace, settings).parent
            there = sandbox_of(session.workspace, settings) is not None
            sandbox = make_sandbox(root)
            print(
                f"{settings.name}: {sandbox.clone} with origin {sandbox.origin}{' was there already' if there else ''}"
            )
            if options["serve"]:
                with sandbox.serving() as url:
                    print(f"{settings.name}: serving {url} until Ctrl-C", flush=True)
                    session.cancel.wait()
                return 0
        print("Try: doit publish:nopp confirm:nopp")
        return 0


def practice_targets(session: Session) -> list[Target]:
    """The git targets that are marked as sandboxes and named like one that we make."""
    found = [t for t in session.workspace.catalog.targets.values() if t.sandbox and t.kind == "git"]
    if not found:
        raise errors.UsageError(
            "models.yaml has no sandbox target",
            remedy="add under `targets:` a line `sandbox: { repository: .build/sandbox/IQModels, sandbox: true }`",
        )
    return found
