"""Files with one thing wrong, and the problems that the parser finds in them."""

from __future__ import annotations

import pytest

from buildlib.core.declaration.catalog_parser import parse_catalog
from buildlib.errors import CatalogError

SAMPLE = "source: {kind: sample, seed: 1}"
MODEL = f"display_name: M, {SAMPLE}, artifact: m.pkl"


def problems(text: str, environ: dict[str, str] | None = None) -> tuple[str, ...]:
    with pytest.raises(CatalogError) as caught:
        parse_catalog(text, path="models.yaml", environ=environ or {})
    return caught.value.problems


def model(keys: str) -> str:
    """A file with one good model and, from line 3 on, more of its keys."""
    lines = "".join(f"    {line}\n" for line in keys.splitlines())
    return f"models:\n  nopp:\n{lines}    {SAMPLE}\n" + ("" if "artifact" in keys else "    artifact: nopp.pkl\n")


def device(keys: str) -> str:
    """A device `desk`, its keys from line 3 on."""
    return "devices:\n  desk:\n" + "".join(f"    {line}\n" for line in keys.splitlines()) + "models: {}\n"


def target(keys: str) -> str:
    """A target `iq`, its keys from line 3 on."""
    return "targets:\n  iq:\n" + "".join(f"    {line}\n" for line in keys.splitlines()) + "models: {}\n"
