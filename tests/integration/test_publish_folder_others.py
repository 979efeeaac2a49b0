"""A share that others write to as well: their work stays, and nothing they plant there leads out of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec
import pytest

from buildlib.errors import TargetError
from buildlib.ports.events import Silent
from buildlib.targets import folder_journal
from buildlib.targets.folder import Folder
from buildlib.targets.folder_files import FolderFiles
from buildlib.targets.publication import FilePlan
from tests.integration.publish_kit import Desk, OtherCheckout, folder, model

ARTIFACT = b"an artifact\n" * 1000
OTHER = b"another one\n" * 999


def manifests(share: Desk) -> list[Path]:
    return [share.clone / path for path in share.settings.manifests]


def edit(share: Desk, old: bytes, new: bytes) -> None:
    """Somebody else's hand in both manifests."""
    for path in manifests(share):
        assert old in path.read_bytes()
        path.write_bytes(path.read_bytes().replace(old, new))


def holds(share: Desk, data: bytes) -> bool:
    wanted = model("nopp")
    return folder(share).observe(wanted).holds({wanted.artifact: hashlib.sha256(data).hexdigest()})


class Told(Silent):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, subject: str, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def while_copying(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What happens, once each, right after the artifact was copied: a callable, or an exception that is raised."""
    doings: list[object] = []
    write = FolderFiles.write

    def copied(self: FolderFiles, file: FilePlan) -> None:
        write(self, file)
        while doings:
            doing = doings.pop(0)
            if isinstance(doing, BaseException):
                raise doing
            doing()  # type: ignore[operator]

    monkeypatch.setattr(FolderFiles, "write", copied)
    return doings


def test_a_publish_waits_while_another_checkout_is_at_work_on_the_share(share: Desk) -> None:
    other = OtherCheckout(share.clone / ".supercombo-build" / "lock")
    assert folder(share).publish(share.request("nopp", ARTIFACT), other).changed
    assert other.told[0].startswith("waits for doit publish:drl3 (pid ")


def test_an_edit_made_while_the_artifact_is_copied_is_kept(share: Desk, while_copying: list[object]) -> None:
    while_copying.append(lambda: edit(share, b"TobyRL (May", b"Toby (May"))
    folder(share).publish(share.request("nopp", ARTIFACT))
    assert holds(share, ARTIFACT)
    assert all(b"Toby (May" in path.read_bytes() for path in manifests(share))


def test_the_same_entry_edited_while_the_artifact_is_copied_is_a_conflict(
    share: Desk, while_copying: list[object]
) -> None:
    artifact = share.clone / share.artifact_path("nopp")
    former, sha256 = artifact.read_bytes(), hashlib.sha256(artifact.read_bytes()).hexdigest().encode()
    while_copying.append(lambda: edit(share, sha256, b"e" * 64))
    with pytest.raises(TargetError, match="somebody else changed the same entry"):
        folder(share).publish(share.request("nopp", ARTIFACT))
    assert artifact.read_bytes() == former
    assert all(b"e" * 64 in path.read_bytes() for path in manifests(share))


def test_a_fault_puts_back_no_edit_of_somebody_else(share: Desk, while_copying: list[object]) -> None:
    former = (share.clone / share.artifact_path("nopp")).read_bytes()
    while_copying += [lambda: edit(share, b"TobyRL (May", b"Toby (May"), OSError(28, "No space left on device")]
    with pytest.raises(OSError, match="No space"):
        folder(share).publish(share.request("nopp", ARTIFACT))
    assert (share.clone / share.artifact_path("nopp")).read_bytes() == former
    assert all(b"Toby (May" in path.read_bytes() for path in manifests(share))
    assert share.clone.joinpath(".supercombo-build").is_dir()
    assert not share.clone.joinpath(".supercombo-build/journal.json").exists()


def test_a_share_that_goes_away_in_the_middle_takes_nothing_into_its_mount_point(
    share: Desk, while_copying: list[object], tmp_path: Path
) -> None:
    before = [path.read_bytes() for path in manifests(share)]
    while_copying += [lambda: share.clone.rename(tmp_path / "unmounted"), share.clone.mkdir]
    with pytest.raises(TargetError, match="went away in the middle"):
        folder(share).publish(share.request("nopp", ARTIFACT))
    assert list(share.clone.iterdir()) == []
    share.clone.rmdir()
    (tmp_path / "unmounted").rename(share.clone)
    folder(share).abandon(model("nopp"))
    assert [path.read_bytes() for path in manifests(share)] == before
    assert folder(share).publish(share.request("nopp", ARTIFACT)).changed
    assert holds(share, ARTIFACT)


def killed_between_the_manifests(share: Desk) -> None:
    """As a kill -9 leaves it: the artifact and the first manifest written, the journal open."""
    pid = os.fork()
    if pid == 0:
        second = share.settings.manifests[1]
        write = Folder._write
        Folder._write = lambda self, path, data: os._exit(9) if path == second else write(self, path, data)  # type: ignore[method-assign,func-returns-value]
        folder(share).publish(share.request("nopp", ARTIFACT))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def test_what_others_edited_since_a_kill_survives_the_mending(share: Desk) -> None:
    before = [path.read_bytes() for path in manifests(share)]
    killed_between_the_manifests(share)
    assert manifests(share)[0].read_bytes() != before[0]
    edit(share, b"TobyRL (May", b"Toby (May")
    folder(share).abandon(model("nopp"))
    assert [path.read_bytes() for path in manifests(share)] == [
        data.replace(b"TobyRL (May", b"Toby (May") for data in before
    ]


def test_an_artifact_that_others_put_there_since_a_kill_is_left_and_told(share: Desk) -> None:
    artifact = share.clone / share.artifact_path("nopp")
    killed_between_the_manifests(share)
    artifact.write_bytes(b"Ann's")
    told = Told()
    folder(share).publish(share.request("drl3", OTHER), told)
    assert artifact.read_bytes() == b"Ann's"
    assert told.warnings == [f"{share.artifact_path('nopp')} holds somebody's newer work and was left as it is"]


def test_a_kill_in_the_last_moment_of_an_unpublish_leaves_it_taken_back(
    share: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = (share.clone / share.artifact_path("nopp")).read_bytes()
    folder(share).publish(share.request("nopp", ARTIFACT))

    def dies(state: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(folder_journal, "_close", dies)
    with pytest.raises(KeyboardInterrupt):
        folder(share).unpublish(model("nopp"), "Take back")
    monkeypatch.undo()
    folder(share).abandon(model("nopp"))
    assert holds(share, former)


def test_the_permissions_of_other_writers_stay(share: Desk) -> None:
    files = [*manifests(share), share.clone / share.artifact_path("nopp")]
    for path in files:
        path.chmod(0o664)
    folder(share).publish(share.request("nopp", ARTIFACT))
    assert [path.stat().st_mode & 0o777 for path in files] == [0o664] * 3
    folder(share).unpublish(model("nopp"), "Take back")
    assert [path.stat().st_mode & 0o777 for path in files] == [0o664] * 3


@pytest.mark.parametrize("place", ["models", "models/recompiled16", "docs", ".supercombo-build"])
def test_a_link_that_leads_out_of_the_share_is_not_followed(share: Desk, tmp_path: Path, place: str) -> None:
    outside = tmp_path / "outside"
    there = share.clone / place
    if there.exists():
        there.rename(outside)
    else:
        outside.mkdir()
    there.symlink_to(outside)
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    with pytest.raises(TargetError, match="leads out of the target"):
        folder(share).publish(share.request("nopp", ARTIFACT))
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before


def planted(share: Desk, **changes: object) -> None:
    """A journal that somebody with a hand on the share wrote."""
    state = share.clone / ".supercombo-build"
    (state / "7").mkdir(parents=True)
    (state / "7" / "0").write_bytes(b"ssh-ed25519 AAAA somebody\n")
    journal = {
        "model": "nopp",
        "number": 7,
        "paths": ["notes.txt"],
        "kept": ["notes.txt"],
        "change": {"kind": "set", "short_name": None},
        **changes,
    }
    (state / "journal.json").write_bytes(msgspec.json.encode(journal))


@pytest.mark.parametrize("path", ["../outside/keys", "OUTSIDE/keys", "models/../../outside/keys"])
@pytest.mark.parametrize("kept", [True, False])
def test_a_planted_journal_writes_and_removes_nothing_outside(
    share: Desk, tmp_path: Path, path: str, kept: bool
) -> None:
    outside = share.clone.parent / "outside"
    outside.mkdir()
    (outside / "keys").write_bytes(b"mine")
    path = path.replace("OUTSIDE", str(outside))
    planted(share, paths=[path], kept=[path] if kept else [])
    with pytest.raises(TargetError, match="leads out of the target"):
        folder(share).publish(share.request("nopp", ARTIFACT))
    assert (outside / "keys").read_bytes() == b"mine"


def test_a_planted_journal_carries_no_file_of_mine_onto_the_share(share: Desk, tmp_path: Path) -> None:
    (tmp_path / "id_ed25519").write_bytes(b"my secret")
    planted(share)
    kept = share.clone / ".supercombo-build" / "7" / "0"
    kept.unlink()
    kept.symlink_to(tmp_path / "id_ed25519")
    with pytest.raises(TargetError, match="leads out of the target"):
        folder(share).publish(share.request("nopp", ARTIFACT))
    assert not (share.clone / "notes.txt").exists()


@pytest.mark.parametrize("change", [{"model": "../../x"}, {"kept": ["another"]}, {"number": "7"}, {"paths": [3]}])
def test_a_journal_that_this_tool_never_wrote_is_refused(share: Desk, change: dict[str, object]) -> None:
    planted(share, **change)
    with pytest.raises(TargetError, match="journal cannot be read"):
        folder(share).publish(share.request("nopp", ARTIFACT))
