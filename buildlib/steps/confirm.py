"""confirm:M (guide, section 16): what was published comes back by the manifest's URL and by a device's selector."""

from __future__ import annotations

from typing import Any

import msgspec

from buildlib.core.manifests.manifest import Entry
from buildlib.core.stages import target_of
from buildlib.ports.source import SourceContext
from buildlib.steps.context import Outcome, StepContext
from buildlib.steps.redownload import redownload
from buildlib.steps.selector import confirm_on_device
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
        on_device = confirm_on_device(context, entries, settings)
    total = sum(entry["size"] for entry in confirmed.values())
    return Outcome(
        result={"confirmed": confirmed, "on_device": on_device},
        summary=f"{total / 1e6:.1f} MB downloaded by the manifest's URL, sha256 as published; {told(on_device)}",
    )


def told(on_device: dict[str, Any]) -> str:
    """What a device proved, in a clause."""
    if "skipped" in on_device:
        return f"not on a device: {on_device['skipped']}"
    did = "downloaded, selected and validated" if on_device["verdicts"] else "downloaded and selected"
    return f"{did} on {on_device['device']}, its earlier selection put back"


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
