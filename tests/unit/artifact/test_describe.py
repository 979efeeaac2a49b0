"""What a person reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from buildlib.artifact.describe import (
    as_json,
    describe_diagnosis,
    describe_finding,
    describe_inspection,
    describe_verdict,
    summary,
)
from buildlib.artifact.examine import examine
from buildlib.core.diagnoses.diagnosis import diagnose
from buildlib.core.verdicts.findings import warn
from buildlib.core.verdicts.verdict import Expectations


@pytest.mark.compile
def test_an_artifact_in_one_line(jits: dict[str, Path]) -> None:
    found, _ = examine(jits["good"], Expectations(expected_device="CPU"))
    assert found is not None
    assert summary(found).endswith("MB  run_policy, 1344x760, 1928x1208, frame skip 4")


@pytest.mark.compile
def test_inspection_and_verdict_in_words_and_json(jits: dict[str, Path]) -> None:
    found, verdict = examine(jits["frame_skip_2"], Expectations(expected_device="CPU"))
    assert found is not None
    text = "\n".join(describe_inspection(found, verbose=True) + describe_verdict(verdict))
    for part in ("img_q 3", "2,428,928 bytes", "frame_skip 2", "arg=3 vs arg=5", "guide section 11", "--frame-skip 4"):
        assert part in text
    assert text.splitlines()[-1] == "refused for supercombo: 2 reasons"
    decoded = json.loads(json.dumps(as_json(found, verdict)))
    assert decoded["verdict"]["verdict"] == "refused"
    assert decoded["inspection"]["size"] == jits["frame_skip_2"].stat().st_size


def test_a_diagnosis_in_words() -> None:
    text = "\n".join(describe_diagnosis(diagnose("No space left on device\nflux.FluxError: a \x07 b\n")))
    assert "line 1: No space left on device" in text
    assert "unknown error, in full:" in text
    assert "flux.FluxError: a \\x07 b" in text
    assert describe_diagnosis(diagnose("fine")) == ["no known sign of failure, and no error"]


def test_hashes_of_a_finding_are_short_for_the_eye() -> None:
    finding = warn("script_differs", "another script", expected="ab" * 32, found="cd" * 32, remedy="compare")
    text = "\n".join(describe_finding(finding))
    assert "expected  abababab\n" in text
    assert "found     cdcdcdcd\n" in text
