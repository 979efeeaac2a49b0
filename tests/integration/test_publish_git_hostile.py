"""A models repository set up oddly, or that somebody plays tricks with: a publish stays within its one commit."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from buildlib.errors import TargetError
from buildlib.targets.git_known import Known
from buildlib.targets.git_preconditions import open_repository
from tests.integration.publish_kit import Desk, git, hook, model

ARTIFACT = b"an artifact\n" * 1000
OTHER = b"another one\n" * 999
DIRECTORY = "models/recompiled16"


def three_paths(desk: Desk) -> None:
    """One commit by us with exactly its paths, and the clone level and clean."""
    changed = git(desk.sandbox.origin, "diff", "--name-only", "main~1", "main").splitlines()
    assert changed == [*sorted(desk.settings.manifests), desk.artifact_path("nopp")]
    assert git(desk.clone, "rev-parse", "HEAD") == desk.head()
    assert git(desk.clone, "status", "--porcelain") == ""


SETTINGS = {
    "log.showSignature": "true",
    "color.ui": "always",
    "log.decorate": "full",
    "log.follow": "true",
    "diff.external": "/bin/false",
    "diff.noprefix": "true",
    "diff.renames": "copies",
    "core.quotePath": "true",
    "core.fsmonitor": "touch ran; false",
    "trailer.separators": "=",
    "i18n.commitEncoding": "ISO-8859-1",
    "i18n.logOutputEncoding": "UTF-16",
    "format.pretty": "oneline",
    "push.default": "nothing",
    "push.followTags": "true",
    "push.recurseSubmodules": "on-demand",
    "submodule.recurse": "true",
    "fetch.prune": "true",
    "fetch.pruneTags": "true",
    "status.relativePaths": "false",
    "core.abbrev": "40",
    "merge.ff": "false",
    "pull.rebase": "true",
    "gc.auto": "1",
    "gc.pruneExpire": "now",
}


def test_a_users_own_git_settings_change_nothing(desk: Desk) -> None:
    for name, value in SETTINGS.items():
        git(desk.clone, "config", name, value)
    desk.target.publish(desk.request("nopp", ARTIFACT, message="Recompile Nö PP"))
    assert not (desk.clone / "ran").exists()
    git(desk.clone, "config", "--unset", "core.fsmonitor")
    three_paths(desk)
    assert git(desk.sandbox.origin, "log", "-1", "--format=%s%e", "main") == "Recompile Nö PP"
    last = {model("nopp").artifact: hashlib.sha256(ARTIFACT).hexdigest()}
    desk.target.publish(desk.request("nopp", OTHER, last_published=last))
    assert desk.target.unpublish(model("nopp"), "Take back").changed
    assert desk.shown("nopp") == ARTIFACT
    with pytest.raises(TargetError, match="unpublished since"):
        desk.target.publish(desk.request("nopp", OTHER, last_published={model("nopp").artifact: "f" * 64}))


def test_a_replaced_commit_does_not_reach_the_published_tree(desk: Desk) -> None:
    head = git(desk.clone, "rev-parse", "HEAD")
    git(desk.clone, "rm", "-rq", "--cached", f"{DIRECTORY}/model-{model('drl3').folder}")
    tree = git(desk.clone, "write-tree")
    git(desk.clone, "reset", "-q")
    git(desk.clone, "replace", head, git(desk.clone, "commit-tree", tree, "-m", "without drl3"))
    desk.target.publish(desk.request("nopp", ARTIFACT))
    git(desk.clone, "replace", "-d", head)
    three_paths(desk)


@pytest.mark.parametrize("variable", ["GIT_COMMON_DIR", "GIT_ICASE_PATHSPECS", "GIT_SHALLOW_FILE"])
def test_a_variable_that_shows_git_something_else_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(TargetError, match=f"{variable} is set"):
        desk.target.publish(desk.request("nopp", ARTIFACT))


def test_the_clones_own_ssh_command_is_the_one_that_is_used(desk: Desk, tmp_path: Path) -> None:
    said = tmp_path / "said"
    ssh = tmp_path / "my ssh"
    ssh.write_text(f'#!/bin/sh\nfor last; do :; done\necho "$*" >> \'{said}\'\neval "$last"\n')
    ssh.chmod(0o755)
    git(desk.clone, "remote", "set-url", "origin", f"ssh://models.example{desk.sandbox.origin}")
    git(desk.clone, "config", "core.sshCommand", f"'{ssh}' -i key")
    git(desk.clone, "config", "ssh.variant", "ssh")
    desk.target.publish(desk.request("nopp", ARTIFACT))
    three_paths(desk)
    assert all(line.startswith("-i key") for line in said.read_text().splitlines())


# -- links, folders and submodules ---------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["models", DIRECTORY, f"{DIRECTORY}/model-{model('nopp').folder}", "docs"])
def test_a_folder_that_is_a_link_in_the_work_tree_is_not_written_through(
    desk: Desk, tmp_path: Path, place: str
) -> None:
    outside = tmp_path / "outside"
    shutil.move(desk.clone / place, outside)
    (desk.clone / place).symlink_to(outside)
    before = desk.snapshot()
    with pytest.raises(TargetError, match="is a symbolic link in the work tree"):
        desk.target.publish(desk.request("nopp", ARTIFACT))
    assert desk.snapshot() == before
    assert desk.target.inspect(desk.request("nopp", ARTIFACT)).refused


def ann(desk: Desk, tmp_path: Path) -> Path:
    return desk.other(tmp_path / "ann")


def push_all(where: Path) -> None:
    git(where, "add", "-A")
    git(where, "commit", "-qm", "Ann's work")
    git(where, "push", "-q")


def test_a_link_that_becomes_a_folder_upstream_leads_nobody_out(desk: Desk, tmp_path: Path) -> None:
    """As in git's own history: first a link to a place of the victim's, then a file in the folder of that name."""
    outside = tmp_path / "home" / ".ssh"
    outside.mkdir(parents=True)
    other = ann(desk, tmp_path)
    (other / "notes").symlink_to(outside)
    push_all(other)
    git(desk.clone, "pull", "-q")
    assert (desk.clone / "notes").is_symlink()
    (other / "notes").unlink()
    (other / "notes").mkdir()
    (other / "notes" / "authorized_keys").write_text("ssh-ed25519 AAAA ann\n")
    push_all(other)
    desk.target.publish(desk.request("nopp", ARTIFACT))
    assert list(outside.iterdir()) == []
    assert (desk.clone / "notes" / "authorized_keys").read_text() == "ssh-ed25519 AAAA ann\n"
    three_paths(desk)


def test_whatever_others_pushed_is_fast_forwarded_as_git_does(desk: Desk, tmp_path: Path) -> None:
    other = ann(desk, tmp_path)
    (other / "a file").write_text("x")
    (other / "a folder" / "in it").mkdir(parents=True)
    (other / "a folder" / "in it" / "f").write_text("x")
    (other / "a link").symlink_to("a file")
    push_all(other)
    desk.target.publish(desk.request("drl3", OTHER))
    assert (desk.clone / "a link").readlink() == Path("a file")
    git(other, "pull", "-q")
    (other / "a file").unlink()
    (other / "a file" / "now a folder").mkdir(parents=True)
    (other / "a file" / "now a folder" / "f").write_text("y")
    shutil.rmtree(other / "a folder")
    (other / "a folder").write_text("now a file")
    (other / "a link").unlink()
    (other / "a link").symlink_to("nowhere\\at all")
    (other / "odd\nname").write_text("z")
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q")
    git(library, "commit", "-q", "--allow-empty", "-m", "x")
    git(other, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "library")
    push_all(other)
    desk.target.publish(desk.request("nopp", ARTIFACT))
    three_paths(desk)
    assert (desk.clone / "library").is_dir()
    git(other, "pull", "-q")
    git(other, "rm", "-qf", "library")
    push_all(other)
    assert not desk.target.publish(desk.request("nopp", ARTIFACT)).changed
    assert git(desk.clone, "status", "--porcelain") == ""
    assert not (desk.clone / "library").exists()


@pytest.mark.parametrize("mine", ["a file", "a folder", "a link"])
def test_what_lies_in_the_way_of_a_fast_forward_stays_and_is_told(desk: Desk, tmp_path: Path, mine: str) -> None:
    other = ann(desk, tmp_path)
    (other / "new").mkdir()
    (other / "new" / "f").write_text("theirs")
    (other / "single").write_text("theirs")
    push_all(other)
    if mine == "a file":
        (desk.clone / "new").write_text("mine")
    elif mine == "a folder":
        (desk.clone / "single").mkdir()
        (desk.clone / "single" / "f").write_text("mine")
    else:
        (tmp_path / "outside").mkdir()
        (desk.clone / "new").symlink_to(tmp_path / "outside")
    before = desk.snapshot()
    with pytest.raises(TargetError, match="uncommitted work would be lost"):
        desk.target.publish(desk.request("nopp", ARTIFACT))
    assert desk.snapshot() == before
    assert mine != "a link" or list((tmp_path / "outside").iterdir()) == []


def test_an_artifact_that_somebody_made_a_link_is_theirs(desk: Desk, tmp_path: Path) -> None:
    place = desk.clone / desk.artifact_path("nopp")
    place.rename(tmp_path / "elsewhere.pkl")
    place.symlink_to(tmp_path / "elsewhere.pkl")
    before = (tmp_path / "elsewhere.pkl").read_bytes()
    with pytest.raises(TargetError, match="changed or put there by hand"):
        desk.target.publish(desk.request("nopp", ARTIFACT))
    assert place.is_symlink()
    assert (tmp_path / "elsewhere.pkl").read_bytes() == before


# -- what is remembered --------------------------------------------------------------------------------------------


def test_a_damaged_memory_of_hashes_is_not_believed(desk: Desk) -> None:
    desk.target.publish(desk.request("nopp", ARTIFACT))
    memory = next((desk.clone / ".git" / "supercombo-build").glob("blobs*"))
    real, wrong = hashlib.sha256(ARTIFACT).hexdigest().encode(), hashlib.sha256(OTHER).hexdigest().encode()
    memory.write_bytes(memory.read_bytes().replace(real, wrong))
    assert Known(open_repository(desk.clone)).read() == {}
    last = {model("nopp").artifact: real.decode()}
    assert desk.target.publish(desk.request("nopp", OTHER, last_published=last)).changed
    assert desk.shown("nopp") == OTHER


def test_no_hook_of_the_remote_sees_a_push_option_or_a_tag(desk: Desk, tmp_path: Path) -> None:
    hook(
        desk.sandbox.origin, "pre-receive", f"cat > '{tmp_path}/refs'\nenv | grep -c ^GIT_PUSH_OPTION_COUNT=. || true\n"
    )
    git(desk.clone, "tag", "mine")
    desk.target.publish(desk.request("nopp", ARTIFACT))
    assert [line.split()[2] for line in (tmp_path / "refs").read_text().splitlines()] == ["refs/heads/main"]


def test_a_clone_with_an_odd_name_is_one_like_any_other(desk: Desk) -> None:
    odd = desk.clone.parent / "--upload-pack=touch ran; $(touch ran) 'ü"
    desk.clone.rename(odd)
    moved = desk.with_settings(repository=str(odd))
    moved.target.publish(moved.request("nopp", ARTIFACT))
    three_paths(moved)
    assert not list(odd.parent.rglob("ran"))
    assert not Path("ran").exists()
    assert os.path.isdir(odd)
