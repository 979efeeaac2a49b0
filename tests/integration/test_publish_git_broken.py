"""Links that break in a push, branches that are set back, publishers that are quicker: one commit, nothing lost."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from buildlib.core.manifests.catalog_release import NewCatalog, new_catalog
from buildlib.errors import TargetError
from buildlib.ports.target import Published
from buildlib.targets import git_remote
from tests.integration.publish_kit import Desk, git, hook, model

ROOT = Path(__file__).parents[2]
ARTIFACT = b"an artifact\n" * 1000
OTHER = b"another one\n" * 999
FREE = "unset GIT_INDEX_FILE GIT_DIR GIT_WORK_TREE GIT_EDITOR GIT_CONFIG_PARAMETERS\n"

TAKEN = "kill -9 $PPID\n"
"""post-receive: the remote has the commit and has said so, and the connection breaks."""
UNTOLD = """test "$1" = committed || exit 0
%(more)s
kill -9 $PPID
"""
"""reference-transaction: the remote has the commit, and its answer never comes."""
LATE = """read old new ref
( cp -R "$GIT_QUARANTINE_PATH"/. objects/
  sleep %(seconds)s
  unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
  git update-ref "$ref" "$new" ) </dev/null >/dev/null 2>&1 &
kill -9 $PPID
"""
"""pre-receive: the link breaks while the remote still works, and then it takes the commit."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_remote, "PAUSE", 0.7)


def commits(desk: Desk) -> int:
    return int(git(desk.sandbox.origin, "rev-list", "--count", "main"))


def level(desk: Desk) -> None:
    """The clone has what origin has, and nothing is left over."""
    assert git(desk.clone, "rev-parse", "HEAD") == desk.head()
    assert git(desk.clone, "status", "--porcelain") == ""
    assert not list((desk.clone / ".git" / "supercombo-build").glob("*.json"))


def no_hook(desk: Desk, name: str) -> None:
    (desk.sandbox.origin / "hooks" / name).unlink()


def start_catalog(desk: Desk) -> Published:
    def make(manifests: Mapping[str, bytes]) -> NewCatalog:
        models = [model(name) for name in ("tobyrl", "nopp", "drl3")]
        return new_catalog(desk.settings, models, manifests, "0a1b77e0" * 5, drop=("*",))

    return desk.target.start_catalog(make)


def publish(desk: Desk) -> Published:
    return desk.target.publish(desk.request("nopp", ARTIFACT))


DOINGS = pytest.mark.parametrize("do", [publish, start_catalog])


@DOINGS
def test_a_link_that_breaks_after_the_remote_took_it_is_no_failure(desk: Desk, do) -> None:
    hook(desk.sandbox.origin, "post-receive", TAKEN)
    assert do(desk).changed
    no_hook(desk, "post-receive")
    assert not do(desk).changed
    assert commits(desk) == 2
    level(desk)


@DOINGS
def test_an_answer_that_never_comes_is_asked_for(desk: Desk, do) -> None:
    hook(desk.sandbox.origin, "reference-transaction", UNTOLD % {"more": ""})
    assert do(desk).changed
    no_hook(desk, "reference-transaction")
    assert not do(desk).changed
    assert commits(desk) == 2
    level(desk)


def gone_with_it(desk: Desk) -> Path:
    """The remote vanishes in the moment in which it has the commit; where it is then."""
    gone = desk.sandbox.root / "gone.git"
    hook(desk.sandbox.origin, "reference-transaction", UNTOLD % {"more": f"mv '{desk.sandbox.origin}' '{gone}'"})
    return gone


@DOINGS
def test_a_remote_that_is_gone_after_it_took_it_is_found_out_by_the_next_run(desk: Desk, do) -> None:
    gone = gone_with_it(desk)
    with pytest.raises(TargetError, match="not known to be pushed") as caught:
        do(desk)
    assert "the same again when origin can be reached" in str(caught.value.remedy)
    assert ("doit abandon nopp" in str(caught.value.remedy)) is (do is publish)
    gone.rename(desk.sandbox.origin)
    no_hook(desk, "reference-transaction")
    assert not do(desk).changed
    assert commits(desk) == 2
    level(desk)


@DOINGS
def test_a_remote_that_takes_it_late_is_waited_for(desk: Desk, do) -> None:
    hook(desk.sandbox.origin, "pre-receive", LATE % {"seconds": 1})
    assert do(desk).changed
    no_hook(desk, "pre-receive")
    assert not do(desk).changed
    assert commits(desk) == 2
    level(desk)


@DOINGS
def test_a_remote_that_takes_it_later_than_anybody_waits_is_not_called_a_refusal(
    desk: Desk, do, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_remote, "ASKED_AGAIN", 1)
    hook(desk.sandbox.origin, "pre-receive", LATE % {"seconds": 2})
    with pytest.raises(TargetError, match="not known to be pushed"):
        do(desk)
    if do is publish:
        assert desk.target.observe(model("nopp")).unpushed is not None
    no_hook(desk, "pre-receive")
    deadline = time.monotonic() + 30
    while commits(desk) == 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not do(desk).changed
    assert commits(desk) == 2
    level(desk)
    assert desk.target.observe(model("nopp")).unpushed is None


def test_abandoning_what_the_remote_has_after_all_says_that_nothing_waits(desk: Desk) -> None:
    gone = gone_with_it(desk)
    with pytest.raises(TargetError, match="not known to be pushed"):
        publish(desk)
    gone.rename(desk.sandbox.origin)
    no_hook(desk, "reference-transaction")
    assert desk.target.abandon(model("nopp")) is None
    assert desk.shown("nopp") == ARTIFACT
    level(desk)


# -- a branch that is set back -------------------------------------------------------------------------------------


def bad_release(desk: Desk, where: Path) -> str:
    """Ann's commit, which she takes away again later."""
    other = desk.other(where)
    for path in desk.settings.manifests:
        (other / path).write_bytes((other / path).read_bytes().replace(b"TobyRL (May", b"Broken (May"))
    git(other, "commit", "-qam", "Ann's mistake")
    git(other, "push", "-q")
    return git(other, "rev-parse", "HEAD")


def test_what_somebody_took_away_between_fetch_and_push_does_not_come_back(desk: Desk, tmp_path: Path) -> None:
    bad = bad_release(desk, tmp_path / "ann")
    hook(
        desk.clone / ".git",
        "pre-commit",
        f"{FREE}git -C '{desk.sandbox.origin}' update-ref refs/heads/main {bad}^ {bad} || true\n",
    )
    with pytest.raises(TargetError, match="was set back behind what it had"):
        publish(desk)
    assert commits(desk) == 1
    assert "Broken" not in git(desk.sandbox.origin, "show", "main:docs/model_selector_b.json")
    (desk.clone / ".git/hooks/pre-commit").unlink()
    with pytest.raises(TargetError, match="was set back behind what it had") as caught:
        publish(desk)
    assert "git reset --keep origin/main" in str(caught.value.remedy)
    git(desk.clone, "reset", "-q", "--keep", "origin/main")
    assert publish(desk).changed
    level(desk)
    assert commits(desk) == 2


# -- quicker publishers --------------------------------------------------------------------------------------------


def test_a_push_rejected_twice_leaves_nothing_behind(desk: Desk, tmp_path: Path) -> None:
    other = desk.other(tmp_path / "ann")
    hook(
        desk.clone / ".git",
        "pre-commit",
        f"{FREE}cd '{other}' && git pull -q && date +%N >> notes && git add notes && "
        "git -c user.name=Ann -c user.email=a@example.org commit -qm more && git push -q\n",
    )
    status = git(desk.clone, "status", "--porcelain")
    with pytest.raises(TargetError, match="somebody else keeps pushing"):
        publish(desk)
    assert commits(desk) == 3
    assert desk.target.observe(model("nopp")).unpushed is None
    assert git(desk.clone, "status", "--porcelain") == status
    assert git(desk.clone, "for-each-ref", "refs/supercombo-build") == ""
    (desk.clone / ".git/hooks/pre-commit").unlink()
    assert publish(desk).changed
    level(desk)


def second_desk(desk: Desk, where: Path) -> Path:
    """The root of another workstation's sandbox, with a clone of its own of the same origin."""
    where.mkdir()
    (where / "origin.git").symlink_to(desk.sandbox.origin)
    git(where, "clone", "-q", str(desk.sandbox.origin), str(where / "IQModels"))
    git(where / "IQModels", "config", "user.name", "Ann Other")
    git(where / "IQModels", "config", "user.email", "ann@example.org")
    return where


@pytest.mark.parametrize("theirs", ["drl3", "nopp"])
def test_two_clones_publish_at_once(desk: Desk, tmp_path: Path, theirs: str) -> None:
    second = second_desk(desk, tmp_path / "ann")
    once = tmp_path / "once"
    hook(
        desk.clone / ".git",
        "pre-commit",
        f"test -e '{once}' && exit 0\ntouch '{once}'\n{FREE}cd '{ROOT}' && '{sys.executable}' -m "
        f"tests.faults.publish_once '{second}' {desk.sandbox.port} {theirs} 'Ann was quicker'\n",
    )
    if theirs == "drl3":
        assert publish(desk).changed
        assert desk.shown("nopp") == ARTIFACT
        assert commits(desk) == 3
        level(desk)
    else:
        with pytest.raises(TargetError, match='somebody else has published "driving_supercombo_nopp'):
            publish(desk)
        assert commits(desk) == 2
        assert git(desk.clone, "status", "--porcelain") == ""
    assert desk.shown(theirs) == b"Ann was quicker"
    assert desk.entry(theirs).sha256 == hashlib.sha256(b"Ann was quicker").hexdigest()
