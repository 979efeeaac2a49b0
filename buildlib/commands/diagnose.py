"""`doit diagnose MODEL | --file LOG`: signs in logs, each with its cause and remedy (guide, sections 7, 10, 11, 18)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from buildlib import errors
from buildlib.artifact.describe import describe_diagnosis
from buildlib.commands.base import ProjectCommand, chosen_models, opt_json, print_json
from buildlib.core.diagnosis import diagnose
from buildlib.doit_parts.session import Session

opt_log = {"name": "file", "short": "", "long": "file", "type": str, "default": "", "help": "read this log instead"}


class DiagnoseCommand(ProjectCommand):
    """One sign never hides another; what is not known is shown whole."""

    name = "diagnose"
    doc_purpose = "name causes and remedies for what logs say"
    doc_usage = "[MODEL ...]"
    own_options = (opt_json, opt_log)

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Diagnoses a file, or what is known of each model."""
        logs = {options["file"]: read(Path(options["file"]))} if options["file"] else gathered(session, arguments)
        if not logs:
            print("There is no log to read: nothing failed here, and no compile has run.")
            return 0
        found = {name: diagnose(text) for name, text in logs.items()}
        if options["json"]:
            print_json({name: msgspec.to_builtins(one) for name, one in found.items()})
            return 0
        for name, one in found.items():
            print(name)
            print("\n".join(f"  {line}" for line in describe_diagnosis(one)))
        return 0


def read(path: Path) -> str:
    """A log's text. Raises UsageError."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise errors.UsageError(f"the log cannot be read: {error.strerror}", where=str(path)) from error


def gathered(session: Session, arguments: list[str]) -> dict[str, str]:
    """The logs that this workstation has of each model: failed attempts and the last compile."""
    found: dict[str, str] = {}
    for name in chosen_models(session, arguments):
        for stage in ("source", "upload", "compile", "pull", "verify", "install", "validate", "publish", "confirm"):
            attempt = session.workspace.receipts.attempt(stage, name)
            if attempt is not None:
                found[f"{name} {stage}, failed {attempt.finished}"] = attempt.error
        log = session.workspace.compile_log(name)
        if log.is_file():
            found[f"{name} {session.workspace.relative(log)}"] = read(log)
    return found
