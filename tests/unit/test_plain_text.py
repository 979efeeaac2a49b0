from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildlib.plain_text import one_line, plain, plain_value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", "a b"),
        ("grüße, 模型\n\ttab", "grüße, 模型\n\ttab"),
        ("a\r\nb", "a\nb"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b", "\\x1b"),
        ("done\rFAILED", "done\\rFAILED"),
        ("\x9b2J", "\\x9b2J"),
        ("a\u202eb", "a\\u202eb"),
        ("a\udcffb", "a\\udcffb"),
        ("\x07\x08\x00", "\\x07\\x08\\x00"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_instead(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(st.text())
def test_nothing_but_tabs_and_newlines_is_left_of_controls_and_twice_is_once(text: str) -> None:
    shown = plain(text)
    assert not any((ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in shown)
    assert plain(shown) == shown
    shown.encode()
    assert "\n" not in one_line(text)
    assert len(one_line(text)) <= 500


def test_a_value_is_made_plain_wherever_it_is_nested() -> None:
    assert plain_value({"a\r": ["\x1b[1mx", {"b": "\x07"}], "n": 1, "t": None}) == {
        "a\r": ["x", {"b": "\\x07"}],
        "n": 1,
        "t": None,
    }
