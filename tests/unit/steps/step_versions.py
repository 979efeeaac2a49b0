"""The code of each step, as a digest over its syntax trees: without comments, docstrings, names of files or layout.

A local step's version is an integer that people raise; this table tells them when to think about it. After a change:
raise `Stage.version` in core/stages.py (for samples `RECIPE` in sources/sample.py) if the step may now give another
result for the same key, then, in either case: python -m tests.unit.steps.step_versions
"""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path

from buildlib.core.stages import STAGES
from buildlib.sources import sample

PACKAGE = Path(sample.__file__).parent.parent
TABLE = Path(__file__).with_name("step_versions.json")

CODE: dict[str, tuple[str, ...]] = {
    "source": ("steps/source.py", "artifact/onnx_reader.py", "core/sources/model_form.py"),
    "upload": ("steps/upload.py",),
    "compile": ("steps/compile.py", "steps/compile_job.py", "steps/jobs.py", "steps/toolchain.py"),
    "pull": ("steps/pull.py",),
    "verify": (
        "steps/verify.py",
        "core/verdicts/verdict.py",
        "core/verdicts/verdict_devices.py",
        "core/verdicts/verdict_jits.py",
        "core/verdicts/contract.py",
    ),
    "install": ("steps/install.py",),
    "validate": (
        "steps/validate.py",
        "steps/jobs.py",
        "core/verdicts/validation.py",
        "core/verdicts/validation_iqpilot.py",
        "core/verdicts/signals.py",
    ),
    "publish": ("steps/publish.py",),
    "confirm": ("steps/confirm.py", "steps/redownload.py"),
    "sample recipe": ("sources/sample.py",),
}


def version_of(step: str) -> int:
    """The version that the code says now."""
    if step == "sample recipe":
        return sample.RECIPE
    return next(stage.version for stage in STAGES if stage.name == step)


def digest_of(step: str) -> str:
    """What the step does, whatever it is called and however it is laid out."""
    total = hashlib.sha256()
    for name in CODE[step]:
        total.update(meaning((PACKAGE / name).read_text(encoding="utf-8")).encode())
    return total.hexdigest()


def meaning(source: str) -> str:
    """A module's syntax tree as text, without docstrings and positions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [one for one in body if not _is_text(one)]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.dump(tree, annotate_fields=False, include_attributes=False)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def present() -> dict[str, dict[str, object]]:
    """The table as it should be."""
    return {step: {"version": version_of(step), "digest": digest_of(step)} for step in CODE}


def written() -> dict[str, dict[str, object]]:
    """The table as it is."""
    table: dict[str, dict[str, object]] = json.loads(TABLE.read_text())
    return table


if __name__ == "__main__":
    TABLE.write_text(json.dumps(present(), indent=2) + "\n")
    print(f"written: {TABLE}")
