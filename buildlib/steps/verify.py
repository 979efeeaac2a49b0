"""verify:M (guide, sections 6 and 11): the artifact is read without being run, and judged against its declaration."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from buildlib import errors
from buildlib.artifact.describe import summary
from buildlib.artifact.examine import examine
from buildlib.artifact.onnx_reader import inspect_onnx
from buildlib.core.flags import effective_flags, expected_device
from buildlib.core.verdicts.verdict import Expectations, Verdict, expectations_of
from buildlib.core.verdicts.verdict_metadata import OnnxMetadata
from buildlib.core.world import Subject
from buildlib.steps.context import Outcome, StepContext
from buildlib.steps.world import read_observation


def run(context: StepContext) -> Outcome:
    """Judges each artifact's blob: size, hash, root keys, jits, names, shapes, devices, cameras, frame skip."""
    verdicts: dict[str, Any] = {}
    lines: list[str] = []
    warnings: list[str] = []
    for role, sha256 in context.parts["artifacts"].items():
        blob = context.workspace.artifact_blob(context.model.name, context.model.artifacts[role], sha256)
        if not context.workspace.blobs.has(sha256):
            raise errors.ArtifactError(
                "the artifact's bytes are not in the content store",
                where=sha256[:12],
                remedy=f"doit pull:{context.model.name}",
            )
        inspection, verdict = examine(blob, expectations(context, role))
        name = context.model.artifacts[role]
        if not verdict.good:
            raise refused(name, verdict)
        assert inspection is not None
        verdicts[role] = msgspec.to_builtins(verdict)
        lines.append(summary(inspection))
        warnings += [f"{name}: {finding.what}: {finding.found}" for finding in verdict.findings]
    return Outcome(result={"verdicts": verdicts}, summary="; ".join(lines), warnings=tuple(warnings))


def expectations(context: StepContext, role: str) -> Expectations:
    """What the declaration and the source's inspection let an artifact be. An artifact of one role answers for its
    own ONNX; one that combines all roles answers for all."""
    made_from = context.upstream["source"].result["sources"]
    own = [made_from[role]] if role in made_from else list(made_from.values())
    inputs = tuple(name for entry in own for name in entry["inputs"])
    weights = sum(entry["weight_bytes"] for entry in own)
    alone = len(own) == 1
    onnx = onnx_metadata(context, role if role in made_from else next(iter(made_from))) if alone else None
    expected = expected_of(context.subject, role, weights, inputs if alone else None, onnx)
    return msgspec.structs.replace(expected, tinygrad_names=tinygrad_names(context))


def tinygrad_names(context: StepContext) -> frozenset[str] | None:
    """The classes of the tinygrad that compiled the artifact, None where its device has told none of them."""
    seen = read_observation(context.workspace, context.device.name)
    compiled_with = context.upstream["compile"].parts["toolchain"]["tinygrad"]
    if seen is None or seen.heard is None or (seen.identity or {}).get("tinygrad") != compiled_with:
        return None
    return frozenset(seen.heard) if "CapturedJit" in seen.heard else None


def onnx_metadata(context: StepContext, role: str) -> OnnxMetadata:
    """What the ONNX of a role says its outputs and inputs are. Raises SourceError where its blob is lost."""
    sha256 = context.parts["onnx"][role]
    if not context.workspace.blobs.has(sha256):
        raise errors.SourceError(
            "the ONNX is not in the content store, so the artifact cannot be held against it",
            where=sha256,
            remedy=f"doit source:{context.model.name}",
        )
    inspection = inspect_onnx(context.workspace.blobs.path(sha256), where=f"{context.model.name} {role}")
    first = inspection.outputs[0] if inspection.outputs else None
    flat = first.shape[1:] if first and first.shape and first.is_static else None
    return OnnxMetadata(
        output_slices=inspection.output_slices,
        length=math.prod(size for size in flat if isinstance(size, int)) if flat is not None else None,
        input_shapes={
            spec.name: tuple(size for size in spec.shape if isinstance(size, int))
            for spec in inspection.inputs
            if spec.is_static and spec.shape
        },
    )


def expected_of(
    subject: Subject,
    role: str | None = None,
    onnx_bytes: int | None = None,
    onnx_inputs: tuple[str, ...] | None = None,
    onnx: OnnxMetadata | None = None,
) -> Expectations:
    """The expectations of a model on a device. role: of the artifact, the first one's by default."""
    model = subject.model
    return expectations_of(
        model,
        expected_device=expected_device(subject.catalog, model, subject.device),
        flags=effective_flags(subject.catalog, model, subject.device),
        role=role or next(iter(model.artifacts)),
        onnx_bytes=onnx_bytes,
        onnx_inputs=onnx_inputs,
        onnx=onnx,
    )


def refused(name: str, verdict: Verdict) -> errors.VerdictRefused:
    """The error of a refused artifact: the worst finding leads, all are told."""
    first = verdict.refusals[0]
    others = len(verdict.refusals) - 1
    codes = dict.fromkeys(finding.code for finding in verdict.refusals[1:])
    more = f" (and {others} more: {', '.join(codes)})" if others else ""
    return errors.VerdictRefused(
        f"{first.what}{more}",
        where=name,
        expected=first.expected,
        got=first.found,
        guide=first.guide,
        remedy=first.remedy,
    )
