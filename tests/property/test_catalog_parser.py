"""No text makes the parser end in anything but a catalog or its own error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from buildlib.core.catalog import Catalog
from buildlib.core.declaration import catalog_file
from buildlib.core.declaration.catalog_parser import decode_catalog, parse_catalog
from buildlib.errors import CatalogError

MODELS_YAML = (Path(__file__).parents[2] / "models.yaml").read_text(encoding="utf-8")
ENVIRON = {"HOME": "/home/iq", "ODD": "a\n\ud800\0: [", "EMPTY": ""}

SIGNS = st.text(alphabet=":-[]{}&*!|>'\"%@`#,?<=~$. \n\tab01yesnoÿ\u202e\ufeff\ud800\0", max_size=200)
KEYS = [
    field.name
    for name in ("File", "Model", "Device", "Target", "Profile", "Bundle", "DevicePaths")
    for field in msgspec.structs.fields(getattr(catalog_file, name))
]
VALUES = """
kind seed width url sha256 ref repository path local desk nopp qcom cpu sample git supercombo vision_policy vision
policy yes null ~ << -1 010 1e3 512x256 a.pkl ../x /x ~/x ${HOME} ${ODD} ${UNSET} ${ $$ {name} { a:b
"""
WORDS = st.sampled_from([*KEYS, *VALUES.split()])
SCALARS = WORDS | st.text(max_size=10) | st.integers() | st.floats() | st.booleans() | st.none() | st.dates()
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=6),
    max_leaves=40,
)
FILES = st.fixed_dictionaries(
    {"models": st.dictionaries(WORDS, st.dictionaries(WORDS, TREES, max_size=8), max_size=4)},
    optional={
        "defaults": st.dictionaries(WORDS, TREES, max_size=6),
        "profiles": st.dictionaries(WORDS, st.dictionaries(WORDS, TREES, max_size=4), max_size=3),
        "devices": st.dictionaries(WORDS, st.dictionaries(WORDS, TREES, max_size=8), max_size=3),
        "targets": st.dictionaries(WORDS, st.dictionaries(WORDS, TREES, max_size=8), max_size=3),
    },
)

few = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
many = settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def outcome(text: str) -> Catalog | tuple[str, ...]:
    """The catalog or the problems; any other end of the parser fails the test."""
    try:
        catalog = parse_catalog(text, path="models.yaml", environ=ENVIRON)
    except CatalogError as error:
        found = error.problems
    else:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(catalog), type=Catalog) == catalog
        return catalog
    assert found
    for problem in found:
        assert problem.startswith("models.yaml")
        assert problem.isprintable(), "a message must not be able to steer a terminal"
        problem.encode("utf-8")
    return found


def dumped(tree: Any) -> str:
    return str(yaml.safe_dump(tree, allow_unicode=True, sort_keys=False))


@few
@given(st.text() | SIGNS)
def test_any_text_ends_in_a_catalog_or_in_problems(text: str) -> None:
    outcome(text)


@few
@given(TREES | FILES)
def test_any_yaml_ends_in_a_catalog_or_in_problems(tree: Any) -> None:
    outcome(dumped(tree))


@few
@given(st.data())
def test_a_damaged_file_ends_in_a_catalog_or_in_problems(data: st.DataObject) -> None:
    text = MODELS_YAML
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + data.draw(SIGNS | WORDS) + text[end:]
    outcome(text)


@few
@given(st.binary(max_size=200))
def test_any_bytes_end_in_text_or_in_problems(data: bytes) -> None:
    try:
        text = decode_catalog(data, path="models.yaml")
    except CatalogError as error:
        problem = error.problems[0]
    else:
        assert text.encode() == data
        return
    assert problem.startswith("models.yaml:")


@few
@given(FILES)
def test_parsing_is_a_function_of_its_arguments(tree: Any) -> None:
    text, environ = dumped(tree), dict(ENVIRON)
    first = outcome(text)
    assert outcome(text) == first
    assert environ == ENVIRON


@few
@given(
    st.dictionaries(
        st.from_regex(r"[A-Z]{1,8}X", fullmatch=True),
        st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=20),
    )
)
def test_a_flag_in_quotes_comes_out_as_it_went_in(flags: dict[str, str]) -> None:
    tree = {
        "models": {
            "m": {"source": "/x", "artifact": "m.pkl", "flags": {k: v.replace("$", "$$") for k, v in flags.items()}}
        }
    }
    text = yaml.safe_dump(tree, default_style='"', allow_unicode=True).replace('"m.pkl"', "m.pkl")
    assert parse_catalog(text, path="m", environ={}).models["m"].flags == flags


@pytest.mark.slow
@many
@given(TREES | FILES)
def test_any_yaml_at_length(tree: Any) -> None:
    outcome(dumped(tree))


@pytest.mark.slow
@many
@given(st.text() | SIGNS)
def test_any_text_at_length(text: str) -> None:
    outcome(text)
