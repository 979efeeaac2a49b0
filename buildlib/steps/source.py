"""source:M (guide, section 2): the ONNX comes into the content store, by whatever way models.yaml names."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from buildlib.core.catalog import PathSource, SampleSource, Source
from buildlib.errors import InputChanged, SourceError
from buildlib.steps.context import Outcome, StepContext
from buildlib.steps.world import spec_of


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
    origin = ", ".join(sorted({describe(source) for source in context.model.sources.values()}))
    return Outcome(
        result={"sources": taken, "specs": specs},
        summary=f"{origin}, {size / 1e6:.1f} MB, {inputs} inputs, {outputs} outputs",
        sample=context.model.is_sample,
    )


def describe(source: Source) -> str:
    """A source in a few words."""
    if isinstance(source, SampleSource):
        return f"sample seed {source.seed}"
    if isinstance(source, PathSource):
        return source.path
    return str(getattr(source, "url", None) or getattr(source, "repository", ""))


def _look_into(context: StepContext, role: str, sha256: str, name: str) -> dict[str, Any]:
    """What the ONNX says of itself; raises SourceError for one that cannot become this kind of model."""
    from buildlib.artifact.onnx_reader import inspect_onnx
    from buildlib.core.model_form import check_source

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
    if isinstance(source, SampleSource):
        return _sample(context, source)
    if isinstance(source, PathSource):
        return _path(context, role, source)
    raise SourceError(f"sources of this kind are not built in: {type(source).__name__}")


def _sample(context: StepContext, source: SampleSource) -> dict[str, Any]:
    from buildlib.sources.sample import write_sample

    with tempfile.TemporaryDirectory(dir=_incoming(context)) as directory:
        path = Path(directory) / "sample.onnx"
        write_sample(path, source.seed, source.width)
        return {"sha256": context.workspace.blobs.add(path), "size": path.stat().st_size}


def _path(context: StepContext, role: str, source: PathSource) -> dict[str, Any]:
    path = context.workspace.root / Path(source.path).expanduser()
    expected = context.parts["onnx"][role]["sha256"]
    try:
        sha256 = context.workspace.blobs.add(path)
    except FileNotFoundError as error:
        raise SourceError(
            "the source ONNX is not there",
            where=str(path),
            remedy="mount the share or correct `source:` in models.yaml",
        ) from error
    if sha256 != expected:
        raise InputChanged(f"{path} changed while it was read", remedy="run doit again when the file rests")
    return {"sha256": sha256, "size": context.workspace.blobs.path(sha256).stat().st_size}


def _incoming(context: StepContext) -> Path:
    directory = context.workspace.state / "incoming"
    directory.mkdir(parents=True, exist_ok=True)
    return directory
