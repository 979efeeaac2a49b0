"""The stages of a build, in pipeline order: what each one's key is made of, and when its result still stands.

A stage is data and two small functions. Its place in doit's graph (`after`) and in the key (`inputs`) differ on
purpose: `verify` waits for `pull`, but what it depends on is the artifact's content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from buildlib.core.catalog import Model, Target
from buildlib.core.flags import effective_flags, expected_device
from buildlib.core.receipt import Receipt
from buildlib.core.remote import active_path, source_path
from buildlib.core.world import Subject, World

Upstream = Mapping[str, Receipt]


class NotKnowable(Exception):
    """A part of a key is not known. reason and remedy are shown to people."""

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


@dataclass(frozen=True)
class Lapse:
    """Why a recorded result no longer stands although its key is the same."""

    reason: str
    restorable: bool = False


@dataclass(frozen=True)
class Stage:
    """One row of the table.

    inputs: stages whose results are part of the key. after: stages that must be done before it may run. version: of the
    step's own code here; a test over the syntax trees says when to raise it. on_device: it needs a live device.
    """

    name: str
    version: int
    inputs: tuple[str, ...]
    after: tuple[str, ...]
    on_device: bool
    parts: Callable[[Subject, Upstream, World], dict[str, Any]]
    lapse: Callable[[Subject, Receipt, World], Lapse | None]


def artifact_digests(upstream: Upstream) -> dict[str, str]:
    """sha256 of a model's artifacts by role, as its compile left them."""
    return {role: entry["sha256"] for role, entry in upstream["compile"].result["artifacts"].items()}


def onnx_digests(upstream: Upstream) -> dict[str, str]:
    """sha256 of a model's ONNX files by role."""
    return {role: entry["sha256"] for role, entry in upstream["source"].result["sources"].items()}


def compile_arguments(model: Model, expected: str) -> dict[str, Any]:
    """What the compile script is told (guide, section 5), as part of the key. Sizes are [width, height] in pixels.

    Of a split model neither warps nor queues are captured: cameras and frame skip change nothing of it; but the same
    ONNX files make one artifact for all roles, or one a role.
    """
    always = {"kind": model.kind, "model_size": list(model.model_size), "expected_device": expected}
    if model.kind != "supercombo":
        return {**always, "artifacts": sorted(model.artifacts)}
    return {
        **always,
        "camera_resolutions": [list(size) for size in model.camera_resolutions],
        "frame_skip": model.frame_skip,
    }


def _identity(subject: Subject, world: World) -> dict[str, Any]:
    seen = world.device(subject.device.name)
    if seen.identity is None:
        raise NotKnowable(seen.problem or f"{subject.device.name} has not been probed yet", seen.remedy)
    return dict(seen.identity)


def _unit(subject: Subject, world: World) -> str:
    seen = world.device(subject.device.name)
    if not seen.unit:
        raise NotKnowable(seen.problem or f"{subject.device.name} has not been probed yet", seen.remedy)
    return seen.unit


def _source_parts(subject: Subject, upstream: Upstream, world: World) -> dict[str, Any]:
    contents: dict[str, Any] = {}
    for role in subject.model.sources:
        seen = world.source(subject, role)
        if seen.content is None:
            problem = seen.problem or "the source has not been looked at"
            raise NotKnowable(f"{subject.catalog.source_line(subject.model, role)}: {problem}", seen.remedy)
        contents[role] = dict(seen.content)
    return {"onnx": contents, "kind": subject.model.kind}


def _source_lapse(subject: Subject, receipt: Receipt, world: World) -> Lapse | None:
    lost = [entry["sha256"] for entry in receipt.result["sources"].values() if not world.blob(entry["sha256"])]
    return Lapse("the content store has lost the ONNX", restorable=True) if lost else None


def _upload_parts(subject: Subject, upstream: Upstream, world: World) -> dict[str, Any]:
    roles = subject.model.sources
    return {
        "onnx": onnx_digests(upstream),
        "unit": _unit(subject, world),
        "remote": {role: source_path(subject.device, subject.model, role) for role in roles},
    }


def _upload_lapse(subject: Subject, receipt: Receipt, world: World) -> Lapse | None:
    return _gone_from_device(subject, receipt.result["remote"], world)


def _gone_from_device(subject: Subject, entries: Mapping[str, Mapping[str, str]], world: World) -> Lapse | None:
    """Why files that were put on a device are not what they were; an unreachable device says nothing."""
    seen = world.device(subject.device.name)
    for entry in entries.values():
        there = seen.files.get(entry["path"])
        if seen.reachable and there != entry["sha256"]:
            what = "is gone from" if there is None else "has other bytes on"
            return Lapse(f"{entry['path']} {what} {subject.device.name}", restorable=True)
    return None


def _compile_parts(subject: Subject, upstream: Upstream, world: World) -> dict[str, Any]:
    expected = expected_device(subject.catalog, subject.model, subject.device)
    return {
        "onnx": onnx_digests(upstream),
        "flags": effective_flags(subject.catalog, subject.model, subject.device),
        "arguments": compile_arguments(subject.model, expected),
        "script": world.script(subject),
        "toolchain": _identity(subject, world),
    }


def _compile_lapse(subject: Subject, receipt: Receipt, world: World) -> Lapse | None:
    files = world.device(subject.device.name).files
    for role, entry in receipt.result["artifacts"].items():
        here = world.blob(entry["sha256"]) or _at_target(subject.model, role, world) == entry["sha256"]
        if not here and files.get(entry["path"]) != entry["sha256"]:
            return Lapse("the artifact is lost here and on the device")
    return None


def _at_target(model: Model, role: str, world: World) -> str | None:
    return world.file(f"artifacts/{model.name}/{model.artifacts[role]}")


def _pull_parts(subject: Subject, upstream: Upstream, world: World) -> dict[str, Any]:
    return {
        "artifacts": artifact_digests(upstream),
        "names": dict(subject.model.artifacts),
        "model": subject.model.name,
    }


def _pull_lapse(subject: Subject, receipt: Receipt, world: World) -> Lapse | None:
    for target in receipt.targets:
        there = world.file(target.path)
        if there != target.sha256:
            what = "is missing" if there is None else "is not what this build made"
            return Lapse(f"{target.path} {what}", restorable=True)
    return None


def _verify_parts(subject: Subject, upstream: Upstream, world: World) -> dict[str, Any]:
    expected = expected_device(subject.catalog, subject.model, subject.device)
    return {
        "artifacts": artifact_digests(upstream),
        "arguments": compile_arguments(subject.model, expected),
        "flags": upstream["compile"].parts["flags"],
        "onnx": onnx_digests(upstream),
        "toolchain": upstream["compile"].parts["toolchain"],
    }


def _install_parts(subject: Subject, upstream: Upstream, world: World) -> dict[str, Any]:
    return {
        "artifacts": artifact_digests(upstream),
        "unit": _unit(subject, world),
        "remote": {role: active_path(subject.device, name) for role, name in subject.model.artifacts.items()},
    }


def _install_lapse(subject: Subject, receipt: Receipt, world: World) -> Lapse | None:
    return _gone_from_device(subject, receipt.result["active"], world)


FRAME_RATE = 20
"""Frames a second, the camera's."""


def _validate_parts(subject: Subject, upstream: Upstream, world: World) -> dict[str, Any]:
    return {
        "artifacts": artifact_digests(upstream),
        "arguments": upstream["compile"].parts["arguments"],
        "runtime": _identity(subject, world),
        "harness": world.harness(subject),
        "frames": round(subject.device.validate_seconds * FRAME_RATE),
        "unit": _unit(subject, world),
    }


def target_of(subject: Subject) -> Target:
    """Where a model is published to. Raises NotKnowable where models.yaml says nowhere."""
    name = subject.model.target
    if name is None:
        raise NotKnowable(
            f"models.{subject.model.name} names no target", "add `target:` to it, or to defaults, in models.yaml"
        )
    return subject.catalog.targets[name]


def published_digests(model: Model, upstream: Upstream) -> dict[str, str]:
    """Artifact file name -> sha256 as its compile left them, as a target and its manifests know them."""
    return {model.artifacts[role]: sha256 for role, sha256 in artifact_digests(upstream).items()}


def _publish_parts(subject: Subject, upstream: Upstream, world: World) -> dict[str, Any]:
    target, model = target_of(subject), subject.model
    return {
        "artifacts": published_digests(model, upstream),
        "folder": model.folder,
        "bundle": [model.bundle.short_name, model.bundle.ref] if model.bundle else None,
        "target": _place(target),
        "files": _place(subject.catalog.targets[target.files]) if target.files is not None else None,
    }


def _place(target: Target) -> dict[str, Any]:
    """What of a target decides where bytes and entries stand."""
    return {
        "name": target.name,
        "repository": target.repository,
        "remote": target.remote,
        "branch": target.branch,
        "directory": target.directory,
        "manifests": list(target.manifests),
        "url": target.url,
        "large_files": target.large_files,
    }


def _publish_lapse(subject: Subject, receipt: Receipt, world: World) -> Lapse | None:
    reason = world.published(subject, receipt.parts["artifacts"])
    return Lapse(reason) if reason is not None else None


def _confirm_parts(subject: Subject, upstream: Upstream, world: World) -> dict[str, Any]:
    return {"published": upstream["publish"].key, "entries": upstream["publish"].result["entries"]}


def _stands(subject: Subject, receipt: Receipt, world: World) -> Lapse | None:
    return None


STAGES: tuple[Stage, ...] = (
    Stage("source", 1, (), (), False, _source_parts, _source_lapse),
    Stage("upload", 1, ("source",), ("source",), True, _upload_parts, _upload_lapse),
    Stage("compile", 1, ("source",), ("upload",), True, _compile_parts, _compile_lapse),
    Stage("pull", 1, ("compile",), ("compile",), False, _pull_parts, _pull_lapse),
    Stage("verify", 3, ("source", "compile"), ("pull",), False, _verify_parts, _stands),
    Stage("install", 1, ("compile",), ("verify",), True, _install_parts, _install_lapse),
    Stage("validate", 2, ("compile",), ("install",), True, _validate_parts, _stands),
    Stage("publish", 1, ("compile",), ("verify", "validate"), False, _publish_parts, _publish_lapse),
    Stage("confirm", 2, ("publish",), ("publish",), True, _confirm_parts, _stands),
)
BY_NAME: Mapping[str, Stage] = {stage.name: stage for stage in STAGES}
FROM_INSTALL = tuple(BY_NAME)[tuple(BY_NAME).index("install") :]
"""Who names one of these means that the artifact be installed."""


def default_goal(subject: Subject) -> str:
    """How far a bare `doit` takes a model: onto the device where that is wanted, else to a verified artifact."""
    device = subject.device
    return device.goal or ("validate" if device.install else "verify")


def wanted(subject: Subject) -> tuple[Stage, ...]:
    """The stages that a bare `doit` runs for a model, in order."""
    return stages_up_to(default_goal(subject))


def stages_up_to(stage: str) -> tuple[Stage, ...]:
    """The stages whose judgements a stage's own needs: all that come before it, and itself."""
    names = [row.name for row in STAGES]
    return STAGES[: names.index(stage) + 1]
