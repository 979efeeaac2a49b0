"""What a good models.yaml resolves to."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

from buildlib.core.catalog import (
    Catalog,
    DevicePaths,
    GitSource,
    Model,
    PathSource,
    SampleSource,
    Timeouts,
    UrlSource,
)
from buildlib.core.declaration.catalog_parser import parse_catalog
from buildlib.core.declaration.interpolation import UsedEnviron
from buildlib.core.declaration.names import BOOLEAN_WORDS
from buildlib.store.workspace import parser_sources

ROOT = Path(__file__).parents[4]

EXAMPLE = """\
defaults:
  device: desk
  flags: {FLOAT16: 1, IMAGE: 2}
  frame_skip: 2
profiles:
  gpu:
    flags: {DEV: "USB+AMD:LLVM", WARP_DEV: QCOM}
    expected_device: AMD
devices:
  desk:
    host: ${DESK:-desk.lan}
    identity: ~/.ssh/id
    tags: [comma3x]
    paths: {models: /data/models}
    timeouts: {idle: 2.5}
  bench: {transport: local}
models:
  nopp:
    display_name: No PP (June 26, 2026)
    folder: No PP (June 26, 2026)-165
    source: ${SHARE}/driving_supercombo.onnx
    artifact: driving_supercombo_nopp.pkl
    flags: {IMAGE: null, FLOAT16: 0x1}
    bundle: {short_name: NOPP, generation: 07, overrides: {lat: .0}}
    was: nopp_old
  split:
    kind: vision_multi_policy
    sources:
      vision: {kind: url, url: 'https://example.com/v.onnx', sha256: %s}
      on_policy: {kind: git, repository: 'git@example.com:m.git', ref: main, path: on.onnx}
      off_policy: {kind: sample, seed: 7}
    artifact: split.pkl
    profile: gpu
    tags: [comma3x]
    model_size: 1024x512
    frame_skip: ${SKIP:-4}
targets:
  iq: {repository: /Volumes/New New Vault/IQModels}
""" % ("AB" * 32)

ENVIRON = {"SHARE": "/Volumes/New New Vault", "HOME": "/home/iq", "UNRELATED": "x"}


@pytest.fixture
def catalog() -> Catalog:
    return parse_catalog(EXAMPLE, path="models.yaml", environ=ENVIRON)


def test_short_forms_become_the_role_of_the_kind(catalog: Catalog) -> None:
    nopp = catalog.models["nopp"]
    assert nopp.sources == {"supercombo": PathSource(path="/Volumes/New New Vault/driving_supercombo.onnx")}
    assert nopp.artifacts == {"supercombo": "driving_supercombo_nopp.pkl"}
    assert nopp.artifact == "driving_supercombo_nopp.pkl"
    assert catalog.models["split"].artifacts == {"combined": "split.pkl"}


def test_every_kind_of_source_is_known_and_hashes_are_lower_case(catalog: Catalog) -> None:
    assert catalog.models["split"].sources == {
        "vision": UrlSource(url="https://example.com/v.onnx", sha256="ab" * 32),
        "on_policy": GitSource(repository="git@example.com:m.git", ref="main", path="on.onnx"),
        "off_policy": SampleSource(seed=7),
    }
    assert catalog.models["split"].is_sample
    assert not catalog.models["nopp"].is_sample


def test_defaults_hold_for_models_that_do_not_say_otherwise(catalog: Catalog) -> None:
    nopp, split = catalog.models["nopp"], catalog.models["split"]
    assert (nopp.frame_skip, split.frame_skip) == (2, 4)
    assert (nopp.model_size, split.model_size) == ((512, 256), (1024, 512))
    assert nopp.camera_resolutions == ((1344, 760), (1928, 1208))
    assert nopp.flags == {"FLOAT16": "0x1", "IMAGE": None}
    assert split.flags == {"FLOAT16": "1", "IMAGE": "2"}


def test_tags_of_a_model_stand_instead_of_the_default_device(catalog: Catalog) -> None:
    assert (catalog.models["nopp"].device, catalog.models["nopp"].tags) == ("desk", ())
    assert (catalog.models["split"].device, catalog.models["split"].tags) == (None, ("comma3x",))


def test_devices_have_what_their_transport_implies(catalog: Catalog) -> None:
    desk, bench = catalog.devices["desk"], catalog.devices["bench"]
    assert (desk.host, desk.identity, desk.sudo, desk.install) == ("desk.lan", "/home/iq/.ssh/id", True, False)
    assert desk.paths == DevicePaths(models="/data/models")
    assert desk.timeouts == Timeouts(idle=2.5)
    assert (bench.sudo, bench.install, bench.paths.root) == (False, True, ".build/devices/bench/root")


def test_local_is_there_without_being_declared(catalog: Catalog) -> None:
    local = catalog.devices["local"]
    assert (local.transport, local.profile, local.install, local.sudo) == ("local", "cpu", True, False)
    assert local.paths == DevicePaths(root=".build/devices/local/root")
    assert catalog.profiles["cpu"].expected_device == "CPU"


def test_keys_of_a_declared_local_are_merged_over_the_built_in_ones() -> None:
    text = "devices: {local: {install: false, paths: {tmp: /tmp/x}}}\nmodels: {}"
    local = parse_catalog(text, path="m", environ={}).devices["local"]
    assert (local.transport, local.profile, local.install) == ("local", "cpu", False)
    assert local.paths == DevicePaths(root=".build/devices/local/root", tmp="/tmp/x")


def test_numbers_where_text_is_meant_stay_as_they_were_written(catalog: Catalog) -> None:
    bundle = catalog.models["nopp"].bundle
    assert bundle is not None
    assert (bundle.generation, bundle.overrides) == ("07", {"lat": ".0"})


@pytest.mark.parametrize(
    "text", ["2", "0x10", "010", "1e3", "1_000", "1.0", ".5", "12:30", "2026-12-01", "a b", "=", "''"]
)
def test_a_flag_is_exactly_the_text_that_was_written(text: str) -> None:
    written = f"models: {{m: {{source: /x, artifact: m.pkl, flags: {{IMAGE: {text}}}}}}}"
    assert parse_catalog(written, path="m", environ={}).models["m"].flags == {"IMAGE": text.strip("'")}


@pytest.mark.parametrize("word", sorted(BOOLEAN_WORDS))
def test_a_boolean_word_in_quotes_is_text(word: str) -> None:
    written = f"models: {{m: {{source: /x, artifact: m.pkl, flags: {{IMAGE: '{word}'}}}}}}"
    assert parse_catalog(written, path="m", environ={}).models["m"].flags == {"IMAGE": word}


def test_lines_are_those_of_the_text(catalog: Catalog) -> None:
    rows = EXAMPLE.splitlines()
    assert (
        catalog.line("models.nopp.flags.IMAGE")
        == f"models.yaml:{rows.index('    flags: {IMAGE: null, FLOAT16: 0x1}') + 1}"
    )
    assert catalog.line("models.nopp.strict_flags") == f"models.yaml:{rows.index('  nopp:') + 1}"
    assert catalog.line("nowhere") == "models.yaml"


def test_an_alias_is_what_it_stands_for() -> None:
    text = """\
models:
  a: {source: /x, artifact: a.pkl, flags: &f {IMAGE: 1}}
  b: {source: /x, artifact: b.pkl, flags: *f}
"""
    models = parse_catalog(text, path="m", environ={}).models
    assert models["a"].flags == models["b"].flags == {"IMAGE": "1"}


def test_an_alias_may_stand_for_one_value_and_for_a_key_used_as_value() -> None:
    text = """\
models:
  a: {source: &s /x, artifact: a.pkl, frame_skip: &n 2}
  &b b: {source: *s, artifact: b.pkl, frame_skip: *n, display_name: *b}
"""
    b = parse_catalog(text, path="m", environ={}).models["b"]
    assert (b.sources, b.frame_skip, b.display_name) == ({"supercombo": PathSource(path="/x")}, 2, "b")


def test_dollars_variables_and_defaults() -> None:
    text = """\
models:
  a:
    source: /x
    artifact: a.pkl
    display_name: $$5 $HOME ${EMPTY}${EMPTY:-full} ${UNSET:-} "${FULL:-x}"
    strict_flags: "${STRICT}"
    flags: {IMAGE: "${IMAGE}"}
"""
    environ = {"EMPTY": "", "FULL": "y", "STRICT": "true", "IMAGE": "yes"}
    model = parse_catalog(text.replace('"${FULL', "${FULL").replace('x}"', "x}"), path="m", environ=environ).models["a"]
    assert model.display_name == "$5 $HOME full  y"
    assert model.strict_flags is True
    assert model.flags == {"IMAGE": "yes"}


def test_only_variables_that_the_text_names_are_asked_for() -> None:
    environ = UsedEnviron(ENVIRON)
    parse_catalog(EXAMPLE, path="models.yaml", environ=environ)
    assert environ.used == {"SHARE": "/Volumes/New New Vault", "HOME": "/home/iq", "DESK": None, "SKIP": None}


def test_the_catalog_goes_through_a_cache_unchanged(catalog: Catalog) -> None:
    packed = msgspec.msgpack.encode(catalog)
    assert msgspec.msgpack.decode(packed, type=Catalog) == catalog
    assert msgspec.json.decode(msgspec.json.encode(catalog), type=Catalog) == catalog


def test_all_that_decides_what_a_text_means_is_part_of_the_cached_catalogs_stamp() -> None:
    todo, found = ["declaration.catalog_parser"], set[str]()
    while todo:
        module = todo.pop()
        found.add(module)
        path = ROOT.joinpath("buildlib", "core", *module.split(".")).with_suffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("buildlib.core"):
                inner = (node.module or "").removeprefix("buildlib.core").lstrip(".")
                named = {f"{inner}.{alias.name}".lstrip(".") for alias in node.names}
                modules = {
                    name
                    for name in {inner, *named}
                    if (ROOT / "buildlib/core" / f"{name.replace('.', '/')}.py").is_file()
                }
                todo += modules - found
    stamped = {name for name, _, _ in parser_sources()}
    assert {f"{module.rpartition('.')[2]}.py" for module in found} <= stamped
    assert len(found) > 8


def test_a_thousand_models_resolve() -> None:
    text = "models:\n" + "".join(
        f"  m{n}: {{source: {{kind: sample, seed: {n}}}, artifact: m{n}.pkl}}\n" for n in range(1000)
    )
    models = parse_catalog(text, path="m", environ={}).models
    assert [model.sources["supercombo"] for model in models.values()] == [SampleSource(seed=n) for n in range(1000)]


def test_a_target_asks_for_harness_and_drive_and_a_sandbox_for_the_harness_unless_it_says_otherwise() -> None:
    text = (
        "models:\n  a: {source: /a.onnx, artifact: a.pkl}\n"
        "targets:\n  real: {repository: ./one}\n  practice: {repository: ./two, sandbox: true}\n"
        "  strict: {repository: ./three, sandbox: true, policy: [onroad]}\n  lax: {repository: ./four, policy: []}\n"
    )
    targets = parse_catalog(text, path="m", environ={}).targets
    assert {name: target.policy for name, target in targets.items()} == {
        "real": ("harness", "onroad"),
        "practice": ("harness",),
        "strict": ("onroad",),
        "lax": (),
    }


def test_the_projects_own_file_holds_the_guides_three_models() -> None:
    catalog = parse_catalog((ROOT / "models.yaml").read_text(encoding="utf-8"), path="models.yaml", environ={})

    def told(model: Model) -> tuple[str, str, str, int, str | None]:
        return model.display_name, model.artifact, model.profile, model.frame_skip, model.device

    assert {name: told(model) for name, model in catalog.models.items()} == {
        "tobyrl": ("TobyRL", "driving_supercombo_tobyrl.pkl", "qcom", 4, "local"),
        "nopp": ("No PP (June 26, 2026)", "driving_supercombo_nopp.pkl", "qcom", 4, "local"),
        "drl3": ("DRLV3", "driving_supercombo_drl3.pkl", "qcom", 4, "local"),
    }
    assert all(catalog.targets[model.target or ""].sandbox for model in catalog.models.values() if model.is_sample)
