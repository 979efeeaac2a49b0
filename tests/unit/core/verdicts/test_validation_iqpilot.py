"""The verdict on a run of IQPilot's harness: each doubt alone is enough to keep it from passing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from buildlib.core.verdicts.signals import CrashFile, Drives, ErrorLog, Signals, new_texts, onroad_since
from buildlib.core.verdicts.validation import Validation
from buildlib.core.verdicts.validation_iqpilot import judge_iqpilot

NAME, SHA = "m.pkl", "a" * 64
PATH = f"/data/media/0/models/{NAME}"
FILE = {"sha256": SHA, "device": 1, "inode": 2, "size": 3, "mtime_ns": 4, "ctime_ns": 5}
MODEL = {
    "pid": 7, "name": "iqmodeld", "named": True, "older": False, "holds": {PATH: "open"}, "others": [], "first": 1.0,
    "last": 13.0, "ended": None, "state": "S", "cpu": [(2.0, 0.1), (8.0, 1.0), (13.0, 2.0)],
}  # fmt: skip
REPORT: dict[str, Any] = {
    "format": 1,
    "harness": {"path": "/h.py", "sha256": "b" * 64, "seconds": 13.0, "exit": 0, "ended": "stopped"},
    "artifacts": [{"path": PATH, "asked": SHA, "before": dict(FILE), "after": dict(FILE), "moved": None}],
    "models": [MODEL],
    "selection": [(0.0, [NAME], [SHA])],
    "services": {"modelV2": {"first": 1.5, "began": 2.0, "last": 13.0, "moves": 200}, "livePose": None, "iqPlan": None},
    "onroad": [(0.0, "0"), (0.5, "1"), (13.5, "0")],
    "asked": {"seconds": 10.0, "start_limit": 90.0},
}
QUIET = Signals(clock=100.0, boot="b", onroad="0", pane="$")


def judge(change: Callable[[dict[str, Any]], Any] | None = None, log: str = "", **more: Any) -> Validation:
    report = copy.deepcopy(REPORT)
    if change is not None:
        change(report)
    status = {"state": "ok", "exit": 0, "report": report, **more}
    return judge_iqpilot(status, {NAME: SHA}, log, QUIET, QUIET)


def test_a_whole_run_is_good_and_says_what_it_could_not_see() -> None:
    verdict = judge()
    assert verdict.good
    assert verdict.summary() == "IQPilot's harness: model alive 11 s, its bytes proven"
    assert any("frozen UI" in text for text in verdict.unseen)
    assert any("livePose, iqPlan" in text for text in verdict.unseen)


OTHERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "other bytes before": lambda r: r["artifacts"][0]["before"].update(sha256="c" * 64),
    "other bytes after": lambda r: r["artifacts"][0]["after"].update(sha256="c" * 64),
    "another inode after": lambda r: r["artifacts"][0]["after"].update(inode=9),
    "moved and came back": lambda r: r["artifacts"][0].update(moved=3.0),
    "no such artifact": lambda r: r["artifacts"].clear(),
    "another selection": lambda r: r["selection"].append((3.0, ["o.pkl"], [])),
    "no selection": lambda r: r["selection"].append((3.0, [], [])),
    "selected with another sha256": lambda r: r["selection"].append((3.0, [NAME], ["c" * 64])),
    "selection came back": lambda r: r["selection"].extend([(3.0, ["o.pkl"], []), (3.2, [NAME], [SHA])]),
    "nobody held it": lambda r: r["models"][0].update(holds={}),
    "an older process held it too": lambda r: r["models"].append({**MODEL, "pid": 6, "older": True}),
    "an older process held it": lambda r: r["models"][0].update(older=True),
    "another one was held too": lambda r: r["models"][0].update(others=["o.pkl"]),
    "an older file of its name": lambda r: r["models"][0].update(others=[f"{NAME} (deleted)"]),
}


@pytest.mark.parametrize("case", OTHERS)
def test_any_doubt_about_the_bytes_is_another_model(case: str) -> None:
    verdict = judge(OTHERS[case])
    assert verdict.verdict == "refused"
    assert verdict.findings[0].code == "another_model_ran"
    assert "harness_failed" not in [finding.code for finding in verdict.findings]


LIVES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "died": (lambda r: r["models"][0].update(ended=5.0, last=5.0), "died"),
    "zombie": (lambda r: r["models"][0].update(ended=5.0, last=5.0, state="Z"), "died"),
    "died beside one that lives": (
        lambda r: (r["models"][0].update(ended=5.0, last=5.0), r["models"].append({**MODEL, "pid": 8, "holds": {}})),
        "died",
    ),
    "late beside one that lives": (
        lambda r: (
            r["services"].update(modelV2=None),
            r["models"][0].update(first=9.0),
            r["models"].append({**MODEL, "pid": 8, "holds": {}}),
        ),
        "not_started",
    ),
    "another service stopped": (
        lambda r: r["services"].update(livePose={"first": 1.5, "began": 2.0, "last": 8.0, "moves": 60}),
        "services_dead",
    ),
    "no message": (lambda r: r["services"]["modelV2"].update(began=None, last=None, moves=0), "services_dead"),
    "stopped sending": (lambda r: r["services"]["modelV2"].update(last=8.0), "services_dead"),
    "no queue and no work": (
        lambda r: (
            r["services"].update(modelV2=None),
            r["models"][0].update(cpu=[(2.0, 1.0), (9.0, 2.0), (13.0, 2.0)]),
        ),
        "frozen",
    ),
    "no queue and no work from its first look on": (
        lambda r: (r["services"].update(modelV2=None), r["models"][0].update(cpu=[(2.0, 1.0), (13.0, 1.0)])),
        "frozen",
    ),
    "too short": (lambda r: r["services"]["modelV2"].update(began=9.0), "not_started"),
    "harness failed": (lambda r: r["harness"].update(ended="by itself", exit=3), "harness_says_no"),
}


@pytest.mark.parametrize("case", LIVES)
def test_a_model_that_does_not_live_and_work_is_refused(case: str) -> None:
    change, code = LIVES[case]
    verdict = judge(change)
    assert verdict.verdict == "refused"
    assert code in [finding.code for finding in verdict.findings]


FINE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "selected, and no sha256 told": lambda r: r["selection"].append((3.0, [NAME], [])),
    "a service that never sent": lambda r: r["services"].update(
        livePose={"first": 1.5, "began": None, "last": None, "moves": 0}
    ),
    "no queue, looked at once": lambda r: (
        r["services"].update(modelV2=None),
        r["models"][0].update(cpu=[(13.0, 1.0)]),
    ),
    "messages, and processor time that nobody counts": lambda r: r["models"][0].update(cpu=[(2.0, 0.0), (13.0, 0.0)]),
}


@pytest.mark.parametrize("case", FINE)
def test_what_is_no_doubt_is_a_pass(case: str) -> None:
    assert judge(FINE[case]).good


def test_a_bad_sign_in_the_harness_s_own_words_refuses_a_good_run() -> None:
    log = "tinygrad.engine.jit.JitError: args mismatch in JIT: img_q arg=2 vs arg=5\n"
    verdict = judge(log=log)
    assert verdict.verdict == "refused"
    assert "jit_args" in [finding.code for finding in verdict.findings]


def test_a_harness_that_ends_well_by_itself_in_good_time_is_a_pass() -> None:
    def ends(report: dict[str, Any]) -> None:
        report["harness"].update(ended="by itself")
        report["models"][0].update(ended=13.0, last=12.9)

    assert judge(ends).good


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["models"].clear(),
        lambda r: r["onroad"].append((14.0, "1")),
        lambda r: r["harness"].update(ended="killed"),
        lambda r: r["harness"].update(ended="told"),
    ],
)
def test_what_is_not_the_artifacts_fault_is_neither_a_pass_nor_held_against_it(change: Callable[..., Any]) -> None:
    assert judge(change).verdict == "unknown"


@pytest.mark.parametrize("state", ["onroad", "cancelled", "lost", "input_changed"])
def test_a_run_that_was_ended_from_outside_says_nothing(state: str) -> None:
    assert judge(state=state, reason="so").verdict == "unknown"


@pytest.mark.parametrize(
    "report", [None, {}, [], {**REPORT, "format": 9}, {**REPORT, "models": "x"}, {**REPORT, "onroad": 1}]
)
def test_no_report_or_another_one_is_no_pass(report: Any) -> None:
    assert judge_iqpilot({"state": "ok", "exit": 0, "report": report}, {NAME: SHA}, "", QUIET, QUIET).verdict != "good"


def test_a_timeout_is_refused() -> None:
    assert judge(state="timeout", reason="ended after 300 s").findings[0].code == "timeout"


def test_a_crash_beside_a_good_run_refuses_it() -> None:
    after = msgspec.structs.replace(QUIET, crashes=(CrashFile("new.log", 5, 101.0),))
    status = {"state": "ok", "exit": 0, "report": REPORT}
    assert judge_iqpilot(status, {NAME: SHA}, "", QUIET, after).findings[0].code == "crashed"
    assert judge_iqpilot(status, {NAME: SHA}, "", after, after).good, "an old crash is not this run's"


def test_a_devices_own_noise_is_not_held_against_the_artifact() -> None:
    noise = "athenad: Connection refused\nupdated: No space left on device\n"
    after = msgspec.structs.replace(QUIET, pane=f"$\n{noise}")
    assert judge_iqpilot({"state": "ok", "exit": 0, "report": REPORT}, {NAME: SHA}, noise, QUIET, after).good


def test_only_what_is_new_in_a_log_counts() -> None:
    before = msgspec.structs.replace(QUIET, error_log=ErrorLog(3, 1.0, "old\n"), pane="a\nb")
    after = msgspec.structs.replace(QUIET, error_log=ErrorLog(7, 2.0, "old\nnew\n"), pane="b\nb\nc")
    assert new_texts(before, after) == {"error.log": "new\n", "tmux pane": "b\nc"}
    written_over = msgspec.structs.replace(QUIET, error_log=ErrorLog(4, 2.0, "all\n"))
    assert new_texts(before, written_over)["error.log"] == "all\n"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"onroad": "1"}, True),
        ({"drives": Drives(60.0, 60.0)}, True),
        ({"drives": Drives(40.0, 40.0)}, False),
        ({"drives": Drives(40.0, 60.0), "onroad_written": 60.0}, None),
        ({"onroad_written": 40.0}, False),
        ({"onroad_written": 60.0}, None),
        ({}, None),
    ],
)
def test_a_drive_is_told_only_by_what_proves_it(seen: dict[str, Any], expected: bool | None) -> None:
    assert onroad_since(msgspec.structs.replace(QUIET, **seen), 50.0) is expected
