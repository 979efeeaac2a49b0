from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildlib.core.key import KEY_FORMAT, Difference, canonical, differences, digest, step_key

leaves = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
)
parts = st.dictionaries(st.text(string.ascii_lowercase, min_size=1, max_size=4), values, max_size=4)


@given(parts)
def test_the_order_in_which_parts_were_said_does_not_count(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))
    assert canonical(value) == canonical(turned)
    assert step_key("compile", 1, value) == step_key("compile", 1, turned)


@given(parts, parts)
def test_keys_are_equal_exactly_where_there_is_no_difference(before: dict[str, Any], after: dict[str, Any]) -> None:
    same = canonical(before) == canonical(after)
    assert (step_key("compile", 1, before) == step_key("compile", 1, after)) is same


@given(parts, parts)
def test_differences_name_every_leaf_that_changed_and_only_those(before: dict[str, Any], after: dict[str, Any]) -> None:
    found = differences(before, after)
    assert all(difference.before != difference.after for difference in found)
    if before == after:
        assert found == []


@pytest.mark.parametrize(
    "other",
    [
        step_key("verify", 1, {"a": 1}),
        step_key("compile", 2, {"a": 1}),
        step_key("compile", 1, {"a": 2}),
        step_key("compile", 1, {"a": "1"}),
        step_key("compile", 1, {"b": 1}),
        step_key("compile", 1, {"a": 1, "b": None}),
        step_key("compile", 1, {"a": 1}, KEY_FORMAT + 1),
    ],
)
def test_stage_version_parts_types_and_format_each_make_another_key(other: str) -> None:
    assert step_key("compile", 1, {"a": 1}) != other


def test_the_key_of_a_known_step_never_changes_without_a_new_key_format() -> None:
    """Whoever makes this fail makes everybody rebuild everything: raise KEY_FORMAT, so that it says so."""
    parts = {"onnx": {"supercombo": "a" * 64}, "flags": {"DEV": "QCOM", "IMAGE": "2"}, "arguments": {"frame_skip": 4}}
    assert (KEY_FORMAT, step_key("compile", 1, parts)) == (1, PINNED)


PINNED = "1e43fb7aa2f63a9f3dd2475f1e092814d1ce93ed245d4c55bad907092678a7e7"


def test_an_absent_flag_is_told_as_unset() -> None:
    (found,) = differences({"flags": {"OPENPILOT_HACKS": "1"}}, {"flags": {}})
    assert found == Difference("flags.OPENPILOT_HACKS", "1", None)
    assert str(found) == "flags.OPENPILOT_HACKS: 1 -> unset"


def test_digests_are_lower_case_hex() -> None:
    assert set(digest({})) <= set("0123456789abcdef")
    assert len(digest({})) == 64
