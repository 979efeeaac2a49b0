"""kill -9 in an unpublish and in the start of a catalog: the next run ends right, on git and in a folder."""

from __future__ import annotations

import contextlib
import hashlib
import random
import shutil
from pathlib import Path

import pytest

from buildlib.errors import TargetError
from buildlib.sandbox import Sandbox, make_sandbox
from tests.faults import publish_once
from tests.integration.publish_kit import Desk, copy_sandbox, git, model

ROOT = Path(__file__).parents[2]
ARTIFACT = b"an artifact\n" * 500
SEED = 7
CALLS = {
    "rename": "rename,renameat,renameat2",
    "unlink": "unlink",
    "git call": "vfork,fork,clone,clone3",
}
CASES = [
    ("git", "unpublish", "git call"),
    ("git", "catalog", "git call"),
    ("git", "unpublish", "rename"),
    ("git", "catalog", "rename"),
    ("folder", "unpublish", "rename"),
    ("folder", "unpublish", "unlink"),
    ("folder", "catalog", "rename"),
]

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """A sandbox in which something stands in the model's place that can be taken back."""
    return make_sandbox(tmp_path_factory.mktemp("made") / "sand box")


def published(made: Sandbox, where: Path, kind: str) -> tuple[Desk, bytes]:
    """A desk with our publication, and what stood before it."""
    where.mkdir(exist_ok=True)
    desk = copy_sandbox(made, where / "sand box")
    former = (desk.clone / desk.artifact_path("nopp")).read_bytes()
    publish_once.target(desk, kind).publish(desk.request("nopp", ARTIFACT))
    return desk, former


def traced(desk: Desk, kind: str, what: str, call: str, *options: str, log: str = "/dev/null") -> bool:
    """Does it under strace; True when it ended by itself."""
    return publish_once.traced(desk, CALLS[call], options, "nopp", "", what, kind, log=log)


def ends_right(made: Sandbox, where: Path, kind: str, what: str, call: str, number: int) -> bool:
    """Kills it at the Nth call and does it again; True when it was killed."""
    desk, former = published(made, where, kind)
    ended = traced(desk, kind, what, call, "-e", f"inject={CALLS[call]}:signal=SIGKILL:when={number}")
    if kind == "git":
        assert {desk.entry("nopp", path).sha256 for path in desk.settings.manifests} == {
            hashlib.sha256(desk.shown("nopp")).hexdigest()
        }
    if what == "catalog":
        publish_once.start_catalog(desk, kind)
    else:
        with contextlib.suppress(TargetError):  # "unpublished already": it had ended but for its last words
            publish_once.target(desk, kind).unpublish(model("nopp"), "Take back")
    stands = {model("nopp").artifact: hashlib.sha256(former if what == "unpublish" else ARTIFACT).hexdigest()}
    assert publish_once.target(desk, kind).observe(model("nopp")).holds(stands)
    assert (desk.clone / "docs/model_fetcher_c.json").exists() is (what == "catalog")
    if kind == "git":
        assert git(desk.sandbox.origin, "rev-list", "--count", "main") == "3"
        assert git(desk.clone, "status", "--porcelain") == ""
        assert git(desk.clone, "rev-parse", "HEAD") == desk.head()
    assert [str(path) for path in desk.sandbox.root.rglob("*") if path.name.endswith(".tmp")] == []
    assert not (desk.clone / ".supercombo-build" / "journal.json").exists()
    return not ended


@pytest.mark.parametrize(("kind", "what", "call"), CASES)
def test_a_kill_is_made_good_by_the_next_run(made: Sandbox, tmp_path: Path, kind: str, what: str, call: str) -> None:
    desk, _ = published(made, tmp_path / "counted", kind)
    assert traced(desk, kind, what, call, log=str(tmp_path / "log"))
    count = sum("(" in line for line in (tmp_path / "log").read_text().splitlines())
    number = random.Random(f"{SEED}{kind}{what}{call}").randint(1, count - 1)
    assert ends_right(made, tmp_path / "killed", kind, what, call, number), f"not killed at {number} of {count}"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("kind", "what", "call"), CASES)
def test_a_kill_anywhere_is_made_good(made: Sandbox, tmp_path: Path, kind: str, what: str, call: str) -> None:
    for number in range(1, 200):
        where = tmp_path / str(number)
        if not ends_right(made, where, kind, what, call, number):
            assert number > 4
            return
        shutil.rmtree(where)
