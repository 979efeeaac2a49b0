"""A repository that is not as it should be: one line with its remedy, and nothing is changed."""

import threading
from pathlib import Path

import pytest

from buildlib.errors import Cancelled, TargetError
from tests.integration.publish_kit import Desk, as_owner, git, hook, model, refused

ARTIFACT = b"an artifact\n" * 1000
MANIFESTS = ("docs/model_fetcher_b.json", "docs/model_selector_b.json")


def test_staged_changes_are_refused(desk: Desk) -> None:
    (desk.clone / "notes.txt").write_text("x")
    git(desk.clone, "add", "notes.txt")
    refused(desk, r"changes are staged: notes\.txt", "git restore --staged")


def test_a_detached_head_is_refused(desk: Desk) -> None:
    git(desk.clone, "switch", "-q", "--detach")
    refused(desk, "HEAD is detached", "git switch main")


def test_another_branch_is_refused(desk: Desk) -> None:
    git(desk.clone, "switch", "-qc", "topic")
    refused(desk, 'on branch "topic", expected "main"', "git switch main")


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("rebase", "a rebase"),
        ("rebase --apply", "a rebase"),
        ("merge", "a merge"),
        ("cherry-pick", "a cherry-pick"),
        ("revert", "a revert"),
    ],
)
def test_what_stopped_at_a_conflict_is_refused(desk: Desk, command: str, what: str) -> None:
    git(desk.clone, "switch", "-qc", "topic")
    for branch, text in (("topic", "theirs"), ("main", "ours")):
        git(desk.clone, "switch", "-q", branch)
        (desk.clone / "notes.txt").write_text(text)
        git(desk.clone, "add", "notes.txt")
        git(desk.clone, "commit", "-qm", text)
    git(desk.clone, "push", "-q", "origin", "main")
    git(desk.clone, *command.split(), "topic", check=False)
    before = desk.snapshot()
    with pytest.raises(TargetError, match=f"{what} is under way"):
        desk.target.publish(desk.request("nopp", ARTIFACT))
    state = desk.target.inspect(desk.request("nopp", ARTIFACT))
    assert f"git {command.split()[0]} --abort" in [
        check.remedy and check.remedy.rpartition(": ")[2] for check in state.refused
    ]
    assert desk.snapshot() == before


def test_a_bisection_is_refused(desk: Desk) -> None:
    git(desk.clone, "bisect", "start")
    refused(desk, "a bisection is under way", "git bisect reset")


def test_another_git_at_work_is_refused(desk: Desk) -> None:
    lock = desk.clone / ".git" / "index.lock"
    lock.touch()
    refused(desk, "another git command is at work", f"remove {lock}")


def test_a_branch_without_a_commit_is_refused(desk: Desk, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "fresh")
    refused(desk.with_settings(repository=str(tmp_path / "fresh")), 'branch "main" has no commit yet', "commit")


def test_a_shallow_clone_is_refused(desk: Desk, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{desk.sandbox.origin}", "shallow")
    refused(desk.with_settings(repository=str(tmp_path / "shallow"), author="A <a@b>"), "shallow", "--unshallow")


def test_no_identity_is_refused_and_an_author_in_the_settings_is_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    git(desk.clone, "config", "--remove-section", "user")
    refused(desk, "does not know who commits", "git config user.name")
    desk.with_settings(author="Pub Lisher <pub@example.org>").target.publish(desk.request("nopp", ARTIFACT))
    assert git(desk.sandbox.origin, "log", "-1", "--format=%an %ce", "main") == "Pub Lisher pub@example.org"


def test_unpushed_commits_of_others_are_refused(desk: Desk) -> None:
    git(desk.clone, "commit", "-q", "--allow-empty", "-m", "mine")
    refused(desk, "a commit of yours is not pushed yet", "git push")


def test_an_unreachable_remote_is_refused(desk: Desk) -> None:
    git(desk.clone, "remote", "set-url", "origin", str(desk.sandbox.root / "nowhere.git"))
    before = git(desk.clone, "status", "--porcelain=v2", "--branch")
    with pytest.raises(TargetError, match="cannot be fetched"):
        desk.target.publish(desk.request("nopp", ARTIFACT))
    assert git(desk.clone, "status", "--porcelain=v2", "--branch") == before


@pytest.mark.parametrize("name", ["pre-commit", "commit-msg", "prepare-commit-msg", "pre-push"])
def test_a_hook_that_fails_refuses_and_its_words_are_shown(desk: Desk, name: str) -> None:
    hook(desk.clone / ".git", name, "echo 'error: not on a Friday' >&2\nexit 1\n")
    before = desk.snapshot()
    with pytest.raises(TargetError, match="not on a Friday"):
        desk.target.publish(desk.request("nopp", ARTIFACT))
    assert desk.snapshot() == before
    assert desk.target.observe(model("nopp")).unpushed is None


def test_a_hook_that_changes_the_commit_is_refused(desk: Desk) -> None:
    hook(desk.clone / ".git", "pre-commit", "echo x > added.txt && git add added.txt && rm added.txt\n")
    before = desk.snapshot()
    with pytest.raises(TargetError, match=r"changed what is to be committed.*added\.txt"):
        desk.target.publish(desk.request("nopp", ARTIFACT))
    assert desk.snapshot() == before


def test_no_right_to_push_is_refused_and_the_plan_says_it_before(desk: Desk) -> None:
    # What a git host's ssh does with a key that may only read.
    denies = desk.sandbox.root / "denies"
    denies.write_text("#!/bin/sh\necho 'ERROR: Permission to IQModels denied to ann.' >&2\nexit 1\n")
    as_owner(denies)
    git(desk.clone, "config", "remote.origin.receivepack", f"'{denies}'")
    before = desk.snapshot()
    with pytest.raises(TargetError, match=r"refused the push.*Permission to IQModels denied") as caught:
        desk.target.publish(desk.request("nopp", ARTIFACT))
    assert "may write there" in (caught.value.remedy or "")
    (check,) = desk.target.inspect(desk.request("nopp", ARTIFACT)).refused
    assert "Permission to IQModels denied" in check.what
    assert "may write there" in (check.remedy or "")
    assert desk.snapshot() == before
    assert desk.target.observe(model("nopp")).unpushed is None


def test_a_remote_that_declines_leaves_nothing_behind(desk: Desk) -> None:
    hook(desk.sandbox.origin, "pre-receive", "echo 'no right to push' >&2\nexit 1\n")
    before = desk.snapshot()
    with pytest.raises(TargetError, match=r"refused the push.*no right to push"):
        desk.target.publish(desk.request("nopp", ARTIFACT))
    assert desk.snapshot() == before
    assert desk.target.observe(model("nopp")).unpushed is None


def test_a_push_of_unknown_outcome_is_known_as_unpushed_and_ended_by_the_next_run(desk: Desk) -> None:
    # The remote vanishes between fetch and push.
    gone = desk.sandbox.root / "gone.git"
    hook(desk.clone / ".git", "pre-push", f"mv '{desk.sandbox.origin}' '{gone}'\nexit 1\n")
    with pytest.raises(TargetError, match="not known to be pushed"):
        desk.target.publish(desk.request("nopp", ARTIFACT))
    gone.rename(desk.sandbox.origin)
    (desk.clone / ".git" / "hooks" / "pre-push").unlink()
    unpushed = desk.target.observe(model("nopp")).unpushed
    assert unpushed is not None
    assert git(desk.clone, "status", "--porcelain") == ""
    published = desk.target.publish(desk.request("nopp", ARTIFACT))
    assert published.changed
    assert desk.target.observe(model("nopp")).unpushed is None
    assert git(desk.sandbox.origin, "rev-list", "--count", "main") == "2"


def test_abandon_drops_the_unpushed_commit(desk: Desk) -> None:
    gone = desk.sandbox.root / "gone.git"
    hook(desk.clone / ".git", "pre-push", f"mv '{desk.sandbox.origin}' '{gone}'\nexit 1\n")
    with pytest.raises(TargetError):
        desk.target.publish(desk.request("nopp", ARTIFACT))
    unpushed = desk.target.observe(model("nopp")).unpushed
    assert desk.target.abandon(model("nopp")) == unpushed
    assert desk.target.observe(model("nopp")).unpushed is None
    assert desk.target.abandon(model("nopp")) is None


def test_an_artifact_path_changed_by_hand_is_refused(desk: Desk) -> None:
    (desk.clone / desk.artifact_path("nopp")).write_bytes(b"by hand")
    refused(desk, "was changed or put there by hand", "git restore")


def test_an_uncommitted_edit_of_the_same_entry_is_refused(desk: Desk) -> None:
    selector = desk.clone / MANIFESTS[1]
    selector.write_bytes(selector.read_bytes().replace(desk.entry("nopp").sha256.encode(), b"d" * 64))
    refused(desk, "uncommitted edit of the same entry", "git restore")


def test_no_repository_or_an_unmounted_share_is_told(desk: Desk, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="not there"):
        desk.with_settings(repository=str(tmp_path / "gone")).target.observe(model("nopp"))
    (tmp_path / "plain").mkdir()
    with pytest.raises(TargetError, match="not a git work tree"):
        desk.with_settings(repository=str(tmp_path / "plain")).target.observe(model("nopp"))
    with pytest.raises(TargetError, match="not the top of a git work tree"):
        desk.with_settings(repository=str(desk.clone / "docs")).target.observe(model("nopp"))


def test_a_git_dir_in_the_environment_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(desk.sandbox.origin))
    with pytest.raises(TargetError, match="GIT_DIR is set"):
        desk.target.publish(desk.request("nopp", ARTIFACT))


def test_a_set_cancel_event_stops_before_anything_happens(desk: Desk) -> None:
    cancel = threading.Event()
    cancel.set()
    before = desk.snapshot()
    with pytest.raises(Cancelled):
        desk.target.publish(desk.request("nopp", ARTIFACT), cancel=cancel)
    assert desk.snapshot() == before
