"""Large files in git: git-lfs with a server, or chunks; artifacts of the real size under `slow`."""

import random
import shutil
from pathlib import Path

import pytest

from buildlib.errors import TargetError
from buildlib.ports.target import Artifact
from buildlib.sandbox.server import FileServer
from buildlib.targets.outgoing import check_bytes
from tests.integration.publish_kit import Desk, fetch_back, git, model, refused

ARTIFACT = b"an artifact\n" * 1000
MANIFESTS = ("docs/model_fetcher_b.json", "docs/model_selector_b.json")


def test_chunks_replace_the_whole_file_and_carry_openpilots_names(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buildlib.core.manifests.release.CHUNK_SIZE", 5000)
    monkeypatch.setattr("buildlib.core.manifests.release.chunk_names.__defaults__", (5000,))
    chunked = desk.with_settings(large_files="chunks")
    request = desk.request("nopp", ARTIFACT)
    published = chunked.target.publish(request)
    path = desk.artifact_path("nopp")
    assert published.paths == (
        *MANIFESTS,
        path,
        *(f"{path}.chunk0{n}of03" for n in (1, 2, 3)),
        f"{path}.chunkmanifest",
    )
    pieces = b"".join((desk.clone / f"{path}.chunk0{n}of03").read_bytes() for n in (1, 2, 3))
    assert pieces == ARTIFACT
    assert (desk.clone / f"{path}.chunkmanifest").read_text() == "3"
    assert not (desk.clone / path).exists()
    entry = desk.entry("nopp")
    assert entry.sha256 == request.artifacts[0].sha256
    assert [chunk.file_name for chunk in entry.chunks] == [
        f"driving_supercombo_nopp.pkl.chunk0{n}of03" for n in (1, 2, 3)
    ]
    wanted = {request.artifacts[0].file_name: request.artifacts[0].sha256}
    assert chunked.target.observe(model("nopp")).holds(wanted)
    assert not chunked.target.publish(request).changed
    shorter = chunked.target.publish(desk.request("nopp", ARTIFACT[:9000]))
    assert f"{path}.chunk01of02" in shorter.paths
    assert not (desk.clone / f"{path}.chunk03of03").exists()
    assert git(desk.clone, "status", "--porcelain") == ""


def test_git_lfs_stages_a_pointer_and_the_server_gets_the_file_first(desk: Desk) -> None:
    with FileServer(desk.sandbox.origin, desk.sandbox.root / "served") as server:
        git(desk.clone, "lfs", "install", "--local", "--skip-repo")
        git(desk.clone, "config", "lfs.url", server.lfs_url)
        (desk.clone / ".gitattributes").write_text("*.pkl filter=lfs diff=lfs merge=lfs -text\n")
        git(desk.clone, "add", ".gitattributes")
        git(desk.clone, "commit", "-qm", "Track pickles with LFS")
        git(desk.clone, "push", "-q")
        request = desk.request("nopp", ARTIFACT)
        published = desk.target.publish(request)
        assert published.paths == (*MANIFESTS, desk.artifact_path("nopp"))
        sha256 = request.artifacts[0].sha256
        assert f"oid sha256:{sha256}\nsize {len(ARTIFACT)}" in desk.shown("nopp").decode()
        assert (desk.sandbox.root / "served" / "lfs" / sha256).read_bytes() == ARTIFACT
        assert (desk.clone / desk.artifact_path("nopp")).read_bytes() == ARTIFACT
        assert desk.target.observe(model("nopp")).holds({request.artifacts[0].file_name: sha256})
        assert not desk.target.publish(request).changed
        assert git(desk.clone, "status", "--porcelain", "--", desk.artifact_path("nopp")) == ""


def tracked_by_lfs(desk: Desk) -> None:
    (desk.clone / ".gitattributes").write_text("*.pkl filter=lfs diff=lfs merge=lfs -text\n")
    git(desk.clone, "add", ".gitattributes")
    git(desk.clone, "commit", "-qm", "Track pickles with LFS")
    git(desk.clone, "push", "-q", "--no-verify")


def test_a_pointer_to_other_bytes_than_the_verified_ones_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked_by_lfs(desk)
    git(desk.clone, "lfs", "install", "--local", "--skip-repo")
    before = desk.snapshot()

    def changed(artifact: Artifact) -> None:
        check_bytes(artifact)
        artifact.path.write_bytes(ARTIFACT[::-1])

    monkeypatch.setattr("buildlib.targets.git_files.check_bytes", changed)
    with pytest.raises(TargetError, match="did not make a pointer of the artifact"):
        desk.target.publish(desk.request("nopp", ARTIFACT))
    assert desk.snapshot() == before


def test_lfs_that_is_not_installed_is_refused(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracked_by_lfs(desk)
    git(desk.clone, "lfs", "install", "--local", "--skip-repo")
    before = desk.snapshot()
    here = tmp_path / "bin"
    here.mkdir()
    for program in ("git", "sh"):
        (here / program).symlink_to(str(shutil.which(program)))
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(here))
        with pytest.raises(TargetError, match="git-lfs, which is not installed") as caught:
            desk.target.publish(desk.request("nopp", ARTIFACT))
        state = desk.target.inspect(desk.request("nopp", ARTIFACT))
    assert "git lfs install" in (caught.value.remedy or "")
    assert any("git-lfs" in check.what for check in state.refused)
    assert desk.snapshot() == before


def test_lfs_whose_filter_is_not_configured_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    tracked_by_lfs(desk)
    for scope in ("GLOBAL", "SYSTEM"):
        monkeypatch.setenv(f"GIT_CONFIG_{scope}", "/dev/null")
    refused(desk, "git-lfs, which is not installed", "git lfs install")


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["lfs", "chunks"])
def test_an_artifact_of_the_real_size_arrives_whole(desk: Desk, tmp_path: Path, storage: str) -> None:
    data = random.Random(119).randbytes(119_000_000)
    with FileServer(desk.sandbox.origin, desk.sandbox.root / "served", port=desk.sandbox.port) as server:
        if storage == "lfs":
            tracked_by_lfs(desk)
            git(desk.clone, "lfs", "install", "--local", "--skip-repo")
            git(desk.clone, "config", "lfs.url", server.lfs_url)
        desk = desk.with_settings(large_files=storage)
        request = desk.request("nopp", data)
        published = desk.target.publish(request)
        assert len(published.entries[0].chunks) == (3 if storage == "chunks" else 0)
        wanted = {request.artifacts[0].file_name: request.artifacts[0].sha256}
        assert desk.target.observe(model("nopp")).holds(wanted)
        assert not desk.target.publish(request).changed
        fetch_back(tmp_path / "back")(published.entries[0], published.former)
        # Artifacts that were committed before .gitattributes are modified to git; ours must not be.
        assert git(desk.clone, "status", "--porcelain", "--", *published.paths) == ""
        largest = max(
            int(size)
            for size in git(
                desk.sandbox.origin, "cat-file", "--batch-check=%(objectsize)", "--batch-all-objects"
            ).split()
        )
        assert largest < 50 * 2**20
        assert desk.target.unpublish(model("nopp"), "Take back").changed


def test_an_lfs_server_that_refuses_leaves_origin_without_the_manifest(desk: Desk) -> None:
    git(desk.clone, "config", "lfs.url", "http://127.0.0.1:9/lfs")
    git(desk.clone, "config", "lfs.transfer.maxretries", "1")
    tracked_by_lfs(desk)
    before = desk.snapshot()
    with pytest.raises(TargetError, match="LFS server did not take"):
        desk.target.publish(desk.request("nopp", ARTIFACT))
    assert desk.snapshot() == before
