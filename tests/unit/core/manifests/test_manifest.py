"""Entries are found by bundle and file name; what is missing or ambiguous is told with candidates and lines."""

import json

import msgspec
import pytest

from buildlib.core.catalog import Bundle
from buildlib.core.manifests.manifest import Chunk, Manifest, read_entry, tinygrad_ref
from buildlib.core.manifests.manifest_change import Change, is_made, undo
from buildlib.core.manifests.manifest_edit import (
    Wanted,
    add_bundle,
    bundle_values,
    edit_entry,
    remove_bundle,
    set_tinygrad_ref,
)
from buildlib.errors import TargetError
from tests.unit.core.manifests.test_release import NOPP

OLD, NEW = "a" * 64, "b" * 64

SELECTOR = (
    """{
  "tinygrad_ref": "966a8f5112dbc0e4f6d8120c1ec4d98e95fa2bcb",
  "bundles": [
    {
      "short_name": "NOPP",
      "display_name": "No PP (June 26, 2026)",
      "is_20hz": true,
      "ref": "one",
      "runner": "tinygrad",
      "index": 7,
      "generation": "12",
      "build_time": "2026-08-23T22:01:27Z",
      "overrides": { "folder": "Master Models", "lat": ".0", "long": ".3" },
      "models": [
        {
          "type": "supercombo",
          "artifact": {
            "file_name": "nopp.pkl",
            "download_uri": {
              "url": "https://host/models/model-No%20PP/nopp.pkl",
              "sha256": "OLD"
            }
          },
          "metadata": {
            "file_name": "nopp_metadata.pkl",
            "download_uri": {
              "url": "https://host/models/model-No%20PP/nopp_metadata.pkl",
              "sha256": "OLD"
            }
          }
        }
      ]
    }
  ]
}
""".replace("OLD", OLD)
).encode()

CAMEL = json.dumps(
    {
        "bundles": [
            {
                "internalName": "NOPP",
                "displayName": "No PP",
                "index": 3,
                "models": [{"artifact": {"fileName": "nopp.pkl", "downloadUri": {"uri": "u", "sha256": OLD}}}],
            }
        ]
    }
).encode()


def changed_lines(before: bytes, after: bytes) -> list[bytes]:
    old, new = before.splitlines(), after.splitlines()
    assert len(old) == len(new)
    return [line.strip() for line, was in zip(new, old, strict=True) if line != was]


def test_an_entry_is_read_with_its_bundle_url_and_line() -> None:
    entry = read_entry(SELECTOR, "nopp.pkl", "NOPP")
    assert (entry.sha256, entry.bundle, entry.line) == (OLD, "NOPP", 17)
    assert entry.url == "https://host/models/model-No%20PP/nopp.pkl"
    assert entry.build_time == "2026-08-23T22:01:27Z"
    assert tinygrad_ref(SELECTOR) == "966a8f5112dbc0e4f6d8120c1ec4d98e95fa2bcb"


def test_an_edit_changes_the_hash_and_the_build_time_and_nothing_else() -> None:
    wanted = Wanted(file_name="nopp.pkl", sha256=NEW, build_time="2026-12-01T00:00:00Z")
    edited = edit_entry(SELECTOR, wanted, "NOPP")
    assert changed_lines(SELECTOR, edited) == [
        b'"build_time": "2026-12-01T00:00:00Z",',
        f'"sha256": "{NEW}"'.encode(),
    ]
    assert read_entry(edited, "nopp_metadata.pkl", "NOPP").sha256 == OLD


def test_an_entry_that_is_as_wanted_keeps_its_build_time() -> None:
    wanted = Wanted(file_name="nopp.pkl", sha256=OLD, build_time="2026-12-01T00:00:00Z")
    assert edit_entry(SELECTOR, wanted, "NOPP") == SELECTOR


def test_an_upper_case_hash_is_the_same_hash() -> None:
    shouted = SELECTOR.replace(OLD.encode(), OLD.upper().encode())
    assert edit_entry(shouted, Wanted(file_name="nopp.pkl", sha256=OLD), "NOPP") == shouted


def test_a_url_that_differs_only_in_the_case_of_its_escapes_stays() -> None:
    spelled = SELECTOR.replace(b"No%20PP", b"No%2cPP")
    wanted = Wanted(file_name="nopp.pkl", sha256=OLD, url="https://host/models/model-No%2CPP/nopp.pkl")
    assert edit_entry(spelled, wanted, "NOPP") == spelled


def test_a_url_with_escaped_slashes_keeps_them_escaped() -> None:
    escaped = SELECTOR.replace(b"https://host/models/model-No%20PP/nopp.pkl", b"https:\\/\\/host\\/nopp.pkl")
    moved = edit_entry(escaped, Wanted(file_name="nopp.pkl", sha256=OLD, url="https://host/17/nopp.pkl"), "NOPP")
    assert moved == escaped.replace(b"\\/nopp.pkl", b"\\/17\\/nopp.pkl")
    assert edit_entry(moved, Wanted(file_name="nopp.pkl", sha256=OLD, url="https://host/nopp.pkl"), "NOPP") == escaped


def test_camel_case_bundles_are_edited() -> None:
    edited = edit_entry(CAMEL, Wanted(file_name="nopp.pkl", sha256=NEW, url="v"), "NOPP")
    entry = read_entry(edited, "nopp.pkl", "NOPP")
    assert (entry.sha256, entry.url) == (NEW, "v")
    assert edited == CAMEL.replace(OLD.encode(), NEW.encode()).replace(b'"u"', b'"v"')


@pytest.mark.parametrize(
    "plain",
    [
        [{"file_name": "nopp.pkl", "sha256": OLD}, {"file_name": "other.pkl", "sha256": OLD}],
        [{"file name": "nopp.pkl", "sha256": OLD}, {"file name": "other.pkl", "sha256": OLD}],
        {"models": [{"name": "nopp.pkl", "sha256": OLD}, {"name": "other.pkl", "sha256": OLD}]},
        {"files": {"list": [{"fileName": "nopp.pkl", "sha256": OLD}, {"fileName": "other.pkl", "sha256": OLD}]}},
    ],
)
def test_plain_lists_are_edited_by_file_name_alone(plain: object) -> None:
    data = json.dumps(plain).encode()
    edited = edit_entry(data, Wanted(file_name="nopp.pkl", sha256=NEW), "NOPP")
    assert edited == data.replace(OLD.encode(), NEW.encode(), 1)


def test_the_same_file_name_in_two_bundles_is_told_apart_by_bundle_and_ambiguous_without() -> None:
    other = SELECTOR.replace(b'"NOPP"', b'"OTHER"')
    bundle = other[other.index(b"    {\n") : other.index(b"\n  ]\n}")]
    both = SELECTOR.replace(b"\n  ]\n}\n", b",\n" + bundle + b"\n  ]\n}\n")
    edited = edit_entry(both, Wanted(file_name="nopp.pkl", sha256=NEW), "OTHER")
    assert read_entry(edited, "nopp.pkl", "NOPP").sha256 == OLD
    assert read_entry(edited, "nopp.pkl", "OTHER").sha256 == NEW
    with pytest.raises(TargetError) as caught:
        read_entry(both, "nopp.pkl", None)
    assert 'line 17 of "NOPP"' in str(caught.value)
    assert 'of "OTHER"' in str(caught.value)


def test_two_bundles_of_one_name_are_told_apart_by_ref() -> None:
    bundle = SELECTOR[SELECTOR.index(b"    {\n") : SELECTOR.index(b"\n  ]\n}")].replace(b'"one"', b'"two"')
    both = SELECTOR.replace(b"\n  ]\n}\n", b",\n" + bundle + b"\n  ]\n}\n")
    with pytest.raises(TargetError, match="ambiguous"):
        read_entry(both, "nopp.pkl", "NOPP")
    assert read_entry(both, "nopp.pkl", "NOPP", ref="one").line == 17
    assert read_entry(both, "nopp.pkl", "NOPP", ref="two").line > 30


def test_metadata_under_the_artifacts_own_name_is_another_entry() -> None:
    same = SELECTOR.replace(b"nopp_metadata.pkl", b"nopp.pkl")
    edited = edit_entry(same, Wanted(file_name="nopp.pkl", sha256=NEW), "NOPP")
    assert changed_lines(same, edited) == [f'"sha256": "{NEW}"'.encode()]
    assert edited.index(NEW.encode()) < edited.index(b'"metadata"')


def test_bundles_may_be_the_manifest_itself() -> None:
    bare = json.dumps(json.loads(CAMEL)["bundles"]).encode()
    entry = read_entry(edit_entry(bare, Wanted(file_name="nopp.pkl", sha256=NEW), "NOPP"), "nopp.pkl", "NOPP")
    assert (entry.sha256, entry.bundle) == (NEW, "NOPP")


def test_a_missing_file_names_the_bundles_line_and_what_is_there() -> None:
    with pytest.raises(TargetError) as caught:
        read_entry(SELECTOR, "nop.pkl", "NOPP", where="docs/model_selector_b.json")
    message = str(caught.value)
    assert message.startswith("docs/model_selector_b.json:4: ")
    assert "nopp.pkl (line 17)" in message


def test_a_missing_bundle_offers_the_nearest_names() -> None:
    with pytest.raises(TargetError, match=r"NOPP \(line 4\)"):
        read_entry(SELECTOR, "nopp.pkl", "NOPPP")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (SELECTOR.replace(b'"ref": "one"', b'"short_name": "one"'), 'key "short_name" stands twice, first on line 5'),
        (SELECTOR.replace(b'"index": 7', b'"index": NaN'), ":10: "),
        (SELECTOR.replace(b'"index": 7', b'"index": 07'), ":10: "),
        (SELECTOR.replace(b'"index": 7,', b'"index": 7,,'), ":10: "),
        (SELECTOR[:-10], "the end of the file"),
        (SELECTOR + b"{}", "after the end"),
        (b"", "expected a JSON value"),
        (b"[" * 200, "nested deeper"),
        (SELECTOR.replace(b"June", b"J\xfcne"), "not UTF-8"),
        (SELECTOR.replace(b"June", b"Ju\nne"), "broken string"),
    ],
)
def test_what_is_not_strict_json_is_refused_with_its_line(broken: bytes, said: str) -> None:
    with pytest.raises(TargetError) as caught:
        edit_entry(broken, Wanted(file_name="nopp.pkl", sha256=NEW), "NOPP")
    assert said in str(caught.value)


def chunk(number: int, of: int, digit: str = "c") -> Chunk:
    return Chunk(file_name=f"nopp.pkl.chunk{number:02d}of{of:02d}", sha256=digit * 64)


def test_chunks_come_and_go_in_the_files_own_layout() -> None:
    two = (chunk(1, 2), chunk(2, 2))
    three = (chunk(1, 3, "d"), chunk(2, 3, "e"), chunk(3, 3, "f"))
    with_two = edit_entry(SELECTOR, Wanted(file_name="nopp.pkl", sha256=OLD, chunks=two), "NOPP")
    assert read_entry(with_two, "nopp.pkl", "NOPP").chunks == two
    assert (
        b'            "chunks": [\n              {\n                "file_name": "nopp.pkl.chunk01of02",\n' in with_two
    )
    with_three = edit_entry(with_two, Wanted(file_name="nopp.pkl", sha256=OLD, chunks=three), "NOPP")
    assert read_entry(with_three, "nopp.pkl", "NOPP").chunks == three
    assert edit_entry(with_three, Wanted(file_name="nopp.pkl", sha256=OLD, chunks=two), "NOPP") == with_two
    assert edit_entry(with_two, Wanted(file_name="nopp.pkl", sha256=OLD), "NOPP") == SELECTOR


def test_a_change_is_taken_back_to_the_byte_also_with_its_url_pieces_and_time() -> None:
    pieces = {"url": "https://host/new.pkl", "chunks": (chunk(1, 2), chunk(2, 2)), "build_time": "2026-12-01T00:00:00Z"}
    change = Change(kind="set", short_name="NOPP", wanted=(Wanted(file_name="nopp.pkl", sha256=NEW, **pieces),))
    after = change.apply(SELECTOR, "m")
    assert (is_made(change, SELECTOR, "m"), is_made(change, after, "m")) == (False, True)
    assert undo(change, SELECTOR, "m").apply(after, "m") == SELECTOR
    assert change.apply(undo(change, SELECTOR, "m").apply(after, "m"), "m") == after
    edited = after.replace(b'"index": 7', b'"index": 8')
    assert undo(change, SELECTOR, "m").apply(edited, "m") == SELECTOR.replace(b'"index": 7', b'"index": 8')


def test_a_bundle_that_a_change_added_is_taken_back_and_stays_away_a_second_time() -> None:
    wanted = Wanted(file_name="drl3.pkl", sha256=NEW)
    change = Change(kind="add", short_name="DRLV3", wanted=(wanted,), values=NEW_BUNDLE)
    after = change.apply(SELECTOR, "m")
    back = undo(change, SELECTOR, "m")
    assert after != SELECTOR
    assert change.apply(after, "m") == after, "it is there already"
    assert back.apply(after, "m") == SELECTOR
    assert back.apply(SELECTOR, "m") == SELECTOR
    with pytest.raises(TargetError, match="a plain list has no bundles"):
        change.apply(b'[{"file_name": "drl3.pkl", "sha256": "' + OLD.encode() + b'"}]', "m")


@pytest.mark.parametrize("chunks", [(), (chunk(1, 2), chunk(2, 2))])
def test_the_values_of_a_new_bundle_are_the_models(chunks: tuple[Chunk, ...]) -> None:
    wanted = Wanted(file_name="nopp.pkl", sha256=NEW, url="https://host/nopp.pkl", chunks=chunks)
    bundle = Bundle(short_name="NOPP", ref="three", generation="12", overrides={"lat": ".1"})
    model = msgspec.structs.replace(NOPP, bundle=bundle)
    values = bundle_values(model, (wanted,), "2026-12-01T00:00:00Z", {"is_20hz": True})
    added = add_bundle(b'{"bundles": []}', values)
    entry = read_entry(added, "nopp.pkl", "NOPP", ref="three")
    assert (entry.sha256, entry.url, entry.chunks, entry.build_time) == (
        NEW, "https://host/nopp.pkl", chunks, "2026-12-01T00:00:00Z",
    )  # fmt: skip
    (made,) = json.loads(added)["bundles"]
    assert made["models"][0]["type"] == "supercombo"
    assert {key: made[key] for key in ("display_name", "generation", "overrides", "runner", "is_20hz", "index")} == {
        "display_name": NOPP.display_name, "generation": "12", "overrides": {"lat": ".1"}, "runner": "tinygrad",
        "is_20hz": True, "index": 0,
    }  # fmt: skip
    assert "environment" not in made
    with pytest.raises(TargetError, match="needs a name"):
        bundle_values(msgspec.structs.replace(NOPP, bundle=None), (wanted,), "", {})
    with pytest.raises(TargetError, match="needs the URL"):
        bundle_values(NOPP, (Wanted(file_name="nopp.pkl", sha256=NEW),), "", {})


NEW_BUNDLE = {
    "short_name": "DRLV3",
    "display_name": "DRL v3 (July 1, 2026)",
    "ref": "three",
    "build_time": "2026-12-01T00:00:00Z",
    "overrides": {"folder": "Master Models", "lat": ".1"},
    "models": [
        {
            "type": "supercombo",
            "artifact": {"file_name": "drl3.pkl", "download_uri": {"url": "https://host/drl3.pkl", "sha256": NEW}},
        }
    ],
}


def test_a_new_bundle_is_written_in_the_hand_of_the_last_one_and_removed_without_a_trace() -> None:
    added = add_bundle(SELECTOR, NEW_BUNDLE)
    assert added.startswith(SELECTOR[: SELECTOR.rindex(b"\n  ]")])
    assert b'      "overrides": { "folder": "Master Models", "lat": ".1" },\n' in added
    bundle = json.loads(added)["bundles"][1]
    assert bundle["index"] == 8
    assert (bundle["runner"], bundle["generation"], bundle["is_20hz"]) == ("tinygrad", "12", True)
    assert list(bundle)[:3] == ["short_name", "display_name", "is_20hz"]
    assert read_entry(added, "drl3.pkl", "DRLV3").sha256 == NEW
    assert remove_bundle(added, "DRLV3") == SELECTOR
    with pytest.raises(TargetError, match="already there"):
        add_bundle(added, NEW_BUNDLE)


def test_a_new_bundle_takes_over_camel_case_and_one_line_files() -> None:
    added = add_bundle(CAMEL, NEW_BUNDLE)
    bundle = json.loads(added)["bundles"][1]
    assert bundle["internalName"] == "DRLV3"
    assert bundle["models"][0]["artifact"]["downloadUri"] == {"uri": "https://host/drl3.pkl", "sha256": NEW}
    assert remove_bundle(added, "DRLV3") == CAMEL


def test_a_new_bundle_starts_an_empty_list() -> None:
    added = add_bundle(b'{\r\n\t"bundles": []\r\n}', NEW_BUNDLE)
    assert added.count(b"\n") == added.count(b"\r\n")
    assert b'\r\n\t\t{\r\n\t\t\t"index": 0,' in added
    assert remove_bundle(added, "DRLV3") == b'{\r\n\t"bundles": []\r\n}'


def test_the_first_of_two_bundles_is_removed() -> None:
    added = add_bundle(SELECTOR, NEW_BUNDLE)
    left = Manifest(remove_bundle(added, "NOPP"), "m").bundles()
    assert [bundle.short_name for bundle in left] == ["DRLV3"]


def test_the_catalogs_tinygrad_is_replaced_alone() -> None:
    moved = set_tinygrad_ref(SELECTOR, "f" * 40)
    assert changed_lines(SELECTOR, moved) == [f'"tinygrad_ref": "{"f" * 40}",'.encode()]


# -- odd and hostile files -----------------------------------------------------------------------------------------


def hostile(old: str, new: str) -> bytes:
    assert old.encode() in SELECTOR
    return SELECTOR.replace(old.encode(), new.encode(), 1)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('"sha256": "' + OLD, '"SHA256": "x", "sha256": "' + OLD, '"SHA256" and "sha256" are one and the same'),
        ('"file_name": "nopp.pkl"', '"file_name": "nopp.pkl", "fileName": "x"', '"file_name" and "fileName"'),
        ('"build_time"', '"buildTime": "x", "build_time"', '"buildTime" and "build_time"'),
        ("2026-08-23T22:01:27Z", r"\ud800", '"build_time" holds half a character'),
        ('"index": 7', '"index": 1e999', "a number beyond all"),
        ('"index": 7', '"index": NaN', "expected a JSON value"),
        ('"index": 7', '"index": -Infinity', "expected a JSON value"),
        ('"index": 7', '"index": 7, "index": 8', "stands twice"),
        ('"index": 7', '"index": ' + "[" * 500 + "]" * 500, "nested deeper"),
    ],
)
def test_what_devices_could_read_otherwise_is_refused_before_anything_is_published(
    old: str, new: str, what: str
) -> None:
    with pytest.raises(TargetError, match=what):
        edit_entry(hostile(old, new), Wanted(file_name="nopp.pkl", sha256=NEW), "NOPP")


def test_another_bundles_oddities_are_none_of_ours() -> None:
    data = hostile('"bundles": [', r'"bundles": [ { "short_name": "\ud800", "SHA256": "a", "sha256": "b" },')
    edited = edit_entry(data, Wanted(file_name="nopp.pkl", sha256=NEW), "NOPP")
    assert read_entry(edited, "nopp.pkl", "NOPP").sha256 == NEW
    with pytest.raises(TargetError) as caught:
        edit_entry(data, Wanted(file_name="nopp.pkl", sha256=NEW), "zzz")
    assert r"\ud800" in caught.value.render()
    assert caught.value.render().encode()


def test_a_manifest_of_a_hundred_megabytes_is_refused_at_once() -> None:
    data = b'{"bundles": [' + b'{"short_name": "X"},' * 5_000_000 + b'{"short_name": "Y"}]}'
    with pytest.raises(TargetError, match="too large for a manifest"):
        read_entry(data, "nopp.pkl", "NOPP")
