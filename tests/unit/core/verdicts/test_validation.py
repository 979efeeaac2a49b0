"""Verdicts from job statuses: only a whole, undisturbed run of the right bytes passes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from buildlib.core.verdicts.validation import Asked, judge_run

SHA, OTHER = "a" * 64, "b" * 64
ASKED = Asked(sha256=SHA, frames=200, cameras=((1344, 760), (1928, 1208)), realtime=True)
FILE = {"device": 1, "inode": 2, "size": 3, "mtime_ns": 4, "ctime_ns": 5}
TIMES = {"frames": 100, "late": 0, "median_ms": 12.0, "p99_ms": 21.0, "worst_ms": 22.0}
REPORT: dict[str, Any] = {
    "format": 1,
    "verdict": "good",
    "findings": [],
    "numbers": {
        **TIMES,
        "frames": 200,
        "cameras": {"1344x760": TIMES, "1928x1208": TIMES},
        "memory": {"process": {"growth": 0}, "device": {"growth": 0}},
        "load_s": 1.0,
    },
    "proof": {"path": "/data/m.pkl", "sha256": SHA, "sha256_after": SHA, "before": FILE, "after": FILE},
    "asked": {"frames": 200, "rate": 20.0, "realtime": True},
}
GOOD: dict[str, Any] = {"state": "ok", "exit": 0, "report": REPORT}


def changed(**changes: Any) -> dict[str, Any]:
    """The good status with other values in it: `report__proof__sha256=...` goes into the report's proof."""
    status = copy.deepcopy(GOOD)
    for path, value in changes.items():
        *way, last = path.split("__")
        place = status
        for name in way:
            place = place[name]
        place[last] = value
    return status


def found(code: str, **more: Any) -> dict[str, Any]:
    return {"code": code, "what": "it does", "expected": "that it does not", "got": "that", "count": 1, **more}


def test_a_whole_run_of_the_right_bytes_is_good() -> None:
    validation = judge_run(GOOD, ASKED)
    assert validation.verdict == "good"
    assert validation.findings == ()
    assert validation.numbers["load_s"] == 1.0
    assert validation.proof["path"] == "/data/m.pkl"
    assert validation.summary() == "200 frames, p99 21 ms, steady"


def test_late_frames_and_unmeasured_memory_are_told() -> None:
    status = changed(report__numbers__late=7, report__numbers__memory={"process": None, "device": None})
    assert judge_run(status, ASKED).summary() == "200 frames, p99 21 ms, 7 late"


def test_a_report_that_leaves_out_what_it_did_not_measure_can_be_told() -> None:
    status = copy.deepcopy(GOOD)
    for name in ("late", "p99_ms"):
        del status["report"]["numbers"][name]
    assert judge_run(status, ASKED).summary() == "200 frames, p99 0 ms, steady"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"report__proof__sha256": OTHER}, "another_model_ran"),
        ({"report__proof__sha256_after": OTHER}, "another_model_ran"),
        ({"report__proof__after": {**FILE, "inode": 9}}, "another_model_ran"),
        ({"report__proof": {}}, "another_model_ran"),
        ({"report__proof": {"sha256": SHA, "sha256_after": SHA}}, "another_model_ran"),
        ({"report__numbers__frames": 199}, "incomplete"),
        ({"report__numbers__cameras": {"1344x760": TIMES}}, "incomplete"),
        ({"report__numbers__cameras": {"1344x760": TIMES, "1928x1208": {"frames": 0}}}, "incomplete"),
        ({"report__asked__realtime": False}, "not_timed"),
        ({"state": "failed", "exit": 1, "reason": "exit status 1"}, "contradiction"),
        ({"report__verdict": "leaks"}, "contradiction"),
        ({"state": "failed"}, "contradiction"),
        ({"exit": 1}, "contradiction"),
    ],
)
def test_a_report_without_findings_is_no_pass_when_the_run_was_not_the_one_asked_for(
    changes: dict[str, Any], code: str
) -> None:
    validation = judge_run(changed(**changes), ASKED)
    assert validation.verdict == "refused"
    assert [finding.code for finding in validation.findings] == [code]


def test_where_real_time_is_not_asked_for_a_run_without_it_passes() -> None:
    asked = Asked(sha256=SHA, frames=200, cameras=ASKED.cameras, realtime=False)
    assert judge_run(changed(report__asked__realtime=False), asked).good


@pytest.mark.parametrize(
    "code",
    [
        "no_artifact", "other_bytes", "moved", "not_loaded", "contract", "died", "frozen", "warp_failed",
        "policy_failed", "not_finite", "bad_odometry", "not_repeatable", "wrong_picture", "reads_padding",
        "indifferent", "leaks", "too_slow",
    ],
)  # fmt: skip
def test_each_finding_refuses_with_a_remedy_and_the_guides_section(code: str) -> None:
    status = changed(state="failed", exit=15, report__verdict=code, report__findings=[found(code)])
    validation = judge_run(status, ASKED)
    assert validation.verdict == "refused"
    (finding,) = validation.findings
    assert (finding.code, finding.expected, finding.found) == (code, "that it does not", "that")
    assert finding.guide is not None
    assert finding.remedy != "see the log"


def test_a_finding_refuses_even_when_the_job_ended_well() -> None:
    assert judge_run(changed(report__findings=[found("leaks")]), ASKED).verdict == "refused"


def test_a_code_of_a_newer_harness_refuses_too() -> None:
    assert judge_run(changed(report__findings=[found("melts")]), ASKED).verdict == "refused"


def test_frame_and_count_are_in_the_text() -> None:
    status = changed(report__findings=[found("not_finite", frame=100, count=20)])
    assert judge_run(status, ASKED).summary() == "it does at frame 100, 20 times"


def test_args_mismatch_is_explained_wherever_it_was_raised() -> None:
    got = "JitError: args mismatch in JIT: self.captured.expected_names=..."
    (finding,) = judge_run(changed(report__findings=[found("warp_failed", got=got)]), ASKED).findings
    assert finding.guide == "11"
    assert "frame skip" in finding.remedy


def test_a_killed_harness_is_refused() -> None:
    status = {"state": "failed", "exit": -9, "reason": "signal 9", "report": None}
    validation = judge_run(status, ASKED)
    assert validation.verdict == "refused"
    assert [(finding.code, finding.found) for finding in validation.findings] == [("killed", "signal 9")]


@pytest.mark.parametrize(
    ("report", "says"),
    [
        (None, "none"),
        ([], "cannot be read"),
        ({}, "cannot be read"),
        ({**REPORT, "format": 2}, "of format 2"),
        ({**REPORT, "findings": [{"code": "x"}]}, "cannot be read"),
        ({**REPORT, "numbers": {"frames": "many"}}, "cannot be read"),
    ],
)
def test_without_a_readable_report_nothing_is_known(report: Any, says: str) -> None:
    for status in ({"state": "ok", "exit": 0}, {"state": "failed", "exit": None}, {"state": "failed"}):
        validation = judge_run({**status, "report": report}, ASKED)
        assert validation.verdict == "unknown"
        assert says in validation.findings[0].found
        assert validation.findings[0].found.endswith(f"; exit status {status.get('exit')}")
        assert (validation.numbers, validation.proof) == ({}, {})
    timeout = judge_run({"state": "timeout", "report": report}, ASKED)
    assert (timeout.verdict, timeout.numbers, timeout.proof) == ("refused", {}, {})


@pytest.mark.parametrize("state", ["onroad", "cancelled", "input_changed", "lost", "running"])
@pytest.mark.parametrize("report", [None, REPORT])
def test_a_run_that_was_ended_from_outside_says_nothing(state: str, report: Any) -> None:
    validation = judge_run({"state": state, "reason": "so it was", "report": report}, ASKED)
    assert validation.verdict == "unknown"
    assert validation.findings[0].code == state
    assert validation.findings[0].found == "so it was"


def test_what_was_found_before_a_run_was_ended_from_outside_is_told() -> None:
    status = changed(state="onroad", report__findings=[found("stopped"), found("not_finite")])
    validation = judge_run(status, ASKED)
    assert validation.verdict == "unknown"
    assert [finding.code for finding in validation.findings] == ["onroad", "not_finite"]


def test_a_harness_that_was_terminated_by_somebody_says_nothing() -> None:
    status = changed(state="failed", exit=30, report__findings=[found("stopped")])
    assert judge_run(status, ASKED).verdict == "unknown"


def test_a_timeout_is_refused_and_tells_how_far_it_came() -> None:
    status = changed(state="timeout", reason="ended after 300 s", report__findings=[found("stopped")])
    validation = judge_run(status, ASKED)
    assert validation.verdict == "refused"
    assert validation.findings[0].found == "ended after 300 s after 200 frames"


def test_a_harness_that_failed_by_itself_is_not_held_against_the_artifact() -> None:
    status = changed(state="failed", exit=40, report__findings=[found("broken")])
    assert judge_run(status, ASKED).verdict == "unknown"
