"""How a source is called in the line of its step."""

from __future__ import annotations

import pytest

from buildlib.core.catalog import GitSource, PathSource, SampleSource, Source, UrlSource
from buildlib.steps.source import briefly


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (PathSource(path="/Volumes/New New Vault/a/driving supercombo.onnx"), "driving supercombo.onnx"),
        (PathSource(path="~/x.onnx"), "x.onnx"),
        (UrlSource(url="https://h.example:81/a%20b.onnx?token=1", sha256="0" * 64), "a b.onnx from h.example"),
        (UrlSource(url="file:///share/x.onnx", sha256="0" * 64), "x.onnx from a share"),
        (GitSource(repository="https://h/r.git", ref="main", path="m/x.onnx"), "x.onnx at main"),
        (SampleSource(seed=7), "sample seed 7"),
    ],
)
def test_a_source_is_called_by_its_file(source: Source, text: str) -> None:
    assert briefly(source) == text
