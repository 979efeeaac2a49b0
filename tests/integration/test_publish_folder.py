"""Publishing onto a mounted share: nothing half done, and the share's own ways."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from buildlib.errors import StoreError, TargetError
from buildlib.store import files
from buildlib.targets.folder import Folder
from tests.integration.publish_kit import Desk, folder, model

ROOT = Path(__file__).parents[2]
ARTIFACT = b"an artifact\n" * 1000
OTHER = b"another one\n" * 999


def contents(share: Desk) -> dict[str, bytes]:
    found = {}
    for path in sorted(share.clone.rglob("*")):
        parts = path.relative_to(share.clone).parts
        if path.is_file() and parts[0] not in (".git", ".supercombo-build"):
            found[str(path.relative_to(share.clone))] = path.read_bytes()
    return found


def test_an_unmounted_share_is_told_from_a_folder(share: Desk, tmp_path: Path) -> None:
    (tmp_path / "mount point").mkdir()
    with pytest.raises(TargetError, match="not mounted"):
        Folder(share.settings, tmp_path / "mount point").publish(share.request("nopp", ARTIFACT))
    assert list((tmp_path / "mount point").iterdir()) == []


def test_apple_double_files_are_neither_taken_for_chunks_nor_left_behind(
    share: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buildlib.core.manifests.release.CHUNK_SIZE", 5000)
    monkeypatch.setattr("buildlib.core.manifests.release.chunk_names.__defaults__", (5000,))
    share = share.with_settings(large_files="chunks")
    folder(share).publish(share.request("nopp", ARTIFACT))
    where = (share.clone / share.artifact_path("nopp")).parent
    for path in list(where.iterdir()):
        path.with_name("._" + path.name).write_bytes(b"\0\5\26\7")
    wanted = share.request("nopp", ARTIFACT).artifacts[0]
    assert folder(share).observe(model("nopp")).holds({wanted.file_name: wanted.sha256})
    assert not folder(share).publish(share.request("nopp", ARTIFACT)).changed
    folder(share).publish(share.request("nopp", ARTIFACT[:9000]))
    assert sorted(path.name.removeprefix("driving_supercombo_nopp.pkl") for path in where.glob("driving*")) == [
        ".chunk01of02",
        ".chunk02of02",
        ".chunkmanifest",
    ]
    assert not list(where.glob("._*of03"))


def test_a_fault_while_manifests_are_written_puts_all_back(share: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(share)
    fetcher = share.clone / share.settings.manifests[1]
    write = files.write

    def full(path: Path, data: bytes, *, mode: int = 0o644) -> None:
        if path == fetcher and data != before[share.settings.manifests[1]]:
            raise StoreError("cannot be written: No space left on device", where=str(path))
        write(path, data, mode=mode)

    monkeypatch.setattr(files, "write", full)
    with pytest.raises(StoreError, match="No space left"):
        folder(share).publish(share.request("nopp", ARTIFACT))
    assert contents(share) == before
    monkeypatch.undo()
    assert folder(share).publish(share.request("nopp", ARTIFACT)).changed


@pytest.mark.parametrize("number", [3, 6, 9, 11])
def test_a_kill_at_a_rename_is_mended_by_the_next_run(share: Desk, number: int) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "count = 0\n"
        "replace = Path.replace\n"
        "def counted(self, target):\n"
        "    global count\n"
        "    count += 1\n"
        f"    if count == {number}:\n"
        "        os.kill(os.getpid(), 9)\n"
        "    return replace(self, target)\n"
        "Path.replace = counted\n"
        "from buildlib.sandbox import Sandbox\n"
        "from tests.integration.publish_kit import Desk\n"
        "from buildlib.targets.folder import Folder\n"
        "sandbox = Sandbox(root=Path(sys.argv[1]), port=int(sys.argv[2]))\n"
        "desk = Desk(sandbox=sandbox, settings=sandbox.target(), blobs=Path(sys.argv[1]).parent / 'blobs')\n"
        "target = Folder(desk.settings, desk.clone)\n"
        f"target.publish(desk.request('nopp', {OTHER!r}))\n"
        f"target.publish(desk.request('nopp', {ARTIFACT!r}))\n"
    )
    argv = [sys.executable, "-c", script, str(share.sandbox.root), str(share.sandbox.port)]
    done = subprocess.run(argv, cwd=ROOT, env=os.environ, check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    wanted = share.request("nopp", ARTIFACT)
    folder(share).publish(wanted)
    artifact = wanted.artifacts[0]
    assert folder(share).observe(model("nopp")).holds({artifact.file_name: artifact.sha256})
    assert not list(share.clone.rglob("*.tmp"))
    state = share.clone / ".supercombo-build"
    assert not (state / "journal.json").exists()
    assert len([path for path in state.iterdir() if path.name.isdigit()]) == 1


def test_a_share_that_is_read_only_is_told(share: Desk) -> None:
    share.clone.joinpath(".supercombo-build").write_text("in the way")
    with pytest.raises(TargetError, match="cannot be written"):
        folder(share).publish(share.request("nopp", ARTIFACT))


def test_git_lfs_in_a_folder_is_refused(share: Desk) -> None:
    with pytest.raises(TargetError, match="a folder has no git-lfs"):
        folder(share.with_settings(large_files="lfs")).publish(share.request("nopp", ARTIFACT))


def test_names_that_differ_in_case_only_are_refused(share: Desk) -> None:
    path = share.clone / share.artifact_path("nopp")
    path.rename(path.with_name(path.name.upper()))
    with pytest.raises(TargetError, match="upper and lower case"):
        folder(share).publish(share.request("nopp", ARTIFACT))


def test_a_full_share_is_told_before_anything_is_copied(share: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage)
    before = contents(share)
    with pytest.raises(TargetError, match="MiB are free"):
        folder(share).publish(share.request("nopp", ARTIFACT))
    assert contents(share) == before
