"""Where a person's answers and the device's own words disagree."""

from __future__ import annotations

from typing import Any

import pytest

from buildlib.core.attestation import AFTER_PUBLISHING, POINTS, contradictions
from tests.unit.core.test_gate import drive

YES = dict.fromkeys(POINTS, True)
BYTES = {"m.pkl": "a" * 64}
AGREES = {
    "active": {"m.pkl": "a" * 64, "other.pkl": "b" * 64},
    "selected": ["m.pkl", "other.pkl"],
    "onroad_since_install": True,
    "crashes": [],
    "stale": [],
}


@pytest.mark.parametrize("observed", [{}, AGREES, {"onroad_since_install": None, "selected": None, "crashes": None}])
def test_where_nothing_speaks_against_it_there_is_no_contradiction(observed: dict[str, Any]) -> None:
    assert contradictions(YES, observed, BYTES) == []


@pytest.mark.parametrize(
    ("observed", "said"),
    [
        ({"active": {"m.pkl": "b" * 64}}, f"the device has {'b' * 12} at m.pkl, not {'a' * 12}"),
        ({"active": {"m.pkl": None}}, f"the device has nothing at m.pkl, not {'a' * 12}"),
        ({"selected": ["other.pkl"]}, "another model is selected on the device: other.pkl"),
        ({"stale": ["pid 7"]}, "a stale artifact is still loaded: pid 7"),
        ({"onroad_since_install": False}, "the device says that it was not onroad since the artifact was installed"),
        ({"crashes": ["b", "a"]}, "crash files since the install: a, b"),
    ],
)
def test_what_the_device_says_against_it_is_told(observed: dict[str, Any], said: str) -> None:
    assert contradictions(YES, {**AGREES, **observed}, BYTES) == [said]


@pytest.mark.parametrize(("published", "questions"), [(False, POINTS), (True, AFTER_PUBLISHING)])
def test_each_point_is_to_be_answered_with_yes(published: bool, questions: dict[str, str]) -> None:
    yes = dict.fromkeys(questions, True)
    assert contradictions(yes, {}, BYTES, published=published) == []
    assert contradictions(yes, {}, BYTES, published=not published) != []
    for name, text in questions.items():
        without = {other: True for other in questions if other != name}
        assert contradictions(without, {}, BYTES, published=published) == [f"{name} was not answered: {text}"]
        no = {**yes, name: False}
        assert contradictions(no, {}, BYTES, published=published) == [f"{name} was answered with no: {text}"]


def test_an_answer_to_no_question_is_told() -> None:
    assert contradictions({**YES, "brakes": True}, {}, BYTES) == ["brakes is no point of the guide"]


def test_a_no_to_the_drive_does_not_ask_the_device_for_one() -> None:
    answers = {**YES, "survived_onroad": False}
    assert len(contradictions(answers, {"onroad_since_install": False}, BYTES)) == 1


def test_nothing_is_attested_by_a_drive_of_no_file() -> None:
    assert not drive(artifacts={}).holds_for({}, "r")
