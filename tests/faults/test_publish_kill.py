"""kill -9 at every rename, fsync and git call of a publish: the next run ends right."""

import dataclasses
import hashlib
import random
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from buildlib.sandbox import Sandbox, make_sandbox
from buildlib.targets.git_journal import Journal, Settling
from tests.faults import publish_once
from tests.integration.publish_kit import Desk, copy_sandbox, git, hook, model

ROOT = Path(__file__).parents[2]
TEXT = "an artifact\n" * 500
SEED = 6
CALLS = {
    "rename": "rename,renameat,renameat2",
    "fsync": "fsync",
    "git call": "vfork,fork,clone,clone3",
    "rename in git": "rename,renameat,renameat2",
}
OURS = ("rename", "fsync", "git call")

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return make_sandbox(tmp_path_factory.mktemp("made") / "sand box")


def behind(made: Sandbox, where: Path) -> Desk:
    """A desk whose clone is behind the remote, so that the fast-forward can be killed too."""
    desk = copy_sandbox(made, where / "sand box")
    other = desk.other(where / "ann")
    for manifest in desk.settings.manifests:
        path = other / manifest
        path.write_bytes(path.read_bytes().replace(b"TobyRL (May", b"Toby (May"))
    git(other, "commit", "-qam", "Ann's work")
    git(other, "push", "-q")
    (desk.clone / "notes.txt").write_text("mine\n")
    return desk


def traced(desk: Desk, what: str, *options: str, log: str = "/dev/null") -> bool:
    """Runs a publish under strace; True when it ended by itself."""
    follow = ("-f",) if what == "rename in git" else ()
    return publish_once.traced(desk, CALLS[what], (*follow, *options), "nopp", TEXT, log=log)


def killed(desk: Desk, what: str, number: int) -> bool:
    """Runs a publish and kills it at the Nth call; False when it ended before that."""
    return not traced(desk, what, "-e", f"inject={CALLS[what]}:signal=SIGKILL:when={number}")


def calls(desk: Desk, what: str, log: Path) -> int:
    """How many such calls a publish makes."""
    assert traced(desk, what, log=str(log))
    return sum("(" in line for line in log.read_text().splitlines())


def consistent(desk: Desk) -> None:
    """Never a manifest ahead of its file on origin."""
    shown = hashlib.sha256(desk.shown("nopp")).hexdigest()
    for manifest in desk.settings.manifests:
        assert desk.entry("nopp", manifest).sha256 == shown


def ends_right(desk: Desk, what: str, number: int) -> bool:
    died = killed(desk, what, number)
    consistent(desk)
    request = desk.request("nopp", TEXT.encode())
    desk.target.publish(request)
    consistent(desk)
    wanted = {request.artifacts[0].file_name: request.artifacts[0].sha256}
    assert desk.target.observe(model("nopp")).holds(wanted)
    assert git(desk.sandbox.origin, "log", "--format=%an", "main").splitlines() == ["Sandbox", "Ann Other", "Sandbox"]
    assert git(desk.clone, "status", "--porcelain").splitlines() == ["?? notes.txt"]
    assert git(desk.clone, "rev-parse", "HEAD", "origin/main").splitlines() == [desk.head()] * 2
    assert git(desk.clone, "fsck", "--no-dangling") == ""
    assert not desk.target.publish(request).changed
    return died


@pytest.mark.parametrize("what", OURS)
def test_the_next_run_ends_right_after_a_kill(made: Sandbox, tmp_path: Path, what: str) -> None:
    for place in ("counted", "killed"):
        (tmp_path / place).mkdir()
    count = calls(behind(made, tmp_path / "counted"), what, tmp_path / "log")
    number = random.Random(SEED).randint(1, count - 1)
    assert ends_right(behind(made, tmp_path / "killed"), what, number), f"not killed at {number} of {count}"


def publish_that_dies_once_the_remote_has_it(desk: Desk) -> None:
    """The remote's own hook kills the publisher: between its push and what it does after."""
    pid = desk.clone / ".git" / "supercombo-build" / "running"
    hook(desk.sandbox.origin, "post-update", f"kill -9 $(cat '{pid}')\n")
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.faults.publish_once",
            str(desk.sandbox.root), str(desk.sandbox.port), "nopp", TEXT,
        ],
        cwd=ROOT,
        check=False,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == -9
    (desk.sandbox.origin / "hooks" / "post-update").unlink()


def edited_by_hand(desk: Desk) -> list[bytes]:
    """Somebody's uncommitted work in both manifests, on another model's bundle; what the manifests then say."""
    for manifest in desk.settings.manifests:
        path = desk.clone / manifest
        path.write_bytes(path.read_bytes().replace(b"TobyRL (May", b"Toby (May"))
    return [(desk.clone / manifest).read_bytes() for manifest in desk.settings.manifests]


@pytest.mark.parametrize("next_model", ["nopp", "drl3"])
def test_a_kill_after_the_push_keeps_uncommitted_edits_of_the_same_manifest(
    made: Sandbox, tmp_path: Path, next_model: str
) -> None:
    desk = copy_sandbox(made, tmp_path / "sand box")
    edited = edited_by_hand(desk)
    publish_that_dies_once_the_remote_has_it(desk)
    assert [(desk.clone / manifest).read_bytes() for manifest in desk.settings.manifests] == edited
    text = TEXT if next_model == "nopp" else "something else"
    assert desk.target.publish(desk.request(next_model, text.encode())).changed is (next_model != "nopp")
    consistent(desk)
    request = desk.request("nopp", TEXT.encode())
    assert desk.target.observe(model("nopp")).holds({request.artifacts[0].file_name: request.artifacts[0].sha256})
    for manifest in desk.settings.manifests:
        changes = git(desk.clone, "diff", "-U0", "--", manifest).splitlines()[4:]
        lines = [line for line in changes if not line.startswith("@@")]
        assert len(lines) == 2, lines
        assert "+" in lines[1]
        assert "Toby (May" in lines[1]
    assert not list((desk.clone / ".git" / "supercombo-build").glob("pushing-*"))


def test_a_kill_after_the_push_is_mended_below_what_others_pushed_since(made: Sandbox, tmp_path: Path) -> None:
    desk = copy_sandbox(made, tmp_path / "sand box")
    (desk.clone / "notes.txt").write_text("mine\n")
    publish_that_dies_once_the_remote_has_it(desk)
    other = desk.other(tmp_path / "ann")
    edited_by_hand(dataclasses.replace(desk, settings=msgspec.structs.replace(desk.settings, repository=str(other))))
    git(other, "commit", "-qam", "Ann's work")
    git(other, "push", "-q")
    assert not desk.target.publish(desk.request("nopp", TEXT.encode())).changed
    assert git(desk.clone, "rev-parse", "HEAD") == desk.head()
    assert git(desk.clone, "status", "--porcelain").splitlines() == ["?? notes.txt"]


def test_a_kill_between_branch_and_work_tree_is_mended_also_when_somebody_has_pulled_since(
    made: Sandbox, tmp_path: Path
) -> None:
    desk = copy_sandbox(made, tmp_path / "sand box")
    other, base = desk.other(tmp_path / "ann"), desk.head()
    artifact = desk.artifact_path("drl3")
    for path in (artifact, "notes.txt"):
        (other / path).write_text("Ann's")
        git(other, "add", path)
        git(other, "commit", "-qm", f"Ann's {path}")
    git(other, "push", "-q")
    git(desk.clone, "fetch", "-q")
    first = git(desk.clone, "rev-parse", "origin/main~1")
    Journal(desk.clone / ".git/supercombo-build").write(Settling(branch="main", base=base, commit=first))
    git(desk.clone, "update-ref", "refs/heads/main", first)
    git(desk.clone, "pull", "-q", "--ff-only")
    assert git(desk.clone, "status", "--porcelain") == f'M  "{artifact}"'
    desk.target.publish(desk.request("nopp", TEXT.encode()))
    assert git(desk.clone, "status", "--porcelain") == ""
    assert (desk.clone / artifact).read_text() == "Ann's"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("what", [*OURS, "rename in git"])
def test_the_next_run_ends_right_after_a_kill_anywhere(made: Sandbox, tmp_path: Path, what: str) -> None:
    deaths = 0
    for number in range(1, 200):
        case = tmp_path / str(number)
        case.mkdir()
        if not ends_right(behind(made, case), what, number):
            break
        deaths += 1
        shutil.rmtree(case)
    assert deaths >= {"rename": 5, "fsync": 5, "git call": 25, "rename in git": 8}[what]
