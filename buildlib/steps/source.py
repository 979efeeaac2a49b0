"""source:M (guide, section 2): the ONNX comes into the content store, by whatever way models.yaml names."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from buildlib import sources
from buildlib.core.catalog import PathSource, SampleSource, Source, UrlSource
from buildlib.errors import SourceError
from buildlib.sources.http_client import shown
from buildlib.steps.context import Outcome, StepContext
from buildlib.steps.world import source_context, spec_of


def run(context: StepContext) -> Outcome:
    """Takes each role's ONNX in, hashing the bytes as they are copied; looks into it before a device is bothered."""
    taken: dict[str, dict[str, Any]] = {}
    for role, source in context.model.sources.items():
        taken[role] = {**_take(context, role, source)}
        taken[role].update(_look_into(context, role, taken[role]["sha256"], describe(source)))
    specs = {role: spec_of(source) for role, source in context.model.sources.items()}
    size = sum(entry["size"] for entry in taken.values())
    inputs = sum(len(entry["inputs"]) for entry in taken.values())
    outputs = sum(entry["outputs"] for entry in taken.values())
    origin = ", ".join(dict.fromkeys(briefly(source) for source in context.model.sources.values()))
    return Outcome(
        result={"sources": taken, "specs": specs},
        summary=f"{origin}, {size / 1e6:.1f} MB, {inputs} inputs, {outputs} outputs",
        sample=context.model.is_sample,
    )


def describe(source: Source) -> str:
    """A source in a few words, without what may be a secret."""
    if isinstance(source, SampleSource):
        return f"sample seed {source.seed}"
    if isinstance(source, PathSource):
        return source.path
    if isinstance(source, UrlSource):
        return shown(source.url)
    return f"{source.repository}#{source.ref}:{source.path}"


def briefly(source: Source) -> str:
    """A source's file for the eye: its whole place stands in models.yaml."""
    if isinstance(source, SampleSource):
        return describe(source)
    if isinstance(source, UrlSource):
        parts = urlsplit(source.url)
        return f"{PurePosixPath(unquote(parts.path)).name} from {parts.hostname or 'a share'}"
    name = re.split(r"[/\\]", source.path)[-1]
    return name if isinstance(source, PathSource) else f"{name} at {source.ref}"


def _look_into(context: StepContext, role: str, sha256: str, name: str) -> dict[str, Any]:
    """What the ONNX says of itself; raises SourceError for one that cannot become this kind of model."""
    from buildlib.artifact.onnx_reader import inspect_onnx
    from buildlib.core.sources.model_form import check_source

    inspection = inspect_onnx(context.workspace.blobs.path(sha256), where=name)
    problems = check_source(inspection, context.model.kind, role, context.model.model_size)
    wrong = [problem for problem in problems if problem.severity == "error"]
    if wrong:
        first = wrong[0]
        more = f" (and {len(wrong) - 1} more: {'; '.join(problem.what for problem in wrong[1:])})" if wrong[1:] else ""
        raise SourceError(
            f"{first.what}{more}", where=name, expected=first.expected, got=first.got, remedy=first.remedy
        )
    for problem in problems:
        context.events.warning(context.model.name, problem.what)
    return {
        "weight_bytes": inspection.weight_bytes,
        "inputs": [spec.name for spec in inspection.inputs],
        "outputs": len(inspection.output_slices or inspection.outputs),
    }


def _take(context: StepContext, role: str, source: Source) -> dict[str, Any]:
    """Fetches a source and moves it into the store; what an earlier, cut fetch left is taken up again."""
    kind = sources.kind_of(source)
    into = _incoming(context) / f"{context.key[:16]}-{context.model.name}-{role}.onnx"
    surroundings = source_context(
        context.workspace, context.subject, role, events=context.events, cancel=context.services.cancel
    )
    reader = sources.reader(source, surroundings)
    known = reader.observe()
    if known.sha256 is not None and context.workspace.blobs.has(known.sha256):
        size = context.workspace.blobs.path(known.sha256).stat().st_size
        return {"kind": kind, "sha256": known.sha256, "size": size, "detail": dict(known.detail)}
    fetched = reader.fetch(into)
    context.workspace.blobs.adopt(fetched.path, fetched.sha256)
    return {"kind": kind, "sha256": fetched.sha256, "size": fetched.size, "detail": dict(fetched.detail)}


def _incoming(context: StepContext) -> Path:
    directory = context.workspace.state / "incoming"
    directory.mkdir(parents=True, exist_ok=True)
    return directory
