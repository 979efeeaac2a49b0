"""The rail after a refused validation: the artifact does not stay installed, or it is said aloud that it does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from buildlib import errors
from buildlib.core.verdicts.findings import refuse
from buildlib.core.verdicts.validation import Validation
from buildlib.steps import validate
from buildlib.steps.context import StepContext
from buildlib.steps.validate import put_back, run
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


class Parted:
    """A device with a model's two artifacts, each held for the test; somebody else works on it if it is busy."""

    def __init__(self, *, busy: bool = False) -> None:
        self.busy = busy
        self.held = {"vision.pkl": "a" * 64, "policy.pkl": "b" * 64}
        self.seconds: list[float] = []
        self.warnings: list[str] = []

    def call(self, op: str, **args: Any) -> dict[str, Any]:
        if op == "rollback":
            if self.busy:
                raise errors.DeviceBusy("another job works on this device")
            del self.held[args["name"]]
            return {"active": f"/data/{args['name']}", "sha256": "c" * 64}
        assert op == "install_prolong"
        self.seconds.append(args["seconds"])
        return {"journals": [name for name, sha256 in args["artifacts"].items() if self.held.get(name) == sha256]}

    def warning(self, subject: str, text: str) -> None:
        self.warnings.append(text)


@pytest.mark.parametrize("busy", [False, True])
def test_the_other_parts_of_a_refused_model_and_what_cannot_be_put_back_now_are_left_to_the_device_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    desk = Parted(busy=busy)
    context = SimpleNamespace(
        services=SimpleNamespace(options=SimpleNamespace(keep_refused=False)),
        model=SimpleNamespace(name="one", artifacts={"vision": "vision.pkl", "policy": "policy.pkl"}),
        parts={"artifacts": {"vision": "a" * 64, "policy": "b" * 64}},
        device=SimpleNamespace(name="desk"),
        events=desk,
        link=lambda: desk,
        workspace=Workspace(tmp_path, {}),
    )
    finding = refuse("raised", "no", expected="yes", found="no", remedy="none")
    verdicts = [
        (["vision"], Validation(verdict="good", said="driven")),
        (["policy"], Validation(verdict="refused", findings=(finding,))),
    ]
    monkeypatch.setattr(validate, "judged", lambda context: iter(verdicts))
    monkeypatch.setattr(validate, "log_path", lambda context: tmp_path / "none")
    with pytest.raises(errors.VerdictRefused):
        run(cast(StepContext, context))
    assert desk.seconds == [0]
    assert desk.warnings[-1] == "desk takes back what is left of this install, as soon as it is offroad"
    assert ("vision.pkl" in desk.held, "policy.pkl" in desk.held) == (True, busy)
