"""Artifacts on a share, manifests in git: no manifest names what was not downloaded back."""

import dataclasses
import hashlib
from pathlib import Path

import msgspec
import pytest

from buildlib.core.manifests.manifest import Entry
from buildlib.errors import TargetError
from buildlib.targets.folder import Folder
from buildlib.targets.git_repository import GitRepository
from buildlib.targets.split import FetchBack, Split
from tests.integration.publish_kit import Desk, fetch_back, git, hook, model

ARTIFACT = b"an artifact\n" * 1000
OTHER = b"another one\n" * 999


@dataclasses.dataclass
class Pair:
    desk: Desk
    share: Path

    def target(self, back: FetchBack | None = None) -> Split:
        settings = msgspec.structs.replace(
            self.desk.settings, kind="folder", manifests=(), url=f"{self.share.as_uri()}/{{path}}"
        )
        manifests = GitRepository(self.desk.settings, self.desk.clone)
        return Split("split", Folder(settings, self.share), manifests, back or fetch_back(self.share.parent / "back"))

    @property
    def file(self) -> Path:
        return self.share / self.desk.artifact_path("nopp")

    def holds(self, data: bytes) -> bool:
        wanted = model("nopp")
        return self.target().observe(wanted).holds({wanted.artifact: hashlib.sha256(data).hexdigest()})


@pytest.fixture
def pair(desk: Desk, tmp_path: Path) -> Pair:
    share = tmp_path / "the share"
    share.mkdir()
    (desk.clone / "models").rename(share / "models")
    git(desk.clone, "commit", "-qam", "The artifacts are on the share now")
    git(desk.clone, "push", "-q")
    return Pair(desk, share)


def test_the_manifests_commit_holds_no_artifact_and_comes_after_the_download(pair: Pair) -> None:
    seen: list[str] = []

    def back(entry: Entry, former: tuple[Entry, ...]) -> None:
        assert pair.file.read_bytes() == ARTIFACT
        assert pair.desk.entry("nopp").sha256 == former[0].sha256
        fetch_back(pair.share.parent / "back")(entry, former)
        seen.append(entry.sha256)

    published = pair.target(back).publish(pair.desk.request("nopp", ARTIFACT))
    assert seen == [hashlib.sha256(ARTIFACT).hexdigest()]
    assert git(pair.desk.sandbox.origin, "diff", "--name-only", "main~1", "main").splitlines() == [
        "docs/model_fetcher_b.json",
        "docs/model_selector_b.json",
    ]
    assert published.entries[0].url == (
        pair.share.as_uri() + "/" + pair.file.relative_to(pair.share).as_posix()
    ).replace(" ", "%20").replace("(", "%28").replace(")", "%29").replace(",", "%2C")
    assert git(pair.desk.clone, "status", "--porcelain") == ""


def test_other_bytes_at_the_url_leave_the_manifests_and_bring_the_former_file_back(pair: Pair) -> None:
    before, old = pair.desk.snapshot(), pair.file.read_bytes()

    def overwritten(entry: Entry, former: tuple[Entry, ...]) -> None:
        pair.file.write_bytes(b"somebody else's")
        fetch_back(pair.share.parent / "back")(entry, former)

    with pytest.raises(TargetError, match="not what was published"):
        pair.target(overwritten).publish(pair.desk.request("nopp", ARTIFACT))
    assert pair.desk.snapshot() == before
    assert pair.file.read_bytes() == old


def test_a_refused_manifest_is_found_before_any_file_moves(pair: Pair) -> None:
    selector = pair.desk.clone / "docs/model_selector_b.json"
    selector.write_bytes(selector.read_bytes().replace(pair.desk.entry("nopp").sha256.encode(), b"d" * 64))
    before, old = pair.desk.snapshot(), pair.file.read_bytes()
    with pytest.raises(TargetError, match="uncommitted edit of the same entry"):
        pair.target().publish(pair.desk.request("nopp", ARTIFACT))
    assert pair.desk.snapshot() == before
    assert pair.file.read_bytes() == old
    assert not (pair.share / ".supercombo-build").exists()


def test_a_push_refused_late_brings_the_former_file_back(pair: Pair) -> None:
    hook(pair.desk.sandbox.origin, "pre-receive", "echo 'no right to push' >&2\nexit 1\n")
    before, old = pair.desk.snapshot(), pair.file.read_bytes()
    with pytest.raises(TargetError, match="no right to push"):
        pair.target().publish(pair.desk.request("nopp", ARTIFACT))
    assert pair.desk.snapshot() == before
    assert pair.file.read_bytes() == old


def test_a_run_that_ended_between_file_and_manifest_is_ended_by_the_next(pair: Pair) -> None:
    def cut(entry: Entry, former: tuple[Entry, ...]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pair.target(cut).publish(pair.desk.request("nopp", ARTIFACT))
    assert pair.file.read_bytes() == ARTIFACT
    assert not pair.holds(ARTIFACT)
    assert pair.target().publish(pair.desk.request("nopp", ARTIFACT)).changed
    assert pair.holds(ARTIFACT)


def test_an_unpublish_that_got_half_way_is_ended_by_the_next(pair: Pair) -> None:
    old = pair.file.read_bytes()
    pair.target().publish(pair.desk.request("nopp", ARTIFACT))
    hook(pair.desk.sandbox.origin, "pre-receive", "exit 1\n")
    with pytest.raises(TargetError, match="refused the push"):
        pair.target().unpublish(model("nopp"), "Take back")
    assert pair.file.read_bytes() == old
    (pair.desk.sandbox.origin / "hooks" / "pre-receive").unlink()
    assert pair.target().unpublish(model("nopp"), "Take back").changed
    assert pair.holds(old)
    with pytest.raises(TargetError, match="no publication to take back"):
        pair.target().unpublish(model("nopp"), "Take back")


def test_no_url_at_all_is_refused_before_anything_moves(pair: Pair) -> None:
    settings = msgspec.structs.replace(pair.desk.settings, kind="folder", manifests=(), url=None)
    fresh = msgspec.structs.replace(pair.desk.settings, url=None)
    manifests = [pair.desk.clone / path for path in pair.desk.settings.manifests]
    for path in manifests:
        path.write_bytes(b'[{"file_name": "driving_supercombo_nopp.pkl", "sha256": "' + b"a" * 64 + b'"}]\n')
    git(pair.desk.clone, "commit", "-qam", "plain lists")
    git(pair.desk.clone, "push", "-q")
    target = Split("split", Folder(settings, pair.share), GitRepository(fresh, pair.desk.clone), fetch_back(pair.share))
    old = pair.file.read_bytes()
    with pytest.raises(TargetError, match="nothing says from where"):
        target.publish(pair.desk.request("nopp", ARTIFACT))
    assert pair.file.read_bytes() == old


def broken_off(pair: Pair) -> Path:
    """A publish whose link breaks after the manifests' remote took the commit; where that remote is now."""
    origin, gone = pair.desk.sandbox.origin, pair.desk.sandbox.root / "gone.git"
    hook(origin, "reference-transaction", f"test $1 = committed || exit 0\nmv '{origin}' '{gone}'\nkill -9 $PPID\n")
    with pytest.raises(TargetError, match="not known to be pushed"):
        pair.target().publish(pair.desk.request("nopp", ARTIFACT))
    return gone


def test_a_push_of_unknown_outcome_keeps_the_file_that_the_remote_may_name(pair: Pair) -> None:
    gone = broken_off(pair)
    assert pair.file.read_bytes() == ARTIFACT
    with pytest.raises(TargetError, match="cannot be fetched"):
        pair.target().abandon(model("nopp"))
    assert pair.file.read_bytes() == ARTIFACT
    gone.rename(pair.desk.sandbox.origin)
    (pair.desk.sandbox.origin / "hooks" / "reference-transaction").unlink()
    assert pair.target().abandon(model("nopp")) is None
    assert pair.file.read_bytes() == ARTIFACT
    assert not pair.target().publish(pair.desk.request("nopp", ARTIFACT)).changed
    assert pair.holds(ARTIFACT)


def test_abandoning_what_the_remote_never_got_puts_the_former_file_back(pair: Pair) -> None:
    old, origin = pair.file.read_bytes(), pair.desk.sandbox.origin
    head = pair.desk.head()
    gone = broken_off(pair)
    gone.rename(origin)
    (origin / "hooks" / "reference-transaction").unlink()
    git(origin, "update-ref", "refs/heads/main", head)
    assert pair.target().abandon(model("nopp")) is not None
    assert pair.file.read_bytes() == old
    assert pair.holds(old)
