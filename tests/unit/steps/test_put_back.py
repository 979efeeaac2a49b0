"""The rail after a refused validation: the artifact does not stay installed, or it is said aloud that it does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from buildlib import errors
from buildlib.core.verdicts.validation import Validation
from buildlib.steps.context import StepContext
from buildlib.steps.validate import put_back
from buildlib.store.workspace import Workspace

NAME, SHA256 = "m.pkl", "a" * 64
REFUSED = Validation(verdict="refused")


class Desk:
    """A device that answers a rollback with what it is given."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        self.warnings: list[str] = []

    def call(self, op: str, **args: Any) -> object:
        assert op == "rollback"
        self.asked.append(args)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def warning(self, subject: str, text: str) -> None:
        self.warnings.append(text)


def after(verdict: Validation, answer: object, folder: Path, *, keep: bool = False) -> Desk:
    desk = Desk(answer)
    context = SimpleNamespace(
        services=SimpleNamespace(options=SimpleNamespace(keep_refused=keep)),
        model=SimpleNamespace(name="one"),
        device=SimpleNamespace(name="desk"),
        events=desk,
        link=lambda: desk,
        workspace=Workspace(folder, {}),
    )
    put_back(cast(StepContext, context), NAME, SHA256, verdict)
    return desk


@pytest.mark.parametrize(
    ("sha256", "said"), [("b" * 64, f"{'b' * 12} is active again"), (None, "it was removed; there was none before")]
)
def test_the_former_file_comes_back_only_over_the_refused_one(tmp_path: Path, sha256: str | None, said: str) -> None:
    desk = after(REFUSED, {"active": f"/data/{NAME}", "sha256": sha256}, tmp_path)
    assert desk.asked == [{"name": NAME, "expect": SHA256, "remove": True}]
    assert desk.warnings == [f"{NAME} was refused: {said}"]


@pytest.mark.parametrize(
    "error", [errors.RailRefused("the device is onroad", where="desk"), errors.DeviceError("no space", where="desk")]
)
def test_where_it_cannot_be_taken_away_that_is_said_with_the_remedy(tmp_path: Path, error: errors.BuildError) -> None:
    (said,) = after(REFUSED, error, tmp_path).warnings
    assert f"{NAME} was refused and is STILL INSTALLED" in said
    assert error.headline() in said
    assert "doit rollback one" in said


def test_somebody_elses_file_is_left_and_told(tmp_path: Path) -> None:
    (said,) = after(REFUSED, errors.InputChanged("another file is active"), tmp_path).warnings
    assert "somebody else's file is active there already" in said


@pytest.mark.parametrize(("verdict", "keep"), [("unknown", False), ("good", False), ("refused", True)])
def test_nothing_is_done_after_a_run_that_says_nothing_or_where_the_file_is_to_stay(
    tmp_path: Path, verdict: Any, keep: bool
) -> None:
    desk = after(Validation(verdict=verdict), None, tmp_path, keep=keep)
    assert (desk.asked, desk.warnings) == ([], [])
