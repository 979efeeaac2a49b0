"""After a tinygrad bump: new names, new manifests, and a person's word on every bundle that no model declares."""

import json
import random

import msgspec
import pytest

from buildlib.core.catalog import Bundle, Model, SampleSource, Target
from buildlib.core.manifests import release
from buildlib.core.manifests.catalog_release import NewCatalog, new_catalog, next_directory, next_name
from buildlib.core.manifests.manifest import Manifest, tinygrad_ref
from buildlib.core.manifests.manifest_change import Change, take_over
from buildlib.core.manifests.manifest_edit import Wanted
from buildlib.errors import BuildError, TargetError, UsageError
from buildlib.sandbox import manifests as made

OLD, NEW = "0a1b77e0" * 5, "9c8d21f4" * 5
TARGET = Target(name="iq", kind="git", repository="IQModels")
PUBLISHED = made.models()
GUIDE = [short for short, *_ in made.GUIDE_MODELS]


def declared(*names: str) -> list[Model]:
    return [
        Model(
            name=name.lower(),
            display_name=name,
            folder=name,
            sources={"supercombo": SampleSource(seed=1)},
            artifacts={"supercombo": f"{name}.pkl"},
            profile="cpu",
            bundle=Bundle(short_name=name),
        )
        for name in names
    ]


def present(tinygrad: str | None = OLD) -> dict[str, bytes]:
    return {
        path: made.manifest(PUBLISHED, "http://host", tinygrad_ref=tinygrad, seed=seed)
        for seed, path in enumerate(TARGET.manifests)
    }


def started(*names: str, keep: tuple[str, ...] = (), drop: tuple[str, ...] = ()) -> NewCatalog:
    return new_catalog(TARGET, declared(*names), present(), NEW, keep=keep, drop=drop)


@pytest.mark.parametrize(
    ("path", "after"),
    [
        ("recompiled16", "recompiled17"),
        ("recompiled09", "recompiled10"),
        ("docs/model_selector_b.json", "docs/model_selector_c.json"),
        ("docs/driving_models_v99.json", "docs/driving_models_v100.json"),
        ("a.b/models-Y.json", "a.b/models-Z.json"),
        ("models_z.json", "models_aa.json"),
        ("models.json", "models2.json"),
        ("driving_models.json", "driving_models_2.json"),
    ],
)
def test_the_next_number_or_letter(path: str, after: str) -> None:
    assert next_name(path) == after


def test_the_directory_moves_on_in_the_part_that_all_models_share() -> None:
    assert next_directory(TARGET) == "models/recompiled17/model-{folder}"
    dotted = msgspec.structs.replace(TARGET, directory="out/tg1.9/{name}/{folder}")
    assert next_directory(dotted) == "out/tg1.10/{name}/{folder}"
    with pytest.raises(TargetError, match="no part that a new catalog could change"):
        next_directory(msgspec.structs.replace(TARGET, directory="model-{folder}"))


def test_undeclared_bundles_are_listed_and_nothing_begins_without_a_word_on_each() -> None:
    catalog = started(*GUIDE)
    assert len(catalog.undecided) == 57
    assert catalog.declared == tuple(GUIDE)
    with pytest.raises(UsageError, match=r"57 bundles .* and 51 more"):
        catalog.require_decided()
    first, second, *rest = [bundle.short_name for bundle in catalog.undecided]
    with pytest.raises(UsageError, match=f"1 bundles .* got {rest[-1]}"):
        started(*GUIDE, keep=(first,), drop=(second, *rest[:-1])).require_decided()
    whole = started(*GUIDE, keep=(first,), drop=(second, *rest))
    whole.require_decided()
    assert [bundle.short_name for bundle in whole.kept] == [first]
    assert len(whole.dropped) == 56


def test_the_new_manifests_hold_what_is_kept_word_for_word_and_the_new_tinygrad() -> None:
    kept = ("CM0", PUBLISHED[0].short_name, PUBLISHED[40].short_name)[1:]
    catalog = started(*GUIDE, keep=kept, drop=("*",))
    assert [one.path for one in catalog.manifests] == ["docs/model_selector_c.json", "docs/model_fetcher_c.json"]
    for one in catalog.manifests:
        before, after = Manifest(present()[one.former], ""), Manifest(one.data, "")
        assert tinygrad_ref(one.data) == NEW
        assert [bundle.short_name for bundle in after.bundles()] == list(kept)
        for name in kept:
            texts = [m.text[m.bundle(name).start : m.bundle(name).end] for m in (before, after)]
            assert texts[0] == texts[1]
        assert one.data.endswith(b"}\n")


def test_manifests_that_told_no_tinygrad_tell_it_now() -> None:
    catalog = new_catalog(TARGET, declared(*GUIDE), present(None), NEW, drop=("*",))
    for one in catalog.manifests:
        assert one.data.decode().startswith('{\n  "tinygrad_ref": "9c8d')
        assert json.loads(one.data) == {"tinygrad_ref": NEW, "bundles": []}


def test_bundles_come_back_in_their_order_whatever_order_models_are_published_in() -> None:
    kept = tuple(model.short_name for model in PUBLISHED if model.short_name not in GUIDE)[::7]
    catalog = started(*GUIDE, keep=kept, drop=("*",))
    names = list(GUIDE)
    random.Random(3).shuffle(names)
    for one in catalog.manifests:
        former, data = present()[one.former], one.data
        for name in names:
            data = take_over(data, former, name)
        order = [bundle.short_name for bundle in Manifest(former, "").bundles()]
        assert [b.short_name for b in Manifest(data, "").bundles()] == [n for n in order if n in {*kept, *GUIDE}]


def test_a_catalog_that_kept_everything_is_the_old_one_but_for_its_tinygrad_once_all_is_published() -> None:
    for one in started(*GUIDE, keep=("*",)).manifests:
        data = one.data
        for name in GUIDE:
            data = take_over(data, present()[one.former], name)
        assert data == present()[one.former].replace(OLD.encode(), NEW.encode())


def test_an_entry_is_taken_over_and_edited_in_one_change_and_a_second_time_only_edited() -> None:
    (one, _) = started(*GUIDE, drop=("*",)).manifests
    file_name = made.GUIDE_MODELS[1][3]
    change = Change(
        kind="set",
        short_name="NOPP",
        wanted=(
            Wanted(file_name=file_name, sha256="e" * 64, url="http://host/new", build_time="2026-12-01T00:00:00Z"),
        ),
        former={one.path: present()[one.former]},
    )
    after = change.apply(one.data, one.path)
    (bundle,) = json.loads(after)["bundles"]
    (was,) = [b for b in json.loads(present()[one.former])["bundles"] if b["short_name"] == "NOPP"]
    artifact = was["models"][0]["artifact"]
    artifact["download_uri"] = {"url": "http://host/new", "sha256": "e" * 64}
    assert bundle == {**was, "build_time": "2026-12-01T00:00:00Z"}
    assert change.apply(after, one.path) == after


@pytest.mark.parametrize(
    ("keep", "drop", "match"),
    [
        (("NOPP",), (), "NOPP belongs to a model"),
        ((), ("QQ99",), "no undeclared bundle is called 'QQ99'"),
        (("A*", "B*"), ("*",), "is both kept and dropped"),
    ],
)
def test_words_that_cannot_be_meant_are_refused(keep: tuple[str, ...], drop: tuple[str, ...], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        started(*GUIDE, keep=keep, drop=drop)


def test_one_name_both_kept_and_dropped_is_refused_and_a_name_goes_before_a_pattern() -> None:
    name = PUBLISHED[0].short_name
    with pytest.raises(UsageError, match="cannot be kept and dropped"):
        started(*GUIDE, keep=(name,), drop=(name,))
    catalog = started(*GUIDE, keep=("*",), drop=(name,))
    assert [bundle.short_name for bundle in catalog.dropped] == [name]


@pytest.mark.parametrize(
    ("tinygrad", "manifests", "match"),
    [
        ("0.14.0", present(), "not a tinygrad commit"),
        (OLD, present(), "for this tinygrad already"),
        (NEW, {"list.json": b'[{"file_name": "a.pkl", "sha256": "' + b"a" * 64 + b'"}]'}, "plain list"),
    ],
)
def test_what_no_catalog_can_start_from_is_refused(tinygrad: str, manifests: dict[str, bytes], match: str) -> None:
    with pytest.raises(BuildError, match=match):
        new_catalog(TARGET, [], manifests, tinygrad, keep=("*",))


def test_models_yaml_is_told_word_for_word() -> None:
    assert started(*GUIDE, drop=("*",)).settings("iqmodels") == (
        "targets:\n"
        "  iqmodels:\n"
        '    directory: "models/recompiled17/model-{folder}"\n'
        "    manifests:\n"
        "      - docs/model_selector_c.json\n"
        "      - docs/model_fetcher_c.json\n"
        "    succeeds:\n"
        "      - docs/model_selector_b.json\n"
        "      - docs/model_fetcher_b.json"
    )


@pytest.mark.parametrize(
    ("url", "after"),
    [
        (
            "https://h/raw/models/recompiled16/model-No%20PP/a.pkl",
            "https://h/raw/models/recompiled17/model-No%20PP/a.pkl",
        ),
        ("https://h/models/old/model-No PP/a.pkl?raw=1", "https://h/models/recompiled17/model-No PP/a.pkl?raw=1"),
        ("https://h/other/recompiled16/model-No%20PP/a.pkl", None),
        ("https://h/model-No%20PP/a.pkl", None),
    ],
)
def test_a_former_url_moves_to_the_new_directory_where_one_part_differs(url: str, after: str | None) -> None:
    assert release.moved_url(url, "models/recompiled17/model-No PP/a.pkl") == after
