"""A variable of models.yaml that is spelt with a YAML escape is not seen by the note of an idle run: no note then."""

from __future__ import annotations

import pytest

from buildlib.doit_parts.idle_note import ESCAPED_DOLLAR


@pytest.mark.parametrize("text", [rb'a: "\u0024{X}"', rb'a: "\x24{X}"', rb'a: "\U00000024{X}"'])
def test_a_dollar_in_disguise_is_noticed(text: bytes) -> None:
    assert ESCAPED_DOLLAR.search(text)


@pytest.mark.parametrize("text", [b"a: ${X}", b"a: $$", rb'a: "\u0041"'])
def test_a_plain_text_leaves_a_note(text: bytes) -> None:
    assert not ESCAPED_DOLLAR.search(text)
