"""Schema and reference page follow the classes that the parser checks against."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from buildlib.core import catalog
from buildlib.core.declaration import catalog_file
from buildlib.core.declaration.catalog_parser import parse_catalog
from buildlib.core.declaration.catalog_reference import renew, table
from buildlib.core.declaration.catalog_schema import FILE_NAME, catalog_schema, schema_text
from buildlib.errors import CatalogError

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "reference" / "models-yaml.md"


def test_the_checked_in_schema_is_current() -> None:
    now = (ROOT / FILE_NAME).read_text(encoding="utf-8")
    assert now == schema_text(), "renew it: python -m buildlib.core.declaration.catalog_schema > models.schema.json"


def test_the_reference_page_is_current_and_shows_every_class() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert renew(page) == page, "renew it, see the top of the page"
    shown = set(re.findall(r"<!-- keys of (\w+) -->", page))
    classes = {name for name, value in vars(catalog_file).items() if _is_raw(value)}
    assert shown == classes - {"Raw"}


def test_the_examples_of_the_reference_page_are_good() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        text = block if re.search(r"^models:", block, re.MULTILINE) else block + "models: {}\n"
        parse_catalog(text, path="example", environ={"HOME": "/home/iq"})
        jsonschema.validate(yaml.safe_load(text), catalog_schema())


def test_models_yaml_names_the_schema_and_is_valid_under_it() -> None:
    text = (ROOT / "models.yaml").read_text(encoding="utf-8")
    assert text.startswith(f"# yaml-language-server: $schema={FILE_NAME}\n")
    jsonschema.Draft202012Validator.check_schema(catalog_schema())
    jsonschema.validate(yaml.safe_load(text), catalog_schema())


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "models: {a: {frameskip: 4}}",
        "models: {a: {frame_skip: '4'}}",
        "models: {a: {artifact: out/a.pkl}}",
        "models: {a: {source: {kind: url, url: 'https://x'}}}",
        "models: {a: {kind: vision}}",
        "models: {'a b': {}}",
        "devices: {desk: {port: 0}}\nmodels: {}",
    ],
)
def test_what_the_schema_refuses_the_parser_refuses_too(text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), catalog_schema())
    with pytest.raises(CatalogError):
        parse_catalog(text, path="m", environ={})


@pytest.mark.parametrize("name", ["Model", "Device", "Target", "Profile", "Bundle", "DevicePaths", "Timeouts"])
def test_every_key_that_can_be_written_has_a_place_in_the_catalog_and_back(name: str) -> None:
    written = {field.name for field in msgspec.structs.fields(getattr(catalog_file, name))}
    resolved = {field.name for field in msgspec.structs.fields(getattr(catalog, name))}
    assert written - {"source", "artifact"} == resolved - {"name"}


@pytest.mark.parametrize("name", ["Model", "Device", "Target", "Bundle", "DevicePaths", "Timeouts", "SampleSource"])
def test_defaults_are_the_same_in_both_places(name: str) -> None:
    raw = _defaults(getattr(catalog_file, name))
    resolved = _defaults(getattr(catalog, name))
    decided_by_resolver = {"profile", "device", "sudo", "install", "paths", "timeouts", "root", "model_size", "policy"}
    for key in raw.keys() & resolved.keys() - decided_by_resolver - {"camera_resolutions"}:
        assert raw[key] == resolved[key], key


def test_a_table_leaves_out_what_another_shows() -> None:
    assert "frame_skip" in table("ModelDefaults")
    assert "frame_skip" not in table("Model")


def _defaults(cls: Any) -> dict[str, Any]:
    found = {}
    for field in msgspec.structs.fields(cls):
        if not field.required:
            value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            found[field.name] = json.loads(msgspec.json.encode(value))
    return found


def _is_raw(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, catalog_file.Raw)
