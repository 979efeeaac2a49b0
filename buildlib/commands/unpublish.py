"""`doit unpublish MODEL`: put the former artifact and manifest entries back, pushed and confirmed."""

from __future__ import annotations

from typing import Any

from buildlib import errors
from buildlib.commands.base import ProjectCommand, chosen_models
from buildlib.commands.publishing import target_and_model
from buildlib.console.lines import Console
from buildlib.core.stages import target_of
from buildlib.doit_parts.session import Session
from buildlib.ports.source import SourceContext
from buildlib.steps.redownload import redownload
from buildlib.steps.targets import resolved, serving


class UnpublishCommand(ProjectCommand):
    """A publication of its own: one commit that reverts one."""

    name = "unpublish"
    doc_purpose = "put the former artifact and manifest entries back"
    doc_usage = "MODEL ..."
    writes = True

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Reverts each named model, then downloads what its entries name now."""
        if not arguments:
            raise errors.UsageError("no model was named", expected="doit unpublish MODEL")
        for name in chosen_models(session, arguments):
            self._unpublish(session, name)
        return 0

    def _unpublish(self, session: Session, name: str) -> None:
        target, model = target_and_model(session, name)
        console = Console()
        settings = resolved(session.workspace, target_of(session.subject(name)))
        done = target.unpublish(model, f"Take back {model.display_name}", console, session.cancel)
        if not done.changed:
            print(f"{name}: nothing to put back")
            return
        where = f" in {done.commit[:12]}" if done.commit else ""
        if not done.entries:
            print(f"{name}: its files and its bundle are taken out{where}; nothing stood there before")
            return
        print(f"{name}: the former artifact is published again{where}")
        incoming = session.workspace.state / "incoming"
        incoming.mkdir(parents=True, exist_ok=True)
        surroundings = SourceContext(
            root=session.workspace.root,
            state=session.workspace.state / "sources",
            hash_file=session.workspace.hash_file,
            subject=name,
            events=console,
            cancel=session.cancel,
        )
        with serving(session.workspace, settings):
            for entry in done.entries:
                if entry.url is None:
                    continue
                into = incoming / f"confirm-{entry.sha256[:16]}"
                try:
                    found = redownload(entry, done.former, into, surroundings, timeout=settings.confirm_timeout)
                except errors.Cancelled:
                    raise
                except errors.BuildError as error:
                    shows = f"see later that its URL shows {entry.sha256[:12]}"
                    error.remedy = f"{name} is taken back all the same: {shows}"
                    raise
                found.path.unlink(missing_ok=True)
                print(f"{name}: {entry.file_name} downloads as {found.sha256[:12]}")
