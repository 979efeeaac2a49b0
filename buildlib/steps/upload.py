"""upload:M (guide, section 3): the ONNX goes to its neutral place on the device."""

from __future__ import annotations

from functools import partial
from typing import Any

from buildlib.core.remote import source_path
from buildlib.steps.context import Outcome, StepContext
from buildlib.steps.left_over import past_own_job


def run(context: StepContext) -> Outcome:
    """Pushes each role's ONNX; bytes that are there already are not sent again. The device reads the hash back."""
    link = context.link()
    sent: dict[str, Any] = {}
    moved = total = 0
    for role, sha256 in context.parts["onnx"].items():
        blob = context.workspace.blobs.path(sha256)
        remote = source_path(context.device, context.model, role)
        size = blob.stat().st_size
        push = partial(link.push, blob, remote, sha256=sha256, on_progress=context.progress())
        if past_own_job(context, link, push):
            moved += size
        total += size
        sent[role] = {"path": remote, "size": size, "sha256": sha256}
    summary = f"{moved / 1e6:.1f} MB sent" if moved else f"{total / 1e6:.1f} MB were there already"
    return Outcome(
        result={"remote": sent},
        summary=summary,
        device_files={entry["path"]: entry["sha256"] for entry in sent.values()},
    )
