"""Texts that are no catalog at all, each with its line and its words."""

from __future__ import annotations

import pytest
import yaml

from buildlib.core.declaration import yaml_tree
from buildlib.core.declaration.catalog_parser import decode_catalog, parse_catalog
from buildlib.errors import EXIT_CATALOG, CatalogError
from tests.unit.core.declaration.refusals import model, problems

WHOLE_FILE = {
    "empty": ("", "models.yaml: expected models, devices and so on, got an empty file"),
    "only comments": ("# nothing\n\n", "models.yaml: expected models, devices and so on, got an empty file"),
    "a word": ("models", "models.yaml:1: expected keys such as models:, got models"),
    "a list": ("- a", "models.yaml:1: expected keys such as models:, got a list"),
    "no models": ("devices:\n", 'models.yaml:1: expected the key "models", which is missing'),
    "models with nothing": ("models:\n", "models.yaml:1: models: expected a mapping of names, got nothing"),
    "huge": ("#" * (4 * 1024 * 1024 + 1), "models.yaml: expected at most 4,194,304 characters, got 4,194,305"),
    "NUL": ("models: {}\n# \0", "models.yaml:2: expected printable characters, got U+0000"),
    "escape character": ("\nmodels: \x1b[1m", "models.yaml:2: expected printable characters, got U+001B"),
    "lone surrogate": ("models: \ud800", "models.yaml:1: expected printable characters, got U+D800"),
    "tab": ("models:\n\tnopp: 1", "models.yaml:2: expected spaces before a key, got a tab"),
    "broken YAML": (
        "models: [1,\n",
        "models.yaml:2: no YAML: while parsing a flow node did not find expected node content",
    ),
    "second document": ("models: {}\n---\nmodels: {}\n", "models.yaml:2: expected one document, got a second ---"),
    "duplicate section": ("models: {}\nmodels: {}", 'models.yaml:2: key "models" is here twice, first in line 1'),
    "unknown section": ("modles: {}\nmodels: {}", 'models.yaml:1: unknown key "modles"; did you mean "models"?'),
    "deep": ("models: " + "{a: " * 30, "models.yaml:1: more than 20 levels deep"),
    "unknown alias": ("models: *x", "models.yaml:1: models: alias *x stands for nothing before it"),
    "recursive alias": ("models: &x\n  a: *x", "models.yaml:2: models.a: alias *x holds itself"),
    "tag": (
        "models: !!python/object/apply:os.system ['true']",
        'models.yaml:1: models: YAML tags such as "tag:yaml.org,2002:python/object/apply:os.system" are not used here',
    ),
    "list as key": ("? [a]\n: 1", "models.yaml:1: expected a word as a key, got a list or a mapping"),
    "invisible key": (
        'models:\n  "no\u200bpp": {}',
        'models.yaml:2: models: expected a key of printable characters, got "no\\u200bpp"',
    ),
}


@pytest.mark.parametrize("case", WHOLE_FILE)
def test_a_file_that_is_no_catalog_is_named_with_its_line(case: str) -> None:
    text, expected = WHOLE_FILE[case]
    assert problems(text)[0] == expected


def test_bytes_that_are_no_utf8_are_named_with_their_line() -> None:
    with pytest.raises(CatalogError) as caught:
        decode_catalog(b"models:\n  a: \xff", path="models.yaml")
    assert caught.value.problems == ("models.yaml:2: expected UTF-8 text, got the byte 0xff",)


def test_a_byte_order_mark_and_crlf_change_nothing() -> None:
    text = model("frame_skip: 2")
    plain = parse_catalog(text, path="m", environ={})
    assert parse_catalog("\ufeff" + text.replace("\n", "\r\n"), path="m", environ={}) == plain


def test_a_bomb_of_aliases_is_refused_before_it_grows() -> None:
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))
    found = problems(f"a0: &a0 [x]\n{levels}\n")
    assert "more than 500,000 values" in found[-1]


def test_all_problems_come_at_once_in_the_order_of_lines() -> None:
    text = """\
profiles:
  gpu: {flags: {IMAGE: yes}, expected_device: AMD}
devices:
  desk: {host: desk.lan, port: 0}
models:
  list:
    source: ../x.onnx
    artifact: out/x.pkl
  nopp:
    frameskip: 2
    device: dask
    profile: gpo
"""
    found = problems(text)
    assert [line.split(":")[1] for line in found] == ["2", "4", "6", "7", "8", "9", "9", "10", "11", "12"]
    with pytest.raises(CatalogError) as caught:
        parse_catalog(text, path="models.yaml", environ={})
    assert caught.value.exit_status == EXIT_CATALOG
    assert str(caught.value).splitlines()[-1] == "10 errors, nothing was run."


def test_the_slow_parser_reads_the_same_where_the_fast_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text for text, _ in WHOLE_FILE.values() if len(text) < 1000]
    good = model("frame_skip: 2\nflags: {IMAGE: 010, DEV: 'yes'}")
    fast = [problems(text)[0] for text in texts], parse_catalog(good, path="m", environ={})
    monkeypatch.setattr(yaml_tree, "_Loader", yaml.SafeLoader)
    slow = [problems(text)[0] for text in texts], parse_catalog(good, path="m", environ={})
    # Words for broken syntax differ; lines do not.
    assert [text.partition(": ")[0] for text in slow[0]] == [text.partition(": ")[0] for text in fast[0]]
    assert slow[1] == fast[1]
