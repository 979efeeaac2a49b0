"""An error's text is for a terminal: nothing in it is obeyed, no login is repeated."""

from __future__ import annotations

import pytest

from buildlib.errors import BuildError, StoreError, unforeseen
from buildlib.plain_text import printable, without_logins


def test_what_a_terminal_would_obey_or_cannot_show_is_escaped() -> None:
    error = BuildError(
        "somebody else has published", got="by \x1b]0;title\x07Ann\x9b2J \ud800 \u202eb\xfc", remedy="type\rthis"
    )
    text = error.render()
    assert text.encode()
    assert "\x1b" not in text
    assert r"by \x1b]0;title\x07Ann\x9b2J \ud800 \u202eb" in text
    assert "bü" in text
    assert r"type\rthis" in text
    assert error.headline() in text


def test_lines_and_tabs_stay() -> None:
    assert printable("a\n\tb") == "a\n\tb"


def test_the_headline_is_one_line_whatever_a_name_holds() -> None:
    error = BuildError("refused", where="model a\nb", expected="one\nline", got="two\nlines")
    assert error.headline() == r"model a\nb: refused: expected one\nline, got two\nlines"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("see https://me:pw@host/x?y", "see https://...@host/x?y"),
        ("see https://token@host/x", "see https://...@host/x"),
        ("HTTP://token@host", "HTTP://...@host"),
        ("'ssh://git:pw@host/x'", "'ssh://...@host/x'"),
        ("ssh://git@host/x", "ssh://git@host/x"),
        ("git@host:x, a@b", "git@host:x, a@b"),
        ("https://host/a@b", "https://host/a@b"),
    ],
)
def test_a_login_in_an_address_is_hidden(said: str, shown: str) -> None:
    assert without_logins(said) == shown
    assert shown in BuildError("x", got=said).headline()


def test_a_refusal_of_this_machine_is_a_store_error_and_anything_else_one_of_this_tool() -> None:
    full = unforeseen("doit unpublish", OSError(28, "No space left on device", "/x/y"))
    assert isinstance(full, StoreError)
    assert "doit unpublish cannot read or write here: No space left on device" in full.headline()
    assert full.where == "/x/y"
    assert "an error of this tool: KeyError" in unforeseen("doit", KeyError("x")).what
