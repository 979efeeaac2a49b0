"""Repositories, refs and paths that git would misread or run are refused; the usual ones pass."""

from __future__ import annotations

import pytest

from buildlib.core.sources.git_reference import check_reference, is_abbreviated, is_commit, is_local
from buildlib.errors import SourceError

GOOD = "https://github.com/o/r.git"


@pytest.mark.parametrize(
    "repository",
    [
        GOOD,
        "http://127.0.0.1:8080/IQ%20Models.git",
        "ssh://git@host:22/path",
        "git@github.com:o/r.git",
        "host:path/repo",
        "git://host/x",
        "file:///Volumes/New New Vault/IQModels",
        "/Volumes/New New Vault/IQModels",
        "../IQModels",
        "~/IQModels",
    ],
)
def test_the_usual_repositories_pass(repository: str) -> None:
    check_reference(repository, "main", "models/a b.onnx")


@pytest.mark.parametrize(
    "repository",
    [
        "",
        "--upload-pack=touch x",
        "-x",
        "ext::sh -c id",
        "ext::ssh x",
        "fd::17/foo",
        "EXT::sh",
        "a+b::x",
        "::x",
        "ftp://host/x",
        "javascript://x",
        "ssh://-oProxyCommand=id/x",
        "ssh://-l@host/x",
        "-oProxyCommand=id:x",
        "git@-oProxyCommand=id:x",
        "https://user:secret@host/x",
        "https://token@host/x",
        "file://host/x",
        "https://host:port/x",
        "/a\nb",
    ],
)
def test_dangerous_repositories_are_refused(repository: str) -> None:
    with pytest.raises(SourceError) as caught:
        check_reference(repository, "main", "m.onnx")
    assert "user:secret" not in caught.value.render()


@pytest.mark.parametrize("ref", ["main", "feature/x", "v1.0", "refs/heads/main", "HEAD", "a" * 40, "issue#12"])
def test_the_usual_refs_pass(ref: str) -> None:
    check_reference(GOOD, ref, "m.onnx")


@pytest.mark.parametrize(
    "ref",
    ["", "-x", "--upload-pack=x", "a..b", "HEAD~1", "x^{tree}", "a:b", "a b", "*", "@", "@{u}", "/a", "a/", "x.lock"],
)
def test_options_and_revisions_are_no_refs(ref: str) -> None:
    with pytest.raises(SourceError):
        check_reference(GOOD, ref, "m.onnx")


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/", "a\0b"])
def test_paths_that_leave_the_repository_are_refused(path: str) -> None:
    with pytest.raises(SourceError):
        check_reference(GOOD, "main", path)


def test_commits_and_locality() -> None:
    assert is_commit("a" * 40)
    assert is_commit("a" * 64)
    assert not is_commit("a" * 39)
    assert is_abbreviated("9c8d21f")
    assert not is_abbreviated("main")
    assert [is_local(x) for x in ("/a", "../a", "a/b", "file:///a", "git@host:a", "https://h/a")] == [True] * 4 + [
        False
    ] * 2
