"""Which bundle is called active for a run: the device's own words where it has them, with the bytes under test."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from buildlib.core.catalog import Bundle, Model, SampleSource
from buildlib.core.selection import file_names, selection_for

NOPP = "driving_supercombo_nopp.pkl"
NEW = {NOPP: "a" * 64}
MODEL = Model(
    name="nopp",
    display_name="No PP",
    folder="No PP-165",
    sources={"supercombo": SampleSource(seed=2)},
    artifacts={"supercombo": NOPP},
    profile="qcom",
    bundle=Bundle(short_name="NOPP"),
)


def camel(name: str = NOPP, short: str = "NOPP") -> dict[str, Any]:
    artifact = {"fileName": name, "downloadUri": {"uri": "https://x/y", "sha256": "b" * 64}}
    return {
        "internalName": short,
        "index": 7,
        "odd": ["kept"],
        "models": [{"type": "supercombo", "artifact": artifact}],
    }


def snake(name: str = NOPP, short: str = "NOPP") -> dict[str, Any]:
    artifact = {"file_name": name, "download_uri": {"url": "https://x/y", "sha256": "b" * 64}, "chunks": []}
    return {"short_name": short, "models": [{"type": "supercombo", "artifact": artifact}]}


def chosen(*texts: Any) -> dict[str, Any]:
    return dict(json.loads(selection_for(MODEL, NEW, [text if text is None else json.dumps(text) for text in texts])))


def test_the_devices_own_bundle_is_taken_with_the_new_sha256_and_all_else_as_it_was() -> None:
    expected = camel()
    expected["models"][0]["artifact"]["downloadUri"]["sha256"] = "a" * 64
    assert chosen(camel(), None) == expected
    assert chosen(None, {"bundles": [camel("other.pkl", "O"), camel()]}) == expected
    assert chosen(None, [camel()]) == expected


def test_chunks_of_the_published_file_are_not_those_of_the_new_one() -> None:
    artifact = chosen(snake())["models"][0]["artifact"]
    assert artifact == {"file_name": NOPP, "download_uri": {"url": "https://x/y", "sha256": "a" * 64}}


def test_files_named_alike_in_another_bundle_are_not_this_models() -> None:
    assert chosen(camel(short="OTHER"), [camel()])["index"] == 7
    assert chosen(camel(short="OTHER"))["index"] == 0


def test_without_any_a_bundle_is_made_that_names_the_file_and_its_bytes() -> None:
    for told in (None, {}, [], "text", 3, {"bundles": "x"}):
        made = chosen(told)
        assert (made["internalName"], made["displayName"]) == ("NOPP", "No PP")
        assert file_names(json.dumps(made)) == [NOPP]
        assert made["models"][0]["artifact"]["downloadUri"]["sha256"] == "a" * 64
    assert json.loads(selection_for(MODEL, NEW, ["{not json", None]))["index"] == 0
    other = msgspec.structs.replace(MODEL, bundle=None)
    assert json.loads(selection_for(other, NEW, []))["internalName"] == "NOPP"


def test_no_bundle_and_an_unreadable_one_name_no_files() -> None:
    assert file_names(None) is None
    assert file_names("") is None
    assert file_names("{") is None
    assert file_names("[]") is None
