"""`doit inspect FILE`: what an artifact or an ONNX is, read without running it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from buildlib import errors
from buildlib.commands.base import ProjectCommand, chosen_models, opt_json, print_json
from buildlib.doit_parts.session import Session

opt_model = {
    "name": "model",
    "short": "m",
    "long": "model",
    "type": str,
    "default": "",
    "help": "judge the file against this model of models.yaml",
}
opt_verbose = {
    "name": "verbose",
    "short": "v",
    "long": "verbose",
    "type": bool,
    "default": False,
    "help": "every input, the weights and the globals",
}


class InspectCommand(ProjectCommand):
    """Works on any file; models.yaml is read only with --model."""

    name = "inspect"
    doc_purpose = "look into an artifact or an ONNX without running it"
    doc_usage = "FILE ..."
    own_options = (opt_json, opt_model, opt_verbose)

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Inspects each file; the status is 1 when one is refused."""
        if not arguments:
            raise errors.UsageError("no file was named", remedy="doit inspect artifacts/nopp/*.pkl")
        refused = False
        told: list[dict[str, Any]] = []
        for name in arguments:
            path = Path(name)
            look = _onnx if path.suffix.lower() == ".onnx" else _artifact
            try:
                inspected = look(session, path, options)
            except (errors.ArtifactError, errors.SourceError) as error:  # the other files are looked at all the same
                refused = True
                told.append({"file": name, "error": error.headline(), "remedy": error.remedy})
                print(error.render(), file=sys.stderr)
                continue
            refused = refused or inspected["refused"]
            told.append({"file": name, **inspected["json"]})
            if not options["json"]:
                print("\n".join(inspected["lines"](options["verbose"])))
        if options["json"]:
            print_json(told if len(told) > 1 else told[0])
        return errors.EXIT_FAILED if refused else 0


def _onnx(session: Session, path: Path, options: Any) -> dict[str, Any]:
    """Judged as what it is by its inputs; with --model, as the part of that model that it would be."""
    from buildlib.artifact.onnx_reader import inspect_onnx
    from buildlib.core.flags import expected_device
    from buildlib.core.sources.model_form import check_source, likely_role
    from buildlib.core.sources.onnx_text import describe_onnx

    told: dict[str, Any] = {}
    subject = None
    if options["model"]:
        (name,) = chosen_models(session, [options["model"]])
        subject = session.subject(name)
        expected = expected_device(subject.catalog, subject.model, subject.device)
        told = {"cameras": len(subject.model.camera_resolutions), "expected_device": expected}
    inspection = inspect_onnx(path)
    kind, role = likely_role(inspection, subject.model.kind if subject else None)
    problems = check_source(inspection, kind, role, *([subject.model.model_size] if subject else []))
    return {
        "refused": any(problem.severity == "error" for problem in problems),
        "json": {"onnx": msgspec.to_builtins(inspection), "problems": msgspec.to_builtins(problems)},
        "lines": lambda verbose: [path.name, *describe_onnx(inspection, problems, **told)],
    }


def _artifact(session: Session, path: Path, options: Any) -> dict[str, Any]:
    from buildlib.artifact.describe import as_json, describe_finding, describe_inspection, describe_verdict
    from buildlib.artifact.examine import examine
    from buildlib.artifact.inspect_file import inspect_artifact
    from buildlib.core.verdicts.verdict import judge_alone

    if not options["model"]:
        inspection = inspect_artifact(path)
        findings = judge_alone(inspection)
        wrong = [line for finding in findings for line in describe_finding(finding)]
        return {
            "refused": bool(findings),
            "json": {**as_json(inspection, None), "findings": msgspec.to_builtins(findings)},
            "lines": lambda verbose: [*describe_inspection(inspection, verbose=verbose), *wrong],
        }
    from buildlib.steps.verify import expected_of

    (name,) = chosen_models(session, [options["model"]])
    found, verdict = examine(path, expected_of(session.subject(name)))
    return {
        "refused": not verdict.good,
        "json": as_json(found, verdict),
        "lines": lambda verbose: [
            *(describe_inspection(found, verbose=verbose) if found else [path.name]),
            *describe_verdict(verdict),
        ],
    }
