"""Git sources over ssh, to a real OpenSSH server: git itself, git-lfs by its own hand, and logins that fail."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from buildlib.core.catalog import GitSource
from buildlib.errors import SourceUnavailable
from buildlib.ports.source import SourceContext
from buildlib.sources import reader
from tests.devices.server import HOST, SSHD_MARKS, Sshd, make_key, sshd

pytestmark = SSHD_MARKS

Make = Callable[..., SourceContext]
ONNX = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(ONNX).hexdigest()
PATH = "models/model-No PP (June 26, 2026)-165/driving supercombo.onnx"


@pytest.fixture
def server(tmp_path: Path, git_host, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """A host that gives git over ssh, and says as git hosts do where its LFS server is."""
    key = make_key(tmp_path / "user" / "id_ed25519")
    programs = tmp_path / "programs"
    programs.mkdir()
    told = f'{{"href": "{git_host.url}/IQ%20Models.git/info/lfs", "header": {{}}}}'
    (programs / "git-lfs-authenticate").write_text(f"#!/bin/sh\necho {shlex.quote(told)}\n")
    (programs / "git-lfs-authenticate").chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "HOME": str(programs)}
    with sshd(tmp_path / "sshd", authorized=key.with_suffix(".pub").read_text(), environment=environment) as running:
        known = tmp_path / "known_hosts"
        known.write_text(running.known_hosts_line())
        login(monkeypatch, key, known)
        yield running


def login(monkeypatch: pytest.MonkeyPatch, key: Path, known: Path) -> None:
    words = ("ssh", "-F", "none", "-i", str(key), "-o", "IdentitiesOnly=yes", "-o", f'UserKnownHostsFile="{known}"')
    monkeypatch.setenv("GIT_SSH_COMMAND", shlex.join(words))


def source(server: Sshd, bare: Path, ref: str = "main") -> GitSource:
    return GitSource(repository=f"ssh://{server.user}@{HOST}:{server.port}{quote(str(bare))}", ref=ref, path=PATH)


def test_a_branch_is_resolved_pinned_and_fetched(repository, server: Sshd, context: Make, tmp_path: Path) -> None:
    commit = repository.commit(PATH, ONNX)
    spec = source(server, repository.bare)
    pin = reader(spec, context()).resolve()
    assert (pin.commit, pin.sha256, pin.lfs) == (commit, SHA256, None)
    repository.commit(PATH, b"a newer model")
    fetched = reader(spec, context(pin)).fetch(tmp_path / "m.onnx")
    assert fetched.path.read_bytes() == ONNX


def test_a_file_in_lfs_comes_by_git_lfs_which_knows_the_login(
    lfs_repository, server: Sshd, git_host, context: Make, tmp_path: Path
) -> None:
    lfs_repository.remote(f"{git_host.url}/IQ%20Models.git")
    commit = lfs_repository.commit(PATH, ONNX)
    spec = source(server, lfs_repository.bare)
    pin = reader(spec, context()).resolve()
    assert (pin.commit, pin.lfs) == (commit, SHA256)
    fetched = reader(spec, context(pin)).fetch(tmp_path / "m.onnx")
    assert fetched.path.read_bytes() == ONNX
    assert f"/objects/{SHA256}" in git_host.asked


def test_an_unknown_host_is_not_asked_about(
    repository, server: Sshd, context: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(PATH, ONNX)
    (tmp_path / "known_hosts").write_text("")
    with pytest.raises(SourceUnavailable) as caught:
        reader(source(server, repository.bare), context()).resolve()
    assert "host's key is unknown" in caught.value.render()
    assert "connect once with ssh and compare it" in (caught.value.remedy or "")


def test_a_refused_key_says_to_log_in_once(
    repository, server: Sshd, context: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(PATH, ONNX)
    login(monkeypatch, make_key(tmp_path / "other" / "id"), tmp_path / "known_hosts")
    with pytest.raises(SourceUnavailable) as caught:
        reader(source(server, repository.bare), context()).resolve()
    assert "refuses the ssh key" in caught.value.render()
    assert "log in once" in (caught.value.remedy or "")
