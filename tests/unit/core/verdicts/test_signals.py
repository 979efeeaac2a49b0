"""What a device shows beside a run: held against the artifact only where it came while the run went on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from buildlib.core.verdicts.findings import refuse
from buildlib.core.verdicts.signals import (
    CrashFile,
    ErrorLog,
    Seen,
    Service,
    Signals,
    crashes_since,
    judge_now,
    judge_signals,
    signs_in,
    texts,
    unseen,
)
from buildlib.core.verdicts.validation import Validation, with_signals

OLD, NEW = CrashFile("old.log", 3, 10.0), CrashFile("new.log", 3, 90.0)
MISMATCH = "AssertionError: args mismatch in JIT: self.captured.expected_names=('a',) != ('b',)"


def zombie(pid: int, **more: Any) -> Seen:
    return Seen(pid=pid, name="iqmodeld", state="Z", started=None, model=True, **more)


BEFORE = Signals(clock=50.0, boot="b", onroad="0", pane="$", crashes=(OLD,), processes=(zombie(7),))


def codes(**changes: Any) -> list[str]:
    return [finding.code for finding in judge_signals(BEFORE, replace(BEFORE, clock=100.0, **changes))]


def test_what_was_there_before_the_run_is_not_held_against_it() -> None:
    assert codes() == []
    assert codes(crashes=()) == []


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"crashes": (OLD, NEW)}, ["crashed"]),
        ({"crashes": (CrashFile("old.log", 4, 10.0),)}, ["crashed"]),
        ({"crashes": (CrashFile("old.log", 3, 11.0),)}, ["crashed"]),
        ({"error_log": ErrorLog(3, 90.0, "boo")}, ["crashed"]),
        ({"processes": (zombie(7), zombie(8))}, ["zombie"]),
        ({"processes": (Seen(pid=8, name="x", state="S", started=1.0, model=True, stale=["/m"]),)}, ["stale_loaded"]),
        ({"processes": (zombie(7, stale=["/m"]),)}, []),
        ({"pane": f"$\n{MISMATCH}"}, ["jit_args"]),
        ({"crashes": (OLD,), "crash_texts": {"old.log": MISMATCH}}, []),
    ],
)
def test_what_came_while_it_went_on_is_told(changes: dict[str, Any], found: list[str]) -> None:
    assert codes(**changes) == found


def test_a_pane_that_nobody_saw_before_tells_nothing_new() -> None:
    unseen = replace(BEFORE, pane=None)
    assert judge_signals(unseen, replace(unseen, pane=MISMATCH)) == ()


def test_a_line_that_stood_there_once_and_now_twice_is_new() -> None:
    before = replace(BEFORE, pane=MISMATCH)
    assert [one.code for one in judge_signals(before, replace(before, pane=f"{MISMATCH}\n{MISMATCH}"))] == ["jit_args"]
    assert judge_signals(before, replace(before, pane=f"more\n{MISMATCH}")) == ()


def test_of_an_error_log_only_what_was_added_is_read() -> None:
    before = replace(BEFORE, error_log=ErrorLog(9, 10.0, MISMATCH))
    longer = replace(before, error_log=ErrorLog(12, 90.0, f"{MISMATCH}\nother"))
    assert [one.code for one in judge_signals(before, longer)] == ["crashed"]
    other = replace(before, error_log=ErrorLog(12, 90.0, f"other\n{MISMATCH}"))
    assert [one.code for one in judge_signals(before, other)] == ["jit_args", "crashed"]


def test_one_look_tells_of_crashes_since_the_install_and_of_silence_while_onroad() -> None:
    seen = replace(BEFORE, processes=(), crashes=(OLD, NEW), error_log=ErrorLog(3, 95.0, "boo"))
    assert crashes_since(seen, 50.0) == ["new.log", "error.log"]
    assert crashes_since(seen, 95.0) == []
    assert [one.code for one in judge_now(seen, 50.0)] == ["crashed"]
    assert [one.code for one in judge_now(seen, None)] == []
    silent = replace(seen, services={"modelV2": Service(True, False), "livePose": Service(False, False)})
    assert list(judge_now(silent, None)) == []
    (finding,) = judge_now(replace(silent, onroad="1"), None)
    assert (finding.code, finding.found) == ("services_dead", "modelV2")
    moving = replace(silent, onroad="1", services={"modelV2": Service(True, True)})
    assert list(judge_now(moving, None)) == []


def test_blank_texts_are_none() -> None:
    assert texts(replace(BEFORE, pane=" \n", crash_texts={"a": "x", "b": ""})) == {"a": "x"}


def test_of_a_device_with_a_screen_it_is_told_what_only_a_person_sees() -> None:
    (screen,) = unseen(BEFORE, local=False)
    assert "frozen UI" in screen
    dark = replace(BEFORE, pane=None, pane_problem="no tmux server runs")
    assert list(unseen(dark, local=False)) == [screen, "the tmux pane: no tmux server runs"]
    assert list(unseen(dark, local=True)) == []


def test_a_network_that_is_away_is_nothing_of_the_models() -> None:
    assert list(signs_in("requests.exceptions.ConnectionError: Failed to establish a new connection", "pane")) == []


def test_a_crash_beside_a_good_run_makes_it_refused_and_a_run_that_says_nothing_stays_so() -> None:
    crash = refuse("crashed", "w", expected="e", found="f", remedy="r")
    good = Validation(verdict="good")
    assert with_signals(good, ()) == good
    told = with_signals(good, (crash,))
    assert (told.verdict, told.findings) == ("refused", (crash,))
    assert with_signals(good, (), unseen(BEFORE, local=False)).unseen
    unknown = Validation(verdict="unknown")
    assert with_signals(unknown, (crash,)) == unknown
