"""Sources on a disk: found, missing, unmounted, changing, oddly named."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from buildlib.core.catalog import PathSource
from buildlib.errors import InputChanged, SourceError, SourceUnavailable
from buildlib.ports.source import SourceContext
from buildlib.sources import reader
from buildlib.store.files import hash_file

Make = Callable[..., SourceContext]


@pytest.mark.parametrize("name", ["driving supercombo.onnx", "No PP (June 26, 2026).onnx", "-x$(id).onnx", "ü.onnx"])
def test_a_file_is_observed_and_copied(context: Make, tmp_path: Path, name: str) -> None:
    settings = context()
    (settings.root / name).write_bytes(b"weights")
    source = reader(PathSource(path=name), settings)
    observed = source.observe()
    assert (observed.sha256, observed.size) == (hashlib.sha256(b"weights").hexdigest(), 7)
    fetched = source.fetch(tmp_path / "out" / "m.onnx")
    assert fetched.path.read_bytes() == b"weights"
    assert fetched.sha256 == observed.sha256


def test_only_content_is_its_identity(context: Make) -> None:
    settings = context()
    for name in ("a.onnx", "b.onnx"):
        (settings.root / name).write_bytes(b"weights")
    first, second = (reader(PathSource(path=name), settings).observe() for name in ("a.onnx", "b.onnx"))
    assert first.identity == second.identity


def test_the_callers_hash_is_used(context: Make) -> None:
    settings = context()
    (settings.root / "a.onnx").write_bytes(b"weights")
    seen: list[Path] = []

    def remembered(path: Path) -> str:
        seen.append(path)
        return "ab" * 32

    observed = reader(PathSource(path="a.onnx"), replace(settings, hash_file=remembered)).observe()
    assert observed.sha256 == "ab" * 32
    assert seen == [settings.root / "a.onnx"]


def test_a_missing_file_names_the_likeliest(context: Make) -> None:
    settings = context()
    (settings.root / "driving_supercombo.onnx").touch()
    with pytest.raises(SourceUnavailable) as caught:
        reader(PathSource(path="driving_supercmobo.onnx"), settings).observe()
    assert "did you mean driving_supercombo.onnx?" in (caught.value.remedy or "")


def test_an_unmounted_share_is_told_from_a_wrong_name(context: Make) -> None:
    path = "/Volumes/New New Vault/IQModels/models/driving_supercombo.onnx"
    with pytest.raises(SourceUnavailable, match="no such file") as caught:
        reader(PathSource(path=path), context()).observe()
    assert "mount" in (caught.value.remedy or "")


def test_a_folder_is_no_file(context: Make) -> None:
    settings = context()
    (settings.root / "models").mkdir()
    (settings.root / "models" / "m.onnx").touch()
    with pytest.raises(SourceError, match="a folder") as caught:
        reader(PathSource(path="models"), settings).observe()
    assert "m.onnx" in (caught.value.remedy or "")


def test_a_file_that_changes_under_the_copy_is_not_taken(context: Make, tmp_path: Path) -> None:
    settings = context()
    source = settings.root / "a.onnx"
    source.write_bytes(b"half of it")

    def then_changed(path: Path) -> str:
        digest = hash_file(path)
        path.write_bytes(b"all of it, later")
        return digest

    with pytest.raises(InputChanged, match="changed while it was copied"):
        reader(PathSource(path="a.onnx"), replace(settings, hash_file=then_changed)).fetch(tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_a_path_that_no_disk_takes_is_a_source_error(context: Make, path: str) -> None:
    with pytest.raises(SourceError):
        reader(PathSource(path=path), context()).observe()
