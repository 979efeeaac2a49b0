"""An ONNX in a few lines for a terminal: what `doit inspect FILE.onnx` shows. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from buildlib.core.sources.model_form import Problem, expected_artifact_bytes, guess_role
from buildlib.core.sources.onnx_inspection import OnnxInspection

_KINDS = {
    "supercombo": "a supercombo",
    "vision": "the vision part of a split model",
    "policy": "a policy part of a split model",
    "old_supercombo": "a supercombo of an older openpilot",
    "driver_monitoring": "a driver monitoring model",
}


def describe_onnx(
    inspection: OnnxInspection, problems: Sequence[Problem] = (), *, cameras: int = 2, expected_device: str = "QCOM"
) -> list[str]:
    """Lines without colour: what it is, its inputs and outputs, weights, metadata, problems with what to try."""
    role = guess_role(inspection)
    opsets = ", ".join(f"{domain or 'onnx'} {version}" for domain, version in inspection.opsets.items())
    lines = [
        f"ONNX, {_size(inspection.file_bytes)}, {_KINDS.get(role or '', 'no driving model')}",
        f"  opset      {opsets}" + (f", written by {inspection.producer}" if inspection.producer else ""),
    ]
    lines += _block("inputs", [f"{spec.name}  {spec.text()}" for spec in inspection.inputs])
    lines += _block("outputs", [f"{spec.name}  {spec.text()}" for spec in inspection.outputs])
    if inspection.output_slices:
        parts = [f"{name} {start}:{stop}" for name, (start, stop) in inspection.output_slices.items()]
        lines += _block("slices", _wrapped(parts))
    elif inspection.slices_problem:
        lines.append(f"  slices     unusable: {inspection.slices_problem}")
    dtypes = ", ".join(f"{dtype} {_size(size)}" for dtype, size in inspection.weight_dtypes.items() if size)
    lines.append(f"  weights    {inspection.weight_count} tensors, {_size(inspection.weight_bytes)} ({dtypes})")
    if inspection.external_files:
        lines.append(f"  in files   {', '.join(inspection.external_files)}")
    operators = [f"{name} {count}" for name, count in inspection.operators.items()]
    lines += _block("operators", _wrapped(operators))
    short = [f"{key}  {value[:60]}" for key, value in inspection.metadata.items() if value.isprintable()]
    lines += _block("metadata", short)
    if role == "supercombo":
        size = expected_artifact_bytes(inspection.weight_bytes, cameras, expected_device)
        lines.append(f"  artifact   about {_size(size)} for {expected_device} with {cameras} cameras")
    elif role in ("vision", "policy"):
        size = expected_artifact_bytes(inspection.weight_bytes, 0, expected_device)
        lines.append(f"  artifact   about {_size(size)} of it, in one of its own or in one with the other parts")
    for problem in problems:
        lines.append(f"{'BAD ' if problem.severity == 'error' else 'note'}  {problem.text()}")
        if problem.remedy:
            lines.append(f"      try: {problem.remedy}")
    return lines


def _block(title: str, rows: Sequence[str]) -> list[str]:
    return [f"  {title if index == 0 else '':<10} {row}" for index, row in enumerate(rows)]


def _wrapped(words: Sequence[str], width: int = 90) -> list[str]:
    rows: list[str] = []
    for word in words:
        if rows and len(rows[-1]) + len(word) + 2 <= width:
            rows[-1] += f", {word}"
        else:
            rows.append(word)
    return rows


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count} bytes"
