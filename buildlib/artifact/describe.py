"""An inspection, a verdict and a diagnosis in words: short lines for a terminal, plain values for `--json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from buildlib.core.diagnoses.diagnosis import Diagnosis
from buildlib.core.verdicts.findings import Finding
from buildlib.core.verdicts.inspection import CapturedJit, Inspection, JitInput
from buildlib.core.verdicts.verdict import Verdict
from buildlib.core.wording import counted, short
from buildlib.plain_text import one_line, plain

_WIDTH: Final = 10


def summary(inspection: Inspection) -> str:
    """One line: `15.9 MB  run_policy, 1344x760, 1928x1208, frame skip 4`."""
    parts = [jit.key or "one captured jit" for jit in inspection.jits]
    if inspection.frame_skip is not None:
        parts.append(f"frame skip {inspection.frame_skip}")
    return f"{_size(inspection.size)}  {', '.join(parts) or 'no captured jit'}"


def describe_inspection(inspection: Inspection, *, verbose: bool = False) -> list[str]:
    """Lines for a person. verbose adds every input, the weights and the globals."""
    lines = [f"{inspection.name}: {summary(inspection)}"]
    lines += [f"  {label:<{_WIDTH}} {text}" for label, text in _facts(inspection)]
    for jit in inspection.jits:
        lines += _describe_jit(jit, verbose=verbose)
    if verbose:
        lines += [
            f"  {'weight':<{_WIDTH}} {one.device} {one.dtype} {one.elements:,} elements, {one.zeros:.0%} zero bytes"
            for one in inspection.weights[:10]
        ]
        lines += [f"  {'global':<{_WIDTH}} {name}" for name in inspection.globals]
    return lines


def _facts(inspection: Inspection) -> Iterator[tuple[str, str]]:
    chunks = f" in {inspection.chunks} chunks" if inspection.chunks > 1 else ""
    kind = "out-of-band pickle" if inspection.container == "out-of-band" else "pickle"
    yield "form", f"{_FORMS[inspection.form]}, {kind} of protocol {inspection.protocol}{chunks}"
    if inspection.root_keys:
        yield "keys", ", ".join(inspection.root_keys)
    devices = (f"{name} ({one.count} buffers, {_size(one.payload)})" for name, one in inspection.devices.items())
    yield "devices", ", ".join(devices) or "none"
    yield "programs", f"{inspection.programs} for {', '.join(inspection.targets) or 'no device'}"
    if inspection.queue_depths:
        yield "queues", ", ".join(f"{name} {depth}" for name, depth in inspection.queue_depths.items())
    if inspection.frame_bytes:
        yield "frames", ", ".join(f"{camera} {size:,} bytes" for camera, size in inspection.frame_bytes.items())
    if inspection.metadata:
        metadata = inspection.metadata
        outputs = f"{len(metadata.output_slices)} outputs" if metadata.output_slices else "no output_slices"
        yield "metadata", ", ".join(one for one in (metadata.model_checkpoint, outputs) if one)
    if inspection.payload and inspection.zero_payload > inspection.payload / 2:
        yield "zeros", f"{inspection.zero_payload / inspection.payload:.0%} of all content"
    if inspection.trailing:
        yield "trailing", f"{inspection.trailing:,} bytes"


_FORMS: Final = {"dict": "dict of captured jits", "bare": "bare captured jit", "other": "no artifact"}


def _describe_jit(jit: CapturedJit, *, verbose: bool) -> list[str]:
    name = jit.key or "jit"
    what = f"{jit.kernels} kernels on {', '.join(jit.targets) or '?'}, expects {', '.join(map(str, jit.names)) or '?'}"
    lines = [f"  {name:<{_WIDTH}} {what}"]
    if verbose:
        lines += [f"  {'':<{_WIDTH}}   {_input(one)}" for one in jit.inputs]
    return lines


def _input(one: JitInput) -> str:
    shape = "shape unknown" if one.shape is None else "x".join(map(str, one.shape))
    return f"{one.name}: {shape} {one.dtype} on {one.device}"


def describe_verdict(verdict: Verdict) -> list[str]:
    """Lines for a person: what, why, try for each finding; one line if all is well."""
    lines: list[str] = []
    for finding in verdict.findings:
        lines += describe_finding(finding)
    if verdict.good:
        lines.append(f"good for {verdict.contract}")
    else:
        count = len(verdict.refusals)
        lines.append(f"refused for {verdict.contract}: {counted(count, 'reason')}")
    return lines


def describe_finding(finding: Finding) -> list[str]:
    """Lines for a person: what, expected, found, guide, remedy."""
    head = "BAD " if finding.severity == "refuse" else "note"
    lines = [
        f"{head}  {finding.what}",
        f"        expected  {short(finding.expected)}",
        f"        found     {short(finding.found)}",
    ]
    if finding.guide:
        lines.append(f"        why       guide section {finding.guide}")
    lines.append(f"        try       {finding.remedy}")
    return lines


def describe_diagnosis(diagnosis: Diagnosis) -> list[str]:
    """Lines for a person: each sign with its line in the log, then the unknown error whole."""
    lines: list[str] = []
    for one in diagnosis.findings:
        head = {"failure": "BAD ", "warning": "warn", "note": "note"}[one.severity]
        times = f" ({one.count} times)" if one.count > 1 else ""
        lines.append(f"{head}  line {one.line}{times}: {one_line(one.evidence, 200)}")
        if one.captured or one.passed:
            lines.append(f"        captured  {one.captured}, at run time {one.passed}")
        lines.append(f"        why       {one.cause}" + (f" (guide {one.guide})" if one.guide else ""))
        lines.append(f"        try       {one.remedy}")
    if diagnosis.unknown is not None:
        lines.append("unknown error, in full:")
        lines += [f"  {plain(line[:2000])}" for line in diagnosis.unknown.split("\n")]
    return lines or ["no known sign of failure, and no error"]


def as_json(inspection: Inspection | None, verdict: Verdict | None) -> dict[str, object]:
    """Both as plain values, hashes and sizes whole: {"inspection": {...} or null, "verdict": {...} or null}."""
    return {
        "inspection": msgspec.to_builtins(inspection) if inspection else None,
        "verdict": msgspec.to_builtins(verdict) if verdict else None,
    }


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size:,} bytes"
