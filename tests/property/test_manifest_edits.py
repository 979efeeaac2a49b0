"""Whatever a manifest looks like, an edit changes the intended values and no other byte."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from buildlib.core.catalog import Target
from buildlib.core.manifests.catalog_release import new_catalog
from buildlib.core.manifests.manifest import Chunk, read_entry
from buildlib.core.manifests.manifest_change import take_over
from buildlib.core.manifests.manifest_edit import Wanted, add_bundle, edit_entry, remove_bundle

few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
HASHES = st.text("0123456789abcdef", min_size=64, max_size=64)
TIMES = st.datetimes().map(lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%SZ"))
WORDS = st.text(min_size=0, max_size=12).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))
ODD_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS.map(lambda w: "x " + w), inner, max_size=3),
    max_leaves=4,
)
BLANKS = st.text(" \t", max_size=3)


class Layout:
    """A way to write JSON: real (two blanks, one-line overrides), compact, or blanks anywhere."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.kind = draw(st.sampled_from(["real", "compact", "tabs", "wild"]))
        self.newline = draw(st.sampled_from(["\n", "\r\n"]))
        self.ascii = draw(st.booleans())

    def gap(self, depth: int) -> str:
        if self.kind == "compact":
            return ""
        if self.kind == "wild":
            return self.draw(st.sampled_from(["", " ", self.newline, self.newline + "   ", "\t", "  "]))
        return self.newline + ("  " if self.kind == "real" else "\t") * depth

    def write(self, value: Any, depth: int = 0) -> str:
        one_line = self.kind == "real" and isinstance(value, dict) and set(value) == {"folder", "lat", "long"}
        if isinstance(value, dict) and value:
            inside = " " if one_line else self.gap(depth + 1)
            colon = self.draw(st.sampled_from([":", ": ", " : "])) if self.kind == "wild" else ": "
            parts = [self.word(key) + colon + self.write(inner, depth + 1) for key, inner in value.items()]
            between = ", " if one_line else None
            body = parts[0]
            for part in parts[1:]:
                body += (between or "," + self.gap(depth + 1)) + part
            return "{" + inside + body + (" " if one_line else self.gap(depth)) + "}"
        if isinstance(value, list) and value:
            body = self.write(value[0], depth + 1)
            for inner in value[1:]:
                body += "," + self.gap(depth + 1) + self.write(inner, depth + 1)
            return "[" + self.gap(depth + 1) + body + self.gap(depth) + "]"
        return self.word(value)

    def word(self, value: Any) -> str:
        text = json.dumps(value, ensure_ascii=self.ascii)
        if isinstance(value, str) and self.kind == "wild" and self.draw(st.booleans()):
            text = text.replace("/", "\\/")
        return text


def shuffled(draw: Callable[[Any], Any], value: dict[str, Any]) -> dict[str, Any]:
    return dict(draw(st.permutations(list(value.items()))))


@st.composite
def artifacts(draw: Any, name: str, camel: bool) -> dict[str, Any]:
    keys = ("fileName", "downloadUri", "uri") if camel else ("file_name", "download_uri", "url")
    value: dict[str, Any] = {
        keys[0]: name,
        keys[1]: shuffled(draw, {keys[2]: "https://host/" + name, "sha256": draw(HASHES)}),
    }
    count = draw(st.sampled_from([0, 0, 1, 3]))
    if count:
        value["chunks"] = [
            {keys[0]: f"{name}.chunk{i + 1:02d}of{count:02d}", "sha256": draw(HASHES)} for i in range(count)
        ]
    return shuffled(draw, value)


@st.composite
def bundles(draw: Any, number: int, camel: bool) -> dict[str, Any]:
    model: dict[str, Any] = {"type": "supercombo", "artifact": draw(artifacts("driving.pkl", camel))}
    if draw(st.booleans()):
        model["metadata"] = draw(artifacts("driving_metadata.pkl", camel))
    value: dict[str, Any] = {
        "internalName" if camel else "short_name": f"B{number}",
        "displayName" if camel else "display_name": draw(WORDS),
        "index": number,
        "overrides": {"folder": draw(WORDS), "lat": ".0", "long": ".3"},
        "models": [model],
        "odd": draw(ODD_VALUES),
    }
    if draw(st.booleans()):
        value["buildTime" if camel else "build_time"] = draw(TIMES)
    return shuffled(draw, value)


@st.composite
def manifests(draw: Any) -> tuple[bytes, int]:
    """A manifest's bytes and how many bundles (B0, B1, ...) it has."""
    count = draw(st.integers(1, 4))
    root: dict[str, Any] = {"bundles": [draw(bundles(i, draw(st.booleans()))) for i in range(count)]}
    if draw(st.booleans()):
        root["tinygrad_ref"] = "9" * 40
    layout = Layout(draw)
    text = layout.write(shuffled(draw, root))
    text = draw(st.sampled_from(["", "\ufeff"])) + text + draw(st.sampled_from(["", layout.newline]))
    return text.encode(), count


def loaded(data: bytes) -> Any:
    return json.loads(data.decode("utf-8-sig"))


def holder(bundle: dict[str, Any]) -> dict[str, Any]:
    return bundle["models"][0]["artifact"]


@few
@given(st.data(), manifests(), HASHES, TIMES)
def test_an_edit_means_what_was_meant_and_editing_back_gives_the_old_bytes(
    data: st.DataObject, drawn: tuple[bytes, int], sha256: str, build_time: str
) -> None:
    before, count = drawn
    chosen = data.draw(st.integers(0, count - 1))
    name = f"B{chosen}"
    was = read_entry(before, "driving.pkl", name)
    chunks = tuple(Chunk(file_name=chunk.file_name, sha256=data.draw(HASHES)) for chunk in was.chunks)
    url = data.draw(st.sampled_from(["https://host/driving.pkl", "https://other/a%20b/driving.pkl"]))
    wanted = Wanted(file_name="driving.pkl", sha256=sha256, url=url, chunks=chunks, build_time=build_time)

    after = edit_entry(before, wanted, name)

    expected = loaded(before)
    bundle = expected["bundles"][chosen]
    artifact = holder(bundle)
    uri = artifact.get("download_uri") or artifact["downloadUri"]
    uri["sha256"] = sha256
    uri["url" if "url" in uri else "uri"] = url
    for piece, chunk in zip(artifact.get("chunks", []), chunks, strict=True):
        piece["sha256"] = chunk.sha256
    for key in ("build_time", "buildTime"):
        if key in bundle and after != before:
            bundle[key] = build_time
    assert loaded(after) == expected

    back = Wanted(file_name="driving.pkl", sha256=was.sha256, url=was.url, chunks=was.chunks, build_time=was.build_time)
    assert edit_entry(after, back, name) == before
    assert edit_entry(after, wanted, name) == after


@few
@given(st.data(), manifests(), HASHES)
def test_bytes_outside_the_edited_values_are_the_same(
    data: st.DataObject, drawn: tuple[bytes, int], sha256: str
) -> None:
    before, count = drawn
    name = f"B{data.draw(st.integers(0, count - 1))}"
    was = read_entry(before, "driving.pkl", name)
    after = edit_entry(before, Wanted(file_name="driving.pkl", sha256=sha256, chunks=was.chunks), name)
    assert len(after) == len(before)
    differing = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    if differing:
        start = after.index(sha256.encode())
        while not start <= differing[0] < start + 64:
            start = after.index(sha256.encode(), start + 1)
        assert differing[-1] < start + 64


@few
@given(st.data(), manifests(), st.integers(0, 4))
def test_any_number_of_chunks_can_be_written(data: st.DataObject, drawn: tuple[bytes, int], pieces: int) -> None:
    before, count = drawn
    name = f"B{data.draw(st.integers(0, count - 1))}"
    was = read_entry(before, "driving.pkl", name)
    chunks = tuple(Chunk(file_name=f"driving.pkl.chunk{i}", sha256=data.draw(HASHES)) for i in range(pieces))
    after = edit_entry(before, Wanted(file_name="driving.pkl", sha256=was.sha256, chunks=chunks), name)
    assert read_entry(after, "driving.pkl", name).chunks == chunks
    for other in range(count):
        if f"B{other}" != name:
            mine, theirs = loaded(after)["bundles"][other], loaded(before)["bundles"][other]
            assert mine == theirs


@few
@given(manifests(), HASHES, WORDS)
def test_a_bundle_that_is_added_can_be_read_and_removed_again(
    drawn: tuple[bytes, int], sha256: str, display_name: str
) -> None:
    before, count = drawn
    artifact = {"file_name": "new.pkl", "download_uri": {"url": "https://host/new.pkl", "sha256": sha256}}
    values = {"short_name": "NEW", "display_name": display_name, "models": [{"artifact": artifact}]}
    after = add_bundle(before, values)
    assert read_entry(after, "new.pkl", "NEW").sha256 == sha256
    assert loaded(after)["bundles"][:count] == loaded(before)["bundles"]
    assert remove_bundle(after, "NEW") == before


@few
@given(st.data(), manifests(), st.sets(st.integers(0, 3)))
def test_bundles_left_out_and_taken_over_again_in_any_order_give_the_old_manifest(
    data: st.DataObject, drawn: tuple[bytes, int], out: set[int]
) -> None:
    before, count = drawn
    left = [f"B{number}" for number in sorted(out) if number < count]
    keep = tuple(f"B{number}" for number in range(count) if f"B{number}" not in left)
    target = Target(name="t", kind="git", repository="r", manifests=("m.json",))
    (made,) = new_catalog(target, [], {"m.json": before}, "8" * 40, keep=keep, drop=tuple(left)).manifests
    assert [b for b in loaded(before)["bundles"] if b["index"] not in out] == loaded(made.data)["bundles"]
    after = made.data
    for name in data.draw(st.permutations(left)):
        after = take_over(after, before, name)
    assert loaded(after) == {**loaded(before), "tinygrad_ref": "8" * 40}
