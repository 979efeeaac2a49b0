"""What a device says of a compile is not believed before it can be true: it goes into a receipt and into file names."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from buildlib.errors import DeviceError
from buildlib.steps.compile import said_output
from buildlib.steps.compile_log import Log

GOOD = {"size": 7, "sha256": "a" * 64}
CONTEXT: Any = SimpleNamespace(model=SimpleNamespace(name="one"), device=SimpleNamespace(name="desk"))


def test_what_can_be_true_is_taken() -> None:
    assert said_output(CONTEXT, {"output": GOOD, "elapsed": 2}) == {**GOOD, "seconds": 2}


def test_a_clock_that_was_set_back_makes_no_negative_time() -> None:
    assert said_output(CONTEXT, {"output": GOOD, "elapsed": -3e8})["seconds"] == 0


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"output": None, "elapsed": 1},
        {"output": "text", "elapsed": 1},
        {"output": {**GOOD, "size": 0}, "elapsed": 1},
        {"output": {**GOOD, "size": -1}, "elapsed": 1},
        {"output": {**GOOD, "size": 10**18}, "elapsed": 1},
        {"output": {**GOOD, "size": 1.5}, "elapsed": 1},
        {"output": {**GOOD, "size": True}, "elapsed": 1},
        {"output": {**GOOD, "sha256": "A" * 64}, "elapsed": 1},
        {"output": {**GOOD, "sha256": "a" * 64 + "\n"}, "elapsed": 1},
        {"output": {**GOOD, "sha256": "../" * 21 + "a"}, "elapsed": 1},
        {"output": GOOD, "elapsed": "1"},
        {"output": GOOD, "elapsed": float("nan")},
        {"output": GOOD},
    ],
)
def test_what_no_file_can_have_is_an_error_in_a_line(status: dict[str, Any]) -> None:
    with pytest.raises(DeviceError, match="does not say what the compile made") as caught:
        said_output(CONTEXT, status)
    assert caught.value.headline().isprintable()


def log_in(place: Path) -> Log:
    workspace = SimpleNamespace(
        state=place / "state",
        receipts=SimpleNamespace(latest=lambda name: {}),
        compile_log=lambda name: place / "compile.log",
    )
    return Log(SimpleNamespace(workspace=workspace, **vars(CONTEXT), stage="compile", events=_Silent()))  # type: ignore[arg-type]


def test_only_the_mismatch_of_dtypes_that_good_builds_have_is_kept_from_the_terminal(tmp_path: Path) -> None:
    usual = (
        "onnx.py:409: UserWarning: input action_t has mismatch on dtype. Expected dtypes.half, received dtypes.float."
    )
    other = "onnx.py:409: UserWarning: input img has mismatch on dtype. Expected dtypes.uchar, received dtypes.float."
    log = log_in(tmp_path)
    log.take(0, f"{usual}\n{other}\n  warnings.warn(text)\n{other}\n".encode())
    assert log.warnings() == [other]


@pytest.mark.parametrize("since", ["../../../evil", "/etc/evil", "a\0b", "..", 1.5e9, "x" * 5000, "\n"])
def test_a_job_that_lies_about_its_beginning_names_no_file_elsewhere(tmp_path: Path, since: object) -> None:
    log = log_in(tmp_path)
    log.begin(f"{'k' * 32}-supercombo-{since}")
    log.take(0, b"line\n")
    (written,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written.parent == tmp_path / "state" / "incoming"


class _Silent:
    def progress(self, *told: object) -> None:
        pass
