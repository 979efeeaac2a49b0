"""What `doit new` guesses from a path, a URL or a git reference."""

from __future__ import annotations

import pytest

from buildlib.core.catalog import GitSource, PathSource, UrlSource
from buildlib.core.declaration.new_model import entry_values, guess_kind, guess_model, parse_origin
from buildlib.errors import SourceError, UsageError
from tests.unit.core.sources.test_model_form import IMAGES, MEMORY, SUPERCOMBO, inspection

GUIDE = "/Volumes/New New Vault/IQModels/models/recompiled16/model-No PP (June 26, 2026)-165/driving_supercombo.onnx"


def test_the_guides_example_gets_the_guides_names() -> None:
    model = guess_model("nopp", {"supercombo": parse_origin(GUIDE)}, "supercombo")
    assert entry_values(model) == {
        "display_name": "No PP (June 26, 2026)",
        "folder": "No PP (June 26, 2026)-165",
        "source": GUIDE,
        "artifact": "driving_supercombo_nopp.pkl",
        "bundle": {"short_name": "NOPP"},
    }


def test_the_folder_is_found_in_a_url_too() -> None:
    address = "https://models.example/models/model-No%20PP%20%28June%2026%2C%202026%29-165/driving_supercombo.onnx"
    model = guess_model("nopp", {"supercombo": UrlSource(url=address, sha256="a" * 64)}, "supercombo")
    assert model.folder == "No PP (June 26, 2026)-165"
    assert entry_values(model)["source"] == {"kind": "url", "url": address, "sha256": "a" * 64}


def test_without_a_folder_the_name_serves() -> None:
    model = guess_model("TobyRL", {"supercombo": PathSource(path="driving.onnx")}, "supercombo")
    assert (model.display_name, model.folder, model.short_name) == ("TobyRL", "TobyRL", "TOBYRL")
    assert model.artifacts == {"supercombo": "driving_supercombo_tobyrl.pkl"}
    assert "folder" not in entry_values(model)


def test_a_dollar_sign_is_doubled() -> None:
    model = guess_model("x", {"supercombo": PathSource(path="/a/${HOME}/m.onnx")}, "supercombo")
    assert entry_values(model)["source"] == "/a/$${HOME}/m.onnx"


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("m.onnx", PathSource(path="m.onnx")),
        ("/a#b/m.onnx", PathSource(path="/a#b/m.onnx")),
        ("/share/#1: model.onnx", PathSource(path="/share/#1: model.onnx")),
        ("https://host/m.onnx", UrlSource(url="https://host/m.onnx", sha256="")),
        ("file:///a/m.onnx", UrlSource(url="file:///a/m.onnx", sha256="")),
        ("ssh://git@h/r#main:a b.onnx", GitSource(repository="ssh://git@h/r", ref="main", path="a b.onnx")),
        ("git@h:o/r.git#main:m.onnx", GitSource(repository="git@h:o/r.git", ref="main", path="m.onnx")),
        ("git+/clones/r#v1:m.onnx", GitSource(repository="/clones/r", ref="v1", path="m.onnx")),
        ("/clones/r.git#v1:m.onnx", GitSource(repository="/clones/r.git", ref="v1", path="m.onnx")),
        (
            "https://github.com/o/r/blob/main/models/a%20b.onnx",
            GitSource(repository="https://github.com/o/r.git", ref="main", path="models/a b.onnx"),
        ),
        (
            "https://gitlab.com/o/r/-/raw/v1/m.onnx?inline=false",
            GitSource(repository="https://gitlab.com/o/r.git", ref="v1", path="m.onnx"),
        ),
        (
            "https://huggingface.co/datasets/o/r/resolve/main/models/m.onnx",
            GitSource(repository="https://huggingface.co/datasets/o/r", ref="main", path="models/m.onnx"),
        ),
    ],
)
def test_origins(text: str, origin: object) -> None:
    assert parse_origin(text) == origin


@pytest.mark.parametrize("name", ["list", "compile", "a/b", "-x", "a=b", "a:b", "", "yes"])
def test_a_name_that_models_yaml_refuses_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="name"):
        guess_model(name, {"supercombo": PathSource(path="m.onnx")}, "supercombo")


def test_an_artifact_that_another_model_has_is_refused() -> None:
    taken = {("nopp", "driving_supercombo_nopp.pkl"): "other"}
    with pytest.raises(UsageError, match="other's already"):
        guess_model("NoPP", {"supercombo": PathSource(path="m.onnx")}, "supercombo", taken=taken)


def test_kinds_and_roles_are_guessed() -> None:
    whole, vision, policy = inspection(SUPERCOMBO), inspection(IMAGES), inspection(MEMORY)
    assert guess_kind([whole]) == ("supercombo", ("supercombo",))
    assert guess_kind([policy, vision]) == ("vision_policy", ("policy", "vision"))
    assert guess_kind([vision, policy, policy]) == ("vision_multi_policy", ("vision", "on_policy", "off_policy"))
    texts = ["driving_off_policy.onnx", "driving_on_policy.onnx", "driving_vision.onnx"]
    assert guess_kind([policy, policy, vision], texts)[1] == ("off_policy", "on_policy", "vision")


@pytest.mark.parametrize("inputs", [[], [IMAGES], [MEMORY], [SUPERCOMBO, SUPERCOMBO]])
def test_parts_that_make_no_model_are_named(inputs: list[dict[str, tuple[str, tuple[int, ...]]]]) -> None:
    with pytest.raises(SourceError, match="make no model"):
        guess_kind([inspection(one) for one in inputs])


@pytest.mark.parametrize(
    ("inputs", "name"),
    [
        ({"bytes": ("int32", (1, 2048))}, "this is magika"),
        ({"x": ("float32", (1,))}, "no driving model"),
        ({"input_img": ("float32", (1,)), "calib": ("float32", (1,))}, "driver monitoring"),
    ],
)
def test_a_stranger_among_the_parts_is_called_by_name(
    inputs: dict[str, tuple[str, tuple[int, ...]]], name: str
) -> None:
    with pytest.raises(SourceError) as caught:
        guess_kind([inspection(IMAGES), inspection(inputs)], ["v.onnx", "odd.onnx"])
    assert caught.value.headline().startswith("odd.onnx: ")
    assert name in caught.value.headline()
    assert caught.value.remedy


def test_a_split_model_names_its_sources_by_role() -> None:
    origins = {"vision": PathSource(path="v.onnx"), "policy": PathSource(path="p.onnx")}
    values = entry_values(guess_model("split", origins, "vision_policy"))
    assert values["kind"] == "vision_policy"
    assert values["sources"] == {"vision": "v.onnx", "policy": "p.onnx"}
    assert values["artifact"] == "driving_split.pkl"
