"""Which flags a compile gets, and where each comes from."""

from __future__ import annotations

from pathlib import Path

from buildlib.core.catalog import Catalog, Device, Model
from buildlib.core.declaration.catalog_parser import parse_catalog
from buildlib.core.flags import (
    Flag,
    effective_flags,
    effective_profile,
    expected_device,
    flag_origins,
    uses_own_profile,
)

TEXT = """\
defaults:
  flags: {FLOAT16: 1}
devices:
  desk: {host: desk}
models:
  nopp:
    source: /x.onnx
    artifact: nopp.pkl
    flags:
      OPENPILOT_HACKS: null
      IMAGE: 1
      DEBUG: 2
  egpu:
    source: /x.onnx
    artifact: egpu.pkl
    expected_device: AMD
    flags: {DEV: AMD, WARP_DEV: QCOM}
"""

GUIDE = {
    "DEV": "QCOM",
    "FLOAT16": "1",
    "IMAGE": "2",
    "JIT_BATCH_SIZE": "0",
    "NOLOCALS": "1",
    "OPENPILOT_HACKS": "1",
    "WARP_DEV": "QCOM",
}


def pick(model: str, device: str, text: str = TEXT) -> tuple[Catalog, Model, Device]:
    catalog = parse_catalog(text, path="models.yaml", environ={})
    return catalog, catalog.models[model], catalog.devices[device]


def test_a_model_without_flags_on_a_device_without_profile_gets_the_guides_seven() -> None:
    plain = "devices: {desk: {host: desk}}\nmodels: {m: {source: /x, artifact: m.pkl}}\n"
    assert effective_flags(*pick("m", "desk", plain)) == GUIDE


def test_the_projects_own_profiles_are_the_guides_seven_and_the_cpu() -> None:
    text = (Path(__file__).parents[3] / "models.yaml").read_text(encoding="utf-8")
    profiles = parse_catalog(text, path="models.yaml", environ={}).profiles
    assert (profiles["qcom"].flags, profiles["qcom"].expected_device) == (GUIDE, "QCOM")
    assert (profiles["cpu"].flags, profiles["cpu"].expected_device) == ({"DEV": "CPU", "WARP_DEV": "CPU"}, "CPU")


def test_the_models_flags_are_merged_over_the_profiles_and_null_unsets() -> None:
    expected = {**GUIDE, "IMAGE": "1", "DEBUG": "2"}
    del expected["OPENPILOT_HACKS"]
    assert effective_flags(*pick("nopp", "desk")) == expected


def test_the_devices_profile_wins_over_the_models() -> None:
    on_local = pick("nopp", "local")
    assert effective_profile(*on_local).name == "cpu"
    assert effective_flags(*on_local) == {"DEBUG": "2", "DEV": "CPU", "FLOAT16": "1", "IMAGE": "1", "WARP_DEV": "CPU"}
    assert not uses_own_profile(*on_local[1:])
    assert uses_own_profile(*pick("nopp", "desk")[1:])


def test_the_models_backend_counts_with_its_own_profile_only() -> None:
    assert effective_flags(*pick("egpu", "desk"))["DEV"] == "AMD"
    assert expected_device(*pick("egpu", "desk")) == "AMD"
    assert effective_flags(*pick("egpu", "local"))["DEV"] == "CPU"
    assert expected_device(*pick("egpu", "local")) == "CPU"


def test_every_flag_tells_where_it_comes_from() -> None:
    origins = flag_origins(*pick("nopp", "desk"))
    assert origins["DEV"] == Flag(value="QCOM", where="built in", origin="profile qcom")
    assert origins["FLOAT16"] == Flag(value="1", where="models.yaml:2", origin="defaults")
    assert origins["OPENPILOT_HACKS"] == Flag(value=None, where="models.yaml:10", origin="model nopp")
    assert origins["IMAGE"] == Flag(value="1", where="models.yaml:11", origin="model nopp")


def test_a_declared_profile_is_found_by_its_line_and_replaces_the_built_in_one() -> None:
    text = "profiles:\n  qcom:\n    expected_device: QCOM\n    flags:\n      DEV: QCOM\n" + TEXT
    catalog, model, desk = pick("egpu", "desk", text)
    desk_flags = flag_origins(catalog, model, desk)
    assert "IMAGE" not in desk_flags
    nopp = flag_origins(catalog, catalog.models["nopp"], desk)
    assert nopp["DEV"] == Flag(value="QCOM", where="models.yaml:5", origin="profile qcom")
