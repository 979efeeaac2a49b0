"""models.lock: read, written, merged badly, moved."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildlib.core.sources.lockfile import Lock, Pin, changes, parse_lock, render_lock
from buildlib.errors import SourceError

PIN = Pin(repository="https://x/y", ref="main", path="a b.onnx", commit="a" * 40, lfs="b" * 64, sha256="b" * 64, size=3)


def test_a_lock_survives_its_text() -> None:
    lock = Lock().with_pin("nopp", "supercombo", PIN)
    assert parse_lock(render_lock(lock)) == lock
    assert lock.pin("nopp", "supercombo") == PIN
    assert lock.pin("tobyrl", "supercombo") is None


def test_no_text_is_an_empty_lock() -> None:
    assert parse_lock("") == Lock() == parse_lock("\n")


def test_the_text_is_sorted_and_ends_in_a_newline() -> None:
    one = Lock().with_pin("b", "x", PIN).with_pin("a", "x", PIN)
    two = Lock().with_pin("a", "x", PIN).with_pin("b", "x", PIN)
    assert render_lock(one) == render_lock(two)
    assert render_lock(one).endswith("}\n")
    assert list(json.loads(render_lock(one))["sources"]) == ["a/x", "b/x"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"format": 2}', "another format"),
        ('{"format": 1, "extra": 1}', "extra"),
        ('{"sources": {"a/x": {}}}', "cannot be read"),
        ("{\n<<<<<<< ours\n}", "models.lock:2"),
        (render_lock(Lock(sources={"a/x": PIN})).replace("a" * 40, "HEAD"), "bad commit"),
        (render_lock(Lock(sources={"a/x": PIN})).replace('"sha256": "bb', '"sha256": "XX'), "bad sha256"),
        (render_lock(Lock(sources={"a/x": PIN})).replace('"lfs": "bb', '"lfs": "cc'), "LFS oid"),
    ],
)
def test_a_damaged_lock_is_named(text: str, word: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_lock(text)
    assert word in caught.value.headline()


@given(st.text())
def test_any_text_is_a_lock_or_a_source_error(text: str) -> None:
    try:
        parse_lock(text)
    except SourceError:
        return


def test_changes_name_the_commits() -> None:
    before = Lock().with_pin("nopp", "supercombo", PIN).with_pin("old", "vision", PIN)
    moved = Pin(repository="https://x/y", ref="main", path="a b.onnx", commit="c" * 40, sha256="d" * 64, size=3)
    after = Lock().with_pin("nopp", "supercombo", moved).with_pin("new", "supercombo", PIN)
    assert changes(before, after) == [
        "new: aaaaaaaa (main)",
        "nopp: aaaaaaaa -> cccccccc (main)",
        "old/vision: no longer in models.yaml",
    ]
    assert changes(before, before) == []
