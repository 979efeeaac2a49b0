"""No text makes a git reference that git would read as an option or run."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from buildlib.core.sources.git_reference import PROTOCOLS, check_reference
from buildlib.errors import SourceError

pieces = st.sampled_from(
    ["ext::", "fd::", "-", "\n", "--upload-pack=", "https://", "ssh://", "file://", "git@", "@", ":", "/"]
)
texts = st.lists(st.one_of(pieces, st.text(max_size=4)), max_size=5).map("".join)


@given(texts, texts, texts)
def test_what_passes_is_neither_an_option_nor_a_helper(repository: str, ref: str, path: str) -> None:
    try:
        check_reference(repository, ref, path)
    except SourceError as error:
        assert "\n" not in error.headline()  # noqa: PT017
        return
    assert not any(text.startswith("-") for text in (repository, ref))
    scheme, separator, rest = repository.partition("://")
    if separator:
        assert scheme in PROTOCOLS
        assert not rest.rpartition("@")[2].startswith("-")
    # git takes NAME:: for a helper where NAME is made of a scheme's letters (transport.c, is_urlschemechar).
    assert not re.match(r"[A-Za-z0-9+.-]*::", repository)
    assert ".." not in path.split("/")
    assert not path.startswith("/")
    assert ":" not in ref
