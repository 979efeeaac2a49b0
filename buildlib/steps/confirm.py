"""confirm:M (guide, section 16): what was published is downloaded by the manifest's own URL, and compared."""

from __future__ import annotations

from typing import Any

import msgspec

from buildlib.core.manifest import Entry
from buildlib.core.stages import target_of
from buildlib.ports.source import SourceContext
from buildlib.steps.context import Outcome, StepContext
from buildlib.steps.redownload import redownload
from buildlib.steps.targets import resolved, serving


def run(context: StepContext) -> Outcome:
    """Asks the host until it shows the new bytes; other bytes than the old and the new ones are an error at once."""
    published = context.upstream["publish"].result
    entries = msgspec.convert(published["entries"], tuple[Entry, ...])
    former = msgspec.convert(published["former"], tuple[Entry, ...])
    settings = resolved(context.workspace, target_of(context.subject))
    confirmed: dict[str, Any] = {}
    incoming = context.workspace.state / "incoming"
    incoming.mkdir(parents=True, exist_ok=True)
    with serving(context.workspace, settings):
        for entry in entries:
            into = incoming / f"confirm-{entry.sha256[:16]}-{context.model.name}"
            done = redownload(entry, former, into, surroundings(context), timeout=settings.confirm_timeout)
            done.path.unlink(missing_ok=True)
            confirmed[entry.file_name] = {
                "url": entry.url,
                "sha256": done.sha256,
                "size": done.size,
                "tries": done.tries,
            }
    total = sum(entry["size"] for entry in confirmed.values())
    return Outcome(
        result={"confirmed": confirmed},
        summary=f"{total / 1e6:.1f} MB downloaded by the manifest's URL, sha256 as published",
    )


def surroundings(context: StepContext) -> SourceContext:
    """What a download needs."""
    return SourceContext(
        root=context.workspace.root,
        state=context.workspace.state / "sources",
        hash_file=context.workspace.hash_file,
        subject=context.model.name,
        events=context.events,
        cancel=context.services.cancel,
    )
