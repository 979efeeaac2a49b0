"""publish:M (guide, sections 13 to 15): files first, manifests last, one reviewed commit, or nothing at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from buildlib import errors
from buildlib.core import catalog, freshness, wording
from buildlib.core.gate import Obstacle, confinement, obstacles
from buildlib.core.key import KEY_FORMAT, differences, digest
from buildlib.core.manifests.release import message
from buildlib.core.receipt import Receipt
from buildlib.core.stages import STAGES, published_digests, target_of
from buildlib.core.world import Subject
from buildlib.ports.target import Artifact, Request
from buildlib.steps.context import Outcome, RunOptions, StepContext
from buildlib.steps.targets import open_target, resolved
from buildlib.steps.world import FileWorld, read_observation
from buildlib.store import attestations
from buildlib.store.receipts import now
from buildlib.store.workspace import Workspace


def run(context: StepContext) -> Outcome:
    """Publishes what the gate lets through."""
    missing = gate(context.workspace, context.subject, context.services.options)
    if missing:
        raise refused(context.model.name, missing)
    settings = target_of(context.subject)
    request = make_request(context.workspace, context.subject, context.services.options)
    _begin(context)
    target = open_target(context.workspace, settings, events=context.events, cancel=context.services.cancel)
    published = target.publish(request, context.events, context.services.cancel)
    earlier = last_publication(context.workspace, context.subject)
    former = published.former or (earlier.result.get("former", ()) if earlier and not published.changed else ())
    commit = f" in {published.commit[:12]}" if published.commit else ""
    return Outcome(
        result={
            "changed": published.changed,
            "commit": published.commit,
            "files": msgspec.to_builtins(published.files),
            "paths": list(published.paths),
            "entries": msgspec.to_builtins(published.entries),
            "former": msgspec.to_builtins(former),
            "message": request.message,
            "compile_parts": context.upstream["compile"].parts,
            "without_onroad": context.services.options.without_onroad,
        },
        summary=f"{len(published.paths)} paths{commit} to {settings.name}"
        if published.changed
        else "stood there already",
    )


def gate(workspace: Workspace, subject: Subject, options: RunOptions) -> list[Obstacle]:
    """What stands between a model's present artifact and its target."""
    world = FileWorld(workspace)
    judged = freshness.judge_model(subject, world, STAGES)
    compiled = judged["compile"].receipt
    if compiled is None:
        return [
            Obstacle(f"{subject.model.name} is not compiled: {judged['compile'].reason}", f"doit {subject.model.name}")
        ]
    return obstacles(
        subject,
        target_of(subject),
        judged,
        published_digests(subject.model, {"compile": compiled}),
        world.device(subject.device.name),
        attestations.read_all(workspace.root, subject.model.name),
        runtime=runtime_digest(workspace, subject.device.name),
        without_onroad=options.without_onroad,
    )


def runtime_digest(workspace: Workspace, device: str) -> str | None:
    """Digest of the toolchain that runs artifacts on a device; None before it was ever probed."""
    seen = read_observation(workspace, device)
    return digest(seen.identity) if seen is not None and seen.identity is not None else None


def refused(model: str, missing: list[Obstacle]) -> errors.BuildError:
    """The gate's refusal: rails first."""
    ordered = sorted(missing, key=lambda one: not one.rail)
    kind = errors.RailRefused if ordered[0].rail else errors.VerdictRefused
    others = "".join(f"; {one.what}" for one in ordered[1:])
    return kind(f"{model} is not published: {ordered[0].what}{others}", guide="9", remedy=ordered[0].remedy)


def make_request(workspace: Workspace, subject: Subject, options: RunOptions) -> Request:
    """What the target is asked for: bytes from the content store, and the words of the commit."""
    world = FileWorld(workspace)
    judged = freshness.judge_model(subject, world, STAGES)
    compiled = judged["compile"].receipt
    if compiled is None:
        raise errors.BuildError(f"{subject.model.name} is not compiled", remedy=f"doit {subject.model.name}")
    last = last_publication(workspace, subject)
    settings = resolved(workspace, target_of(subject))
    receipts = [one.receipt for one in judged.values() if one.receipt is not None]
    return Request(
        model=subject.model,
        artifacts=artifacts(workspace, subject.model, compiled),
        message=subject_line(subject, settings, compiled, last, options),
        build_time=now(),
        tinygrad=tinygrad_of(workspace, subject.device.name),
        confined=confinement(subject, receipts),
        last_published=last.parts["artifacts"] if last is not None else {},
        cut_off=tuple(receipt.parts["artifacts"] for receipt in cut_off(workspace, subject)),
        supersede=options.supersede,
        new_bundle={} if options.new_bundle else None,
    )


def last_publication(workspace: Workspace, subject: Subject) -> Receipt | None:
    """What was published last of a model at its target's place, from whichever device it came."""
    return max(_at_place(workspace, subject, "publish"), key=lambda receipt: receipt.finished, default=None)


BEGUN = "publishing"
"""Under this name a receipt says that a publication began: a kill after its push leaves no other word of it."""


def cut_off(workspace: Workspace, subject: Subject) -> list[Receipt]:
    """Publications that began since the last one that ended well: what they may have pushed is ours."""
    last = last_publication(workspace, subject)
    begun = _at_place(workspace, subject, BEGUN)
    return [] if last is not None and last.key in {receipt.key for receipt in begun} else begun


def _begin(context: StepContext) -> None:
    receipts = context.workspace.receipts
    if not cut_off(context.workspace, context.subject):
        for receipt in _at_place(context.workspace, context.subject, BEGUN):
            receipts.forget(BEGUN, receipt.key)
    receipts.put(
        Receipt(
            stage=BEGUN,
            model=context.model.name,
            device=context.device.name,
            key=context.key,
            key_format=KEY_FORMAT,
            version=1,
            parts=context.parts,
            result={},
            finished=now(),
            seconds=0,
        )
    )


def _at_place(workspace: Workspace, subject: Subject, stage: str) -> list[Receipt]:
    """Receipts of a model, under its present or its former name, at its target's place."""
    settings = target_of(subject)
    place = (settings.repository, settings.branch)
    names = (subject.model.name, subject.model.was)
    return [
        receipt
        for receipt in workspace.receipts.of(stage)
        if receipt.model in names
        and (receipt.parts["target"]["repository"], receipt.parts["target"]["branch"]) == place
    ]


def artifacts(workspace: Workspace, model: catalog.Model, compiled: Receipt) -> tuple[Artifact, ...]:
    """A model's artifacts as the content store has them."""
    return tuple(
        Artifact(
            file_name=model.artifacts[role],
            path=workspace.artifact_blob(model.name, model.artifacts[role], made["sha256"]),
            sha256=made["sha256"],
            size=made["size"],
        )
        for role, made in compiled.result["artifacts"].items()
    )


def tinygrad_of(workspace: Workspace, device: str) -> str | None:
    """The tinygrad that made the artifacts: its commit, else its content digest."""
    seen = read_observation(workspace, device)
    if seen is None:
        return None
    commit = seen.people.get("tinygrad_commit") if not seen.people.get("tinygrad_dirty") else None
    return commit or (seen.identity or {}).get("tinygrad")


def subject_line(
    subject: Subject, target: catalog.Target, compiled: Receipt, last: Receipt | None, options: RunOptions
) -> str:
    """`Recompile No PP (June 26, 2026) with OPENPILOT_HACKS=1`, and the reason for publishing without a drive."""
    before = last.result.get("compile_parts") if last is not None else None
    text = message(target, subject.model, changes(before, compiled.parts))
    reason = options.without_onroad
    return f"{text} (without an onroad drive: {' '.join(reason.split())})" if reason else text


def changes(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """What changed in a compile's key since the last publication, in a few words."""
    if before is None:
        flags = [f"{name}={value}" for name, value in after["flags"].items()]
        return " ".join(flags) or "no flags"
    words = []
    for change in differences(before, after):
        what = wording.subject_of(change)
        if change.path.startswith("flags."):
            words.append(f"{what}={change.after}" if change.after is not None else f"no {what}")
        elif change.path.startswith("onnx."):
            words.append("a new ONNX")
        else:
            words.append(f"{what} {wording.short(change.after)}")
    return ", ".join(dict.fromkeys(words)) or "the same key"
