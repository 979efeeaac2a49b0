"""Git sources against real repositories: by path, by file://, by http-backend with an LFS server."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from buildlib.core.catalog import GitSource
from buildlib.errors import Cancelled, SourceError, SourceUnavailable
from buildlib.ports.source import SourceContext
from buildlib.sources import reader

from .conftest import git

Make = Callable[..., SourceContext]
ONNX = bytes(range(256)) * 2000
PATH = "models/model-No PP (June 26, 2026)-165/driving supercombo.onnx"


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def source(repository: str, ref: str = "main", path: str = PATH) -> GitSource:
    return GitSource(repository=repository, ref=ref, path=path)


def over_http(host, repository) -> str:
    return f"{host.url}/IQ%20Models.git"


@pytest.fixture(params=["path", "file", "http"])
def plain(request: pytest.FixtureRequest, repository, git_host):
    """(repository, its address) three ways; the file is in git itself."""
    address = {
        "path": str(repository.bare),
        "file": repository.bare.as_uri(),
        "http": over_http(git_host, repository),
    }[request.param]
    return repository, address


def test_a_branch_is_resolved_once_and_then_pinned(plain, context: Make, tmp_path: Path) -> None:
    repository, address = plain
    commit = repository.commit(PATH, ONNX)
    pin = reader(source(address), context()).resolve()
    assert (pin.commit, pin.sha256, pin.size, pin.lfs) == (commit, sha(ONNX), len(ONNX), None)
    repository.commit(PATH, b"a newer model" * 1000)
    pinned = reader(source(address), context(pin))
    assert pinned.observe().sha256 == sha(ONNX)
    assert pinned.observe().detail["commit"] == commit
    fetched = pinned.fetch(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == ONNX
    assert (fetched.sha256, fetched.size) == (sha(ONNX), len(ONNX))


def test_an_old_pin_is_fetched_into_an_empty_mirror(plain, context: Make, tmp_path: Path) -> None:
    repository, address = plain
    repository.commit(PATH, ONNX)
    pin = reader(source(address), context()).resolve()
    repository.commit(PATH, b"a newer model" * 1000)
    shutil.rmtree(context().state)
    assert reader(source(address), context(pin)).fetch(tmp_path / "m.onnx").sha256 == sha(ONNX)


def test_update_follows_the_branch(plain, context: Make) -> None:
    repository, address = plain
    repository.commit(PATH, ONNX)
    first = reader(source(address), context()).resolve()
    commit = repository.commit(PATH, b"newer" * 1000)
    second = reader(source(address), context(first)).resolve()
    assert (second.commit, second.sha256) == (commit, sha(b"newer" * 1000))


def test_only_the_wanted_file_is_brought_over_http(repository, git_host, context: Make, tmp_path: Path) -> None:
    repository.commit("big/other.bin", os.urandom(400_000))
    repository.commit(PATH, ONNX)
    pin = reader(source(over_http(git_host, repository)), context()).resolve()
    reader(source(over_http(git_host, repository)), context(pin)).fetch(tmp_path / "m.onnx")
    mirror = sum(file.stat().st_size for file in context().state.rglob("*") if file.is_file())
    assert mirror < 100_000


def test_a_fetched_pin_needs_no_network_again(repository, git_host, context: Make, tmp_path: Path) -> None:
    repository.commit(PATH, ONNX)
    address = over_http(git_host, repository)
    pin = reader(source(address), context()).resolve()
    reader(source(address), context(pin)).fetch(tmp_path / "m.onnx")
    git_host.asked.clear()
    reader(source(address), context(pin)).observe()
    reader(source(address), context(pin)).fetch(tmp_path / "again.onnx")
    assert git_host.asked == []


def test_observing_never_asks_the_repository(repository, git_host, context: Make) -> None:
    commit = repository.commit(PATH, ONNX)
    observed = reader(source(over_http(git_host, repository), ref=commit), context()).observe()
    assert observed.identity["commit"] == commit
    assert observed.sha256 is None
    assert git_host.asked == []


def test_a_full_commit_needs_no_pin(repository, context: Make, tmp_path: Path) -> None:
    commit = repository.commit(PATH, ONNX)
    repository.commit(PATH, b"newer" * 100)
    fetched = reader(source(str(repository.bare), ref=commit), context()).fetch(tmp_path / "m.onnx")
    assert fetched.sha256 == sha(ONNX)


def test_a_moving_ref_without_a_pin_asks_for_update(repository, context: Make, tmp_path: Path) -> None:
    repository.commit(PATH, ONNX)
    with pytest.raises(SourceError) as caught:
        reader(source(str(repository.bare)), context()).fetch(tmp_path / "m.onnx")
    assert "doit update nopp" in (caught.value.remedy or "")


def test_a_pin_of_another_ref_is_void(repository, context: Make) -> None:
    repository.commit(PATH, ONNX)
    pin = reader(source(str(repository.bare)), context()).resolve()
    with pytest.raises(SourceError, match="another reference"):
        reader(source(str(repository.bare), ref="release"), context(pin)).observe()


def test_an_annotated_tag_gives_its_commit(repository, context: Make) -> None:
    commit = repository.commit(PATH, ONNX)
    repository.tag("v1")
    for ref in ("v1", "refs/tags/v1"):
        assert reader(source(str(repository.bare), ref=ref), context()).resolve().commit == commit


def test_a_name_of_a_branch_and_a_tag_is_asked_back(repository, context: Make) -> None:
    repository.commit(PATH, ONNX)
    repository.tag("main")
    repository.commit(PATH, ONNX + b"x", push=False)
    repository.git("push", "-q", "origin", "HEAD:refs/heads/main")
    with pytest.raises(SourceError, match="a branch and a tag") as caught:
        reader(source(str(repository.bare)), context()).resolve()
    assert "refs/heads/main" in (caught.value.remedy or "")


def test_a_missing_branch_names_those_there_are(repository, context: Make) -> None:
    repository.commit(PATH, ONNX)
    with pytest.raises(SourceError, match=r"no branch or tag 'mian'.*main"):
        reader(source(str(repository.bare), ref="mian"), context()).resolve()


def test_a_missing_path_names_the_nearest(repository, context: Make) -> None:
    repository.commit(PATH, ONNX)
    wrong = PATH.replace("supercombo", "supercmobo")
    with pytest.raises(SourceError) as caught:
        reader(source(str(repository.bare), path=wrong), context()).resolve()
    assert f"did you mean {PATH}?" in (caught.value.remedy or "")


def test_a_folder_or_a_link_is_no_file(repository, context: Make) -> None:
    (repository.work / "link.onnx").symlink_to("/etc/passwd")
    repository.commit(PATH, ONNX)
    with pytest.raises(SourceError, match="symbolic link"):
        reader(source(str(repository.bare), path="link.onnx"), context()).resolve()
    with pytest.raises(SourceError, match="a folder"):
        reader(source(str(repository.bare), path="models"), context()).resolve()


def test_a_path_with_glob_letters_is_taken_literally(repository, context: Make, tmp_path: Path) -> None:
    repository.commit("models/a*[1].onnx", ONNX)
    repository.commit("models/ab1.onnx", b"other" * 100)
    reference = source(str(repository.bare), path="models/a*[1].onnx")
    pin = reader(reference, context()).resolve()
    assert reader(reference, context(pin)).fetch(tmp_path / "m").sha256 == sha(ONNX)


def test_a_rewritten_branch_is_named(repository, git_host, context: Make, tmp_path: Path) -> None:
    repository.commit(PATH, ONNX)
    address = over_http(git_host, repository)
    pin = reader(source(address), context()).resolve()
    shutil.rmtree(context().state)
    gone = type(pin)(**{**{f: getattr(pin, f) for f in pin.__struct_fields__}, "commit": "1" * 40})
    with pytest.raises(SourceError, match=r"does not have that commit"):
        reader(source(address), context(gone)).fetch(tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


def test_a_missing_repository_is_unavailable(git_host, context: Make, tmp_path: Path) -> None:
    for address in (str(tmp_path / "nowhere.git"), f"{git_host.url}/nowhere.git", "http://127.0.0.1:9/x.git"):
        with pytest.raises(SourceUnavailable):
            reader(source(address), context()).resolve()


def test_a_login_is_never_asked_for(repository, git_host, context: Make) -> None:
    repository.commit(PATH, ONNX)
    git_host.git_login = True
    with pytest.raises(SourceUnavailable, match="wants a login"):
        reader(source(over_http(git_host, repository)), context()).resolve()


@pytest.mark.parametrize("filtering", ["true", "false"])
@pytest.mark.parametrize("old", [True, False])
def test_a_server_of_the_first_protocol_gives_tips_and_older_commits(
    repository, git_host, context: Make, tmp_path: Path, filtering: str, old: bool
) -> None:
    git_host.old_protocol = True
    git("config", "uploadpack.allowFilter", filtering, cwd=repository.bare)
    commit = repository.commit(PATH, ONNX)
    if old:
        repository.commit(PATH, b"newer" * 100)
    reference = source(over_http(git_host, repository), ref=commit)
    assert reader(reference, context()).fetch(tmp_path / "m.onnx").sha256 == sha(ONNX)


def test_hooks_and_a_surrounding_git_do_nothing(
    repository, git_host, context: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git_host.old_protocol = True  # there, an older commit comes with all refs, and writing refs calls a hook
    commit = repository.commit(PATH, ONNX)
    repository.commit(PATH, b"newer" * 100)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-checkout", "post-merge", "pre-auto-gc"):
        hook = hooks / name
        hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
        hook.chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(f'[core]\n\thooksPath = "{hooks}"\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    reader(source(over_http(git_host, repository), ref=commit), context()).fetch(tmp_path / "m.onnx")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("value", ["ext::sh -c touch% ran", "fd::17", "--upload-pack=touch ran", "-oProxyCommand=x"])
def test_what_git_would_run_is_refused_as_repository(context: Make, value: str) -> None:
    with pytest.raises(SourceError, match="refused"):
        reader(source(value), context()).resolve()
    assert not (context().state / "ran").exists()


def test_an_insteadof_cannot_bring_a_helper_back(
    context: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "gitconfig"
    rewrite = f'[url "ext::sh -c touch% {tmp_path}/ran% "]\n\tinsteadOf = https://models.invalid/\n'
    config.write_text(rewrite + '[protocol "ext"]\n\tallow = always\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    with pytest.raises(SourceUnavailable, match="not allowed"):
        reader(source("https://models.invalid/x.git"), context()).resolve()
    assert not (tmp_path / "ran").exists()


def test_a_cancelled_fetch_ends_git(repository, context: Make, tmp_path: Path) -> None:
    commit = repository.commit(PATH, ONNX)
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        reader(source(str(repository.bare), ref=commit), context(cancel=cancel)).fetch(tmp_path / "m.onnx")


def test_a_git_that_hangs_is_ended_when_the_run_is(context: Make, tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    cancel = threading.Event()
    timer = threading.Timer(0.5, cancel.set)
    timer.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/x.git"
    with listener, pytest.raises(Cancelled):
        reader(source(address), context(cancel=cancel)).resolve()
    timer.join()


def test_two_models_may_fetch_from_one_repository_at_once(repository, context: Make, tmp_path: Path) -> None:
    commits = [repository.commit(f"m{number}.onnx", ONNX + bytes([number])) for number in range(4)]
    settings = context()

    def fetch(number: int) -> str:
        reference = source(str(repository.bare), ref=commits[number], path=f"m{number}.onnx")
        return reader(reference, settings).fetch(tmp_path / f"{number}.onnx").sha256

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(fetch, range(4))) == [sha(ONNX + bytes([number])) for number in range(4)]


def test_a_killed_fetch_leaves_a_mirror_that_still_works(repository, context: Make, tmp_path: Path) -> None:
    commit = repository.commit(PATH, ONNX)
    reference = source(str(repository.bare), ref=commit)
    reader(reference, context()).fetch(tmp_path / "m.onnx")
    mirror = next((context().state / "git").iterdir())
    (mirror / "shallow.lock").touch()
    (mirror / "objects" / "pack" / "tmp_pack_x").touch()
    newer = repository.commit(PATH, ONNX + b"newer")
    fetched = reader(source(str(repository.bare), ref=newer), context()).fetch(tmp_path / "n.onnx")
    assert fetched.sha256 == sha(ONNX + b"newer")


def test_a_damaged_mirror_is_made_anew(repository, context: Make, tmp_path: Path) -> None:
    commit = repository.commit(PATH, ONNX)
    reference = source(str(repository.bare), ref=commit)
    reader(reference, context()).fetch(tmp_path / "m.onnx")
    mirror = next((context().state / "git").iterdir())
    blob = repository.git("rev-parse", f"HEAD:{PATH}")
    packs = list(mirror.glob("objects/pack/*.pack"))
    loose = mirror / "objects" / blob[:2] / blob[2:]
    assert packs or loose.exists()
    for damaged in [*packs, *([loose] if loose.exists() else [])]:
        damaged.chmod(0o600)
        damaged.write_bytes(damaged.read_bytes()[:-3000] + b"x" * 3000)
    assert reader(reference, context()).fetch(tmp_path / "n.onnx").sha256 == sha(ONNX)
    assert (tmp_path / "n.onnx").read_bytes() == ONNX


# git-lfs


@pytest.fixture(params=["path", "file", "http"])
def large(request: pytest.FixtureRequest, lfs_repository, git_host):
    """(repository, its address) three ways; the file is in git-lfs."""
    if request.param == "http":
        address = over_http(git_host, lfs_repository)
        remote = address
    else:
        address = str(lfs_repository.bare) if request.param == "path" else lfs_repository.bare.as_uri()
        remote = lfs_repository.bare.as_uri()
    lfs_repository.remote(remote)
    return lfs_repository, address


def test_an_lfs_pointer_is_resolved(large, context: Make, tmp_path: Path) -> None:
    repository, address = large
    commit = repository.commit(PATH, ONNX)
    pin = reader(source(address), context()).resolve()
    assert (pin.commit, pin.lfs, pin.sha256, pin.size) == (commit, sha(ONNX), sha(ONNX), len(ONNX))
    fetched = reader(source(address), context(pin)).fetch(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == ONNX
    assert fetched.detail["lfs"] == sha(ONNX)


def test_resolving_a_pointer_downloads_no_content(lfs_repository, git_host, context: Make) -> None:
    address = over_http(git_host, lfs_repository)
    lfs_repository.remote(address)
    lfs_repository.commit(PATH, ONNX)
    git_host.asked.clear()
    reader(source(address), context()).resolve()
    assert not [path for path in git_host.asked if "objects/batch" in path or path.startswith("/objects/")]


def test_a_cut_lfs_download_is_resumed(lfs_repository, git_host, context: Make, tmp_path: Path) -> None:
    address = over_http(git_host, lfs_repository)
    lfs_repository.remote(address)
    commit = lfs_repository.commit(PATH, ONNX)
    git_host.cut_after = [100_000, 50_000]
    fetched = reader(source(address, ref=commit), context()).fetch(tmp_path / "m.onnx")
    assert fetched.sha256 == sha(ONNX)


def test_a_missing_lfs_object_is_named(lfs_repository, git_host, context: Make, tmp_path: Path) -> None:
    address = over_http(git_host, lfs_repository)
    lfs_repository.remote(address)
    commit = lfs_repository.commit(PATH, ONNX)
    git_host.objects.clear()
    with pytest.raises(SourceError, match="does not have the file") as caught:
        reader(source(address, ref=commit), context()).fetch(tmp_path / "m.onnx")
    assert "git lfs push" in (caught.value.remedy or "")
    assert not (tmp_path / "m.onnx").exists()


def test_a_damaged_lfs_object_is_refused(lfs_repository, git_host, context: Make, tmp_path: Path) -> None:
    address = over_http(git_host, lfs_repository)
    lfs_repository.remote(address)
    commit = lfs_repository.commit(PATH, ONNX)
    git_host.objects[sha(ONNX)] = b"x" * len(ONNX)
    with pytest.raises(SourceError, match="another sha256"):
        reader(source(address, ref=commit), context()).fetch(tmp_path / "m.onnx")
    assert not list(tmp_path.glob("m.onnx*"))


def test_an_lfs_server_that_leads_elsewhere_is_refused(lfs_repository, git_host, context: Make, tmp_path: Path) -> None:
    address = over_http(git_host, lfs_repository)
    lfs_repository.remote(address)
    commit = lfs_repository.commit(PATH, ONNX)
    git_host.href_scheme = "file"
    with pytest.raises(SourceError, match="another scheme"):
        reader(source(address, ref=commit), context()).fetch(tmp_path / "m.onnx")


def test_an_lfs_server_that_wants_a_login_is_left_to_git_lfs(
    lfs_repository, git_host, context: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = over_http(git_host, lfs_repository)
    lfs_repository.remote(address)
    commit = lfs_repository.commit(PATH, ONNX)
    git_host.lfs_login = True
    reference = source(address, ref=commit)
    with pytest.raises(SourceUnavailable, match="401"):
        reader(reference, context()).fetch(tmp_path / "m.onnx")
    config = tmp_path / "gitconfig"
    config.write_text('[credential]\n\thelper = "!f() { echo username=u; echo password=p; }; f"\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    assert reader(reference, context()).fetch(tmp_path / "m.onnx").sha256 == sha(ONNX)
    assert (tmp_path / "m.onnx").read_bytes() == ONNX
