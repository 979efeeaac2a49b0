"""Reading and judging in one call: a file that cannot be read gets a refused verdict instead of an exception."""

from __future__ import annotations

from pathlib import Path

from buildlib.artifact.inspect_file import inspect_artifact
from buildlib.artifact.refusals import COPY_AGAIN
from buildlib.core.verdicts.inspection import Inspection
from buildlib.core.verdicts.verdict import Expectations, Verdict, judge, unreadable
from buildlib.errors import ArtifactError


def examine(path: Path, expectations: Expectations) -> tuple[Inspection | None, Verdict]:
    """The inspection, None if the file cannot be read, and the verdict. Never raises for what is in the file."""
    try:
        inspection = inspect_artifact(path)
    except ArtifactError as error:
        code = getattr(error, "code", "unreadable")
        return None, unreadable(
            contract=expectations.contract,
            code=code,
            what=error.what,
            expected=error.expected,
            found=error.got,
            guide=error.guide,
            remedy=error.remedy or COPY_AGAIN,
        )
    return inspection, judge(inspection, expectations)
