"""Appending an entry leaves every other byte as it was, in any layout that people write."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from buildlib.core.declaration.yaml_append import append_entry
from buildlib.errors import UsageError

VALUES = {"display_name": "No PP: #1 'x'", "source": "/a b/ü.onnx", "bundle": {"short_name": "NOPP"}}

LAYOUTS = {
    "spaced": "models:\n  a:\n    x: 1\n\n  b:\n    x: 2 # why\n\ntargets:\n  t: 1\n",
    "dense": "models:\n  a: {x: 1}\n  b: {x: 2}\ntargets: {}\n",
    "last": "targets: {}\nmodels:\n  a:\n    x: 1",
    "four": "models:\n    a:\n        x: 1\n",
    "comments": "# top\nmodels: # all\n  a:\n    x: 1\n    # y: 2\n  # b:\n  #   x: 1\n\n# the targets\ntargets: {}\n",
    "crlf": "models:\r\n  a:\r\n    x: 1\r\ntargets: {}\r\n",
    "empty": "models:\ntargets: {}\n",
    "empty with comment": "models: # none yet\n  # here\n\ntargets: {}\n",
    "absent": "targets: {}\n",
    "nothing": "",
    "only comments": "# to be written\n",
    "block scalar": "models:\n  a:\n    x: |\n      text\n\n      more\n\ntargets: {}\n",
    "quoted": "\"models\":\n  'a': {x: 1}\n",
    "end mark": "models:\n  a:\n    x: 1\n...\n",
    "anchors": "base: &b {y: 1}\nmodels:\n  a:\n    <<: *b\n    x: 1\n",
}


def inserted_only(before: str, after: str) -> bool:
    """True when `after` is `before` with one piece put in (and a line end where the last line had none)."""
    for text in (before, before + "\n", before + "\r\n"):
        head = 0
        while head < len(text) and head < len(after) and text[head] == after[head]:
            head += 1
        if after.endswith(text[head:]) or any(after.endswith(text[at:]) for at in range(max(head - 200, 0), head)):
            return True
    return False


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_entry_comes_in_and_no_other_byte_changes(layout: str) -> None:
    before = LAYOUTS[layout]
    after = append_entry(before, "models", "nopp", VALUES, path="models.yaml")
    assert inserted_only(before, after)
    held = (yaml.safe_load(before) or {}).get("models") or {}
    assert yaml.safe_load(after)["models"] == {**held, "nopp": VALUES}
    assert list(yaml.safe_load(after)["models"])[-1] == "nopp"
    assert ("\r\n" in after) == ("\r\n" in before)


def test_a_flow_mapping_is_rewritten_with_its_comments() -> None:
    before = "# top\nmodels: {a: {x: 1}} # all\ntargets: {} # none\n"
    after = append_entry(before, "models", "nopp", VALUES, path="models.yaml")
    assert yaml.safe_load(after)["models"] == {"a": {"x": 1}, "nopp": VALUES}
    for comment in ("# top", "# all", "# none"):
        assert comment in after


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("braces", ["{}", "{ }", "  {} # none yet", "{}  "])
@pytest.mark.parametrize("behind", ["", "targets: {t: {x: 1}} # there\n", "# the end\n"])
def test_of_an_empty_mapping_the_braces_go_and_nothing_else(line_end: str, braces: str, behind: str) -> None:
    """As a models.yaml begins: nothing else of it may be laid out anew."""
    before = f"defaults: {{ device: local }}   # ü here\nmodels: {braces}\n{behind}".replace("\n", line_end)
    after = append_entry(before, "models", "nopp", VALUES, path="models.yaml")
    head, _, rest = after.partition(f"models:{line_end}" if "#" not in braces else f"models: # none yet{line_end}")
    assert head == f"defaults: {{ device: local }}   # ü here{line_end}"
    assert rest.endswith(behind.replace("\n", line_end))
    assert yaml.safe_load(after)["models"] == {"nopp": VALUES}


def test_comments_between_sections_stay_with_the_next_one() -> None:
    after = append_entry(LAYOUTS["comments"], "models", "nopp", VALUES, path="models.yaml")
    assert after.endswith("\n\n# the targets\ntargets: {}\n")
    assert after.index("# b:") < after.index("nopp:")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("models:\n  nopp: {}\n", "there already"),
        ("models: [a]\n", "no mapping"),
        ("- a\n", "no YAML mapping"),
        ("models: {a\n", "no YAML"),
        ("models: text\n", "no mapping"),
    ],
)
def test_what_cannot_take_an_entry_is_refused(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        append_entry(text, "models", "nopp", VALUES, path="models.yaml")


keys = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True).filter(
    lambda key: key not in {"nopp", "y", "n", "on", "no"}
)
leaves = st.one_of(st.integers(0, 99), st.text("abc #:'\"\n-{}[]é", max_size=12), st.none())
trees = st.recursive(leaves, lambda inner: st.dictionaries(keys, inner, max_size=3), max_leaves=8)


@given(
    st.dictionaries(keys, trees, max_size=3),
    st.dictionaries(keys, trees, max_size=3),
    st.sampled_from([2, 3, 4]),
    st.booleans(),
    st.sampled_from(["", "# a comment\n", "\n\n", "\n# far\n"]),
)
def test_any_written_catalog_takes_an_entry(
    models: dict[str, object], rest: dict[str, object], indent: int, first: bool, tail: str
) -> None:
    rest.pop("models", None)
    whole = {"models": models, **rest} if first else {**rest, "models": models}
    before = yaml.safe_dump(whole, indent=indent, sort_keys=False, allow_unicode=True) + tail
    if not models:
        before = before.replace("models: {}", "models:")
    after = append_entry(before, "models", "nopp", VALUES, path="models.yaml")
    assert yaml.safe_load(after) == {**whole, "models": {**models, "nopp": VALUES}}
    assert inserted_only(before, after)


@given(st.text(max_size=60))
def test_any_text_takes_an_entry_or_is_refused(text: str) -> None:
    try:
        after = append_entry(text, "models", "nopp", VALUES, path="models.yaml")
    except UsageError:
        return
    assert yaml.safe_load(after)["models"]["nopp"] == VALUES
