"""What every kind of source does alike."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from buildlib.core.catalog import GitSource, PathSource, SampleSource, Source, UrlSource
from buildlib.errors import Cancelled, SourceError
from buildlib.ports.source import SourceContext
from buildlib.sources import kind_of, reader
from buildlib.store.files import hash_file

CONTENT = b"an ONNX, as far as a source cares" * 1000


def local_repository(folder: Path) -> str:
    """A repository with one commit; its commit's name."""
    folder.mkdir()
    (folder / "m.onnx").write_bytes(CONTENT)
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "core.hooksPath=/dev/null")
    for command in (("init", "-q"), ("add", "m.onnx"), (*identity, "commit", "-q", "-m", "m")):
        subprocess.run(("git", *command), cwd=folder, check=True)
    return subprocess.run(
        ("git", "rev-parse", "HEAD"), cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def make(kind: str, folder: Path) -> Source:
    file = folder / "the file.onnx"
    file.write_bytes(CONTENT)
    if kind == "path":
        return PathSource(path=str(file))
    if kind == "url":
        return UrlSource(url=file.as_uri(), sha256=hash_file(file))
    if kind == "git":
        repository = folder / "a repository"
        return GitSource(repository=str(repository), ref=local_repository(repository), path="m.onnx")
    return SampleSource(seed=7, width=8)


@pytest.fixture(params=["path", "url", "git", "sample"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    return make(request.param, tmp_path)


@pytest.fixture
def context(tmp_path: Path) -> SourceContext:
    root = tmp_path / "the project"
    root.mkdir()
    return SourceContext(root=root, state=root / ".build" / "sources", hash_file=hash_file, subject="nopp")


def test_the_kind_is_found_by_its_name(source: Source, context: SourceContext) -> None:
    assert type(reader(source, context)).__module__ == f"buildlib.sources.{kind_of(source)}"


def test_a_fetch_gives_whole_bytes_and_says_which(source: Source, context: SourceContext, tmp_path: Path) -> None:
    into = tmp_path / "far" / "away" / "out.onnx"
    fetched = reader(source, context).fetch(into)
    assert fetched.path == into
    assert fetched.sha256 == hash_file(into)
    assert fetched.size == into.stat().st_size
    assert [file.name for file in into.parent.iterdir()] == ["out.onnx"]


def test_what_is_observed_is_what_is_fetched(source: Source, context: SourceContext, tmp_path: Path) -> None:
    observed = reader(source, context).observe()
    fetched = reader(source, context).fetch(tmp_path / "out.onnx")
    assert observed.sha256 in (None, fetched.sha256)
    assert observed.size in (None, fetched.size)


def test_observing_twice_gives_one_identity_of_texts(source: Source, context: SourceContext) -> None:
    first, second = reader(source, context).observe(), reader(source, context).observe()
    assert first == second
    assert isinstance(first.identity, Mapping)
    assert first.identity
    assert all(isinstance(value, str) for pair in first.identity.items() for value in pair)


def test_a_fetch_replaces_what_lies_there(source: Source, context: SourceContext, tmp_path: Path) -> None:
    into = tmp_path / "out.onnx"
    into.write_bytes(b"older")
    fetched = reader(source, context).fetch(into)
    assert hash_file(into) == fetched.sha256


def test_a_cancelled_run_fetches_nothing(source: Source, context: SourceContext, tmp_path: Path) -> None:
    cancel = Event()
    cancel.set()
    into = tmp_path / "out.onnx"
    with pytest.raises(Cancelled):
        reader(source, replace(context, cancel=cancel)).fetch(into)
    assert not into.exists()


GONE: dict[str, Callable[[Path], Source]] = {
    "path": lambda folder: PathSource(path=str(folder / "none.onnx")),
    "url": lambda folder: UrlSource(url=(folder / "none.onnx").as_uri(), sha256="a" * 64),
    "git": lambda folder: GitSource(repository=str(folder / "none"), ref="a" * 40, path="m.onnx"),
    "sample": lambda folder: SampleSource(seed=1, width=60000),
}


@pytest.mark.parametrize("kind", GONE)
def test_what_cannot_be_fetched_is_a_source_error_and_leaves_nothing(
    kind: str, context: SourceContext, tmp_path: Path
) -> None:
    into = tmp_path / "out.onnx"
    with pytest.raises(SourceError) as caught:
        reader(GONE[kind](tmp_path), context).fetch(into)
    assert not into.exists()
    assert caught.value.headline().count("\n") == 0
