"""Publishing into a real git repository with a real remote: one commit, its own paths, its own lines."""

import dataclasses
import hashlib
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from buildlib.errors import Cancelled, RailRefused, TargetError
from buildlib.sandbox.server import FileServer
from tests.integration.publish_kit import Desk, fetch_back, git, hook, model

ROOT = Path(__file__).parents[2]
ARTIFACT = b"an artifact\n" * 1000
OTHER = b"another one\n" * 999
MANIFESTS = ("docs/model_fetcher_b.json", "docs/model_selector_b.json")


def test_one_commit_with_exactly_the_artifact_and_both_manifests(desk: Desk) -> None:
    before = desk.head()
    request = desk.request("nopp", ARTIFACT)
    published = desk.target.publish(request)
    after = desk.head()
    assert published.changed
    assert published.commit == after
    assert git(desk.sandbox.origin, "rev-list", "--count", f"{before}..{after}") == "1"
    assert published.paths == (*MANIFESTS, desk.artifact_path("nopp"))
    assert git(desk.sandbox.origin, "diff", "--name-only", before, after).splitlines() == list(published.paths)
    assert desk.shown("nopp") == ARTIFACT
    for manifest in MANIFESTS:
        entry = desk.entry("nopp", manifest)
        assert (entry.sha256, entry.build_time) == (request.artifacts[0].sha256, "2026-12-01T08:00:00Z")
        changes = git(desk.sandbox.origin, "diff", "-U0", before, after, "--", manifest).splitlines()
        lines = [line for line in changes if line.startswith(("-", "+")) and not line.startswith(("---", "+++"))]
        assert len(lines) == 4  # the hash and the build time, before and after
    assert git(desk.clone, "status", "--porcelain") == ""
    assert git(desk.clone, "rev-parse", "HEAD", "origin/main") == f"{after}\n{after}"
    assert (desk.clone / desk.artifact_path("nopp")).read_bytes() == ARTIFACT


def test_the_commit_says_what_it_published(desk: Desk) -> None:
    request = desk.request("nopp", ARTIFACT)
    desk.target.publish(request)
    told = git(desk.sandbox.origin, "log", "-1", "--format=%an%n%B", "main")
    assert told.startswith("Sandbox\nRecompile No PP (June 26, 2026) with OPENPILOT_HACKS=1\n\n")
    assert f"Artifact: driving_supercombo_nopp.pkl sha256:{request.artifacts[0].sha256}" in told


def test_again_is_nothing_and_another_model_leaves_the_first_alone(desk: Desk) -> None:
    first = desk.target.publish(desk.request("nopp", ARTIFACT))
    again = desk.target.publish(desk.request("nopp", ARTIFACT, build_time="2026-12-02T00:00:00Z"))
    assert (again.changed, again.commit) == (False, first.commit)
    nopp = desk.entry("nopp")
    desk.target.publish(desk.request("drl3", OTHER))
    assert desk.entry("nopp") == nopp
    assert git(desk.sandbox.origin, "rev-list", "--count", "main") == "3"


def test_observation_tells_fresh_from_stale_and_sees_a_hand_edited_entry(desk: Desk) -> None:
    request = desk.request("nopp", ARTIFACT)
    wanted = {request.artifacts[0].file_name: request.artifacts[0].sha256}
    assert not desk.target.observe(model("nopp")).holds(wanted)
    desk.target.publish(request)
    assert desk.target.observe(model("nopp")).holds(wanted)
    manifest = desk.clone / MANIFESTS[0]
    manifest.write_bytes(manifest.read_bytes().replace(request.artifacts[0].sha256.encode(), b"0" * 64))
    assert not desk.target.observe(model("nopp")).holds(wanted)


def test_inspect_shows_files_sizes_and_diff_and_changes_nothing(desk: Desk) -> None:
    before = desk.snapshot()
    git_files = sorted(path for path in (desk.clone / ".git").rglob("*") if path.is_file())
    state = desk.target.inspect(desk.request("nopp", ARTIFACT))
    assert state.refused == ()
    assert state.summary == "IQModels (branch main, clean, level with origin)"
    assert [(f.path, f.new_size, f.storage) for f in state.files] == [
        (desk.artifact_path("nopp"), len(ARTIFACT), "plain")
    ]
    lines = [line for line in state.diff.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert len(lines) == 8  # two manifests, two lines each, before and after
    assert state.diff.count("@@ -") in (2, 4)
    number = int(state.diff.split("@@ -")[1].split(",")[0])
    shown = (desk.clone / MANIFESTS[1]).read_text().splitlines()[number - 1]
    assert shown == state.diff.splitlines()[3][1:]
    assert desk.snapshot() == before
    assert sorted(path for path in (desk.clone / ".git").rglob("*") if path.is_file()) == git_files


def test_files_of_others_are_left_alone_and_never_in_the_commit(desk: Desk) -> None:
    (desk.clone / "notes.txt").write_text("mine\n")
    neighbour = desk.clone / desk.artifact_path("drl3")
    neighbour.write_bytes(b"work in progress")
    selector = desk.clone / MANIFESTS[1]
    edited = selector.read_bytes().replace(b'"display_name": "TobyRL', b'"display_name": "Toby RL')
    selector.write_bytes(edited)
    published = desk.target.publish(desk.request("nopp", ARTIFACT))
    assert published.paths == (*MANIFESTS, desk.artifact_path("nopp"))
    assert neighbour.read_bytes() == b"work in progress"
    assert (desk.clone / "notes.txt").read_text() == "mine\n"
    assert b"Toby RL" in selector.read_bytes()
    assert b"Toby RL" not in git(desk.sandbox.origin, "show", f"main:{MANIFESTS[1]}").encode()
    status = git(desk.clone, "status", "--porcelain").splitlines()
    assert sorted(line.split()[0] for line in status) == ["??", "M", "M"]
    diff = git(desk.clone, "diff", "-U0", "--", MANIFESTS[1]).splitlines()
    assert sum(line.startswith(("+ ", "- ")) for line in diff) == 2


def test_crlf_manifests_stay_crlf(desk: Desk) -> None:
    selector = desk.clone / MANIFESTS[1]
    selector.write_bytes(selector.read_bytes().replace(b"\n", b"\r\n"))
    git(desk.clone, "commit", "-qam", "CRLF")
    git(desk.clone, "push", "-q")
    desk.target.publish(desk.request("nopp", ARTIFACT))
    data = selector.read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n")
    assert git(desk.clone, "status", "--porcelain") == ""


# -- other publishers ----------------------------------------------------------------------------------------------


def push_by_other(desk: Desk, where: Path, old: bytes, new: bytes) -> str:
    other = where if where.exists() else desk.other(where)
    git(other, "pull", "-q")
    for manifest in MANIFESTS:
        data = (other / manifest).read_bytes()
        assert old in data
        (other / manifest).write_bytes(data.replace(old, new))
    git(other, "commit", "-qam", "Ann's work")
    git(other, "push", "-q")
    return git(other, "rev-parse", "HEAD")


def push_while_publishing(desk: Desk, script: str) -> None:
    """Another publisher pushes between our fetch and our push: a local hook plays them, once."""
    hook(
        desk.clone / ".git",
        "pre-commit",
        f"test -e '{desk.clone}/../once' && exit 0\ntouch '{desk.clone}/../once'\n{script}",
    )


def other_clone_edits(desk: Desk, tmp_path: Path, old: str, new: str) -> str:
    other = desk.other(tmp_path / "ann")
    return (
        "unset GIT_INDEX_FILE GIT_DIR GIT_WORK_TREE GIT_EDITOR\n"
        f"cd '{other}' && sed -i 's/{old}/{new}/' docs/*.json && "
        "git -c user.name='Ann Other' -c user.email=ann@example.org commit -qam \"Ann's work\" && git push -q\n"
    )


def test_behind_is_fast_forwarded_first(desk: Desk, tmp_path: Path) -> None:
    theirs = push_by_other(desk, tmp_path / "ann", b"TobyRL (May 30", b"Toby (May 30")
    published = desk.target.publish(desk.request("nopp", ARTIFACT))
    assert git(desk.sandbox.origin, "rev-parse", "main^") == theirs
    assert published.paths == (*MANIFESTS, desk.artifact_path("nopp"))
    assert git(desk.clone, "status", "--porcelain") == ""


def test_a_push_that_lost_the_race_is_replayed_on_the_new_head(desk: Desk, tmp_path: Path) -> None:
    push_while_publishing(desk, other_clone_edits(desk, tmp_path, "TobyRL (May", "Toby (May"))
    published = desk.target.publish(desk.request("nopp", ARTIFACT))
    log = git(desk.sandbox.origin, "log", "--format=%an", "main").splitlines()
    assert log == ["Sandbox", "Ann Other", "Sandbox"]
    assert published.paths == (*MANIFESTS, desk.artifact_path("nopp"))
    assert "Toby (May" in git(desk.sandbox.origin, "show", "main:docs/model_selector_b.json")
    assert git(desk.clone, "status", "--porcelain") == ""


def test_the_same_bundle_edited_elsewhere_in_the_race_keeps_both_changes(desk: Desk, tmp_path: Path) -> None:
    push_while_publishing(desk, other_clone_edits(desk, tmp_path, '"No PP (June 26', '"No PP! (June 26'))
    desk.target.publish(desk.request("nopp", ARTIFACT))
    shown = git(desk.sandbox.origin, "show", "main:docs/model_selector_b.json")
    assert "No PP! (June 26" in shown
    assert desk.entry("nopp").sha256 == desk.request("nopp", ARTIFACT).artifacts[0].sha256


def test_the_same_entry_made_newer_in_the_race_is_a_conflict_with_commit_and_author(desk: Desk, tmp_path: Path) -> None:
    old = desk.entry("nopp").sha256
    push_while_publishing(desk, other_clone_edits(desk, tmp_path, old, "e" * 64))
    with pytest.raises(TargetError) as caught:
        desk.target.publish(desk.request("nopp", ARTIFACT))
    theirs = git(desk.sandbox.origin, "rev-parse", "--short", "main")
    assert f"commit {theirs} by Ann Other" in str(caught.value)
    assert "--supersede" in str(caught.value)
    assert desk.entry("nopp").sha256 == "e" * 64
    desk.target.publish(desk.request("nopp", ARTIFACT, supersede=True))
    assert desk.entry("nopp").sha256 != "e" * 64


def test_an_entry_that_is_not_what_we_published_last_is_a_conflict(desk: Desk, tmp_path: Path) -> None:
    first = desk.request("nopp", ARTIFACT)
    desk.target.publish(first)
    push_by_other(desk, tmp_path / "ann", first.artifacts[0].sha256.encode(), b"e" * 64)
    last = {first.artifacts[0].file_name: first.artifacts[0].sha256}
    with pytest.raises(TargetError, match="by Ann Other"):
        desk.target.publish(desk.request("nopp", OTHER, last_published=last))


def test_a_rewritten_remote_is_refused(desk: Desk, tmp_path: Path) -> None:
    desk.target.publish(desk.request("nopp", ARTIFACT))
    other = desk.other(tmp_path / "ann")
    git(other, "reset", "-q", "--hard", "HEAD^")
    git(other, "commit", "-q", "--allow-empty", "-m", "rewritten")
    git(other, "push", "-qf")
    before = desk.snapshot()
    with pytest.raises(TargetError, match="diverged"):
        desk.target.publish(desk.request("drl3", OTHER))
    assert desk.snapshot() == before


def test_two_checkouts_publishing_into_one_clone_take_turns(desk: Desk) -> None:
    root, port = str(desk.sandbox.root), str(desk.sandbox.port)
    texts = {"nopp": "an artifact\n" * 1000, "drl3": "another one\n" * 999}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.faults.publish_once", root, port, name, text],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, text in texts.items()
    ]
    ended = [one.communicate() for one in started]
    assert [out for out, _ in ended] == ["published\n"] * 2, ended
    assert git(desk.sandbox.origin, "rev-list", "--count", "main") == "3"
    for name, text in texts.items():
        assert desk.entry(name).sha256 == hashlib.sha256(text.encode()).hexdigest()
        assert desk.shown(name) == text.encode()
    assert git(desk.clone, "status", "--porcelain") == ""


def test_a_sparse_checkout_stays_sparse(desk: Desk) -> None:
    git(desk.clone, "sparse-checkout", "set", "docs")
    request = desk.request("nopp", ARTIFACT)
    assert not desk.target.inspect(request).refused
    assert desk.target.publish(request).changed
    assert desk.shown("nopp") == ARTIFACT
    wanted = {request.artifacts[0].file_name: request.artifacts[0].sha256}
    assert desk.target.observe(model("nopp")).holds(wanted)
    assert not (desk.clone / "models").exists()
    assert git(desk.clone, "status", "--porcelain") == ""
    assert desk.target.unpublish(model("nopp"), "Take back").changed
    assert not (desk.clone / "models").exists()


def test_manifests_that_a_sparse_checkout_leaves_out_are_read_from_the_commit(desk: Desk) -> None:
    git(desk.clone, "sparse-checkout", "set", "models")
    request = desk.request("nopp", ARTIFACT)
    desk.target.publish(request)
    wanted = {request.artifacts[0].file_name: request.artifacts[0].sha256}
    assert desk.target.observe(model("nopp")).holds(wanted)
    assert not (desk.clone / "docs").exists()
    assert git(desk.clone, "status", "--porcelain") == ""


# -- a repository that is not as it should be ------------------------------------------------------------------------


def refused(desk: Desk, match: str, remedy: str) -> None:
    before = desk.snapshot()
    with pytest.raises(TargetError, match=match) as caught:
        desk.target.publish(desk.request("nopp", ARTIFACT))
    assert remedy in (caught.value.remedy or "")
    assert "\n" not in caught.value.headline()
    assert desk.snapshot() == before
    state = desk.target.inspect(desk.request("nopp", ARTIFACT))
    assert any(caught.value.what.split(":")[0] in check.what for check in state.refused), state.refused


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
    ("command", "what"), [("rebase", "a rebase"), ("merge", "a merge"), ("cherry-pick", "a cherry-pick")]
)
def test_what_stopped_at_a_conflict_is_refused(desk: Desk, command: str, what: str) -> None:
    git(desk.clone, "switch", "-qc", "topic")
    for branch, text in (("topic", "theirs"), ("main", "ours")):
        git(desk.clone, "switch", "-q", branch)
        (desk.clone / "notes.txt").write_text(text)
        git(desk.clone, "add", "notes.txt")
        git(desk.clone, "commit", "-qm", text)
    git(desk.clone, "push", "-q", "origin", "main")
    git(desk.clone, command, "topic", check=False)
    before = desk.snapshot()
    with pytest.raises(TargetError, match=f"{what} is under way"):
        desk.target.publish(desk.request("nopp", ARTIFACT))
    state = desk.target.inspect(desk.request("nopp", ARTIFACT))
    assert f"git {command} --abort" in [check.remedy and check.remedy.rpartition(": ")[2] for check in state.refused]
    assert desk.snapshot() == before


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
    refused(desk, r"1 commit\(s\) of yours are not pushed", "git push")


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


# -- rails, storage, new bundles, the way back -----------------------------------------------------------------------


def test_a_sample_goes_to_a_sandbox_only(desk: Desk) -> None:
    before = desk.snapshot()
    with pytest.raises(RailRefused, match="made from a sample"):
        desk.with_settings(sandbox=False).target.publish(desk.request("nopp", ARTIFACT))
    assert desk.snapshot() == before


def test_another_tinygrad_at_the_same_url_is_refused(desk: Desk) -> None:
    desk.target.publish(desk.request("nopp", ARTIFACT))
    with pytest.raises(RailRefused, match="another tinygrad"):
        desk.target.publish(desk.request("drl3", OTHER, tinygrad="0a1b77e0" * 5))
    desk.target.publish(desk.request("drl3", OTHER))


def test_an_artifact_whose_bytes_changed_is_refused(desk: Desk) -> None:
    request = desk.request("nopp", ARTIFACT)
    request.artifacts[0].path.write_bytes(ARTIFACT[:-5])
    before = desk.snapshot()
    with pytest.raises(TargetError, match="not those that were verified"):
        desk.target.publish(request)
    assert desk.snapshot() == before


def test_plain_files_over_a_hosts_limit_are_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buildlib.core.release.MAX_PLAIN", {"github.com": 1000})
    git(desk.clone, "remote", "set-url", "--push", "origin", "git@github.com:owner/IQModels.git")
    before = desk.snapshot()
    with pytest.raises(TargetError, match=r"github\.com refuses plain files") as caught:
        desk.target.publish(desk.request("nopp", ARTIFACT))
    assert "lfs or chunks" in str(caught.value)
    assert desk.snapshot() == before


def test_chunks_replace_the_whole_file_and_carry_openpilots_names(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buildlib.core.release.CHUNK_SIZE", 5000)
    monkeypatch.setattr("buildlib.core.release.chunk_names.__defaults__", (5000,))
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


def test_a_new_model_gets_a_bundle_in_both_manifests(desk: Desk) -> None:
    base = model("nopp")
    import msgspec

    fresh = msgspec.structs.replace(
        base,
        name="fresh",
        display_name="Fresh (December 1, 2026)",
        folder="Fresh (December 1, 2026)-200",
        artifacts={"supercombo": "driving_fresh.pkl"},
        bundle=msgspec.structs.replace(base.bundle, short_name="FRESH"),
    )
    request = desk.request("nopp", ARTIFACT)
    artifact = dataclasses.replace(request.artifacts[0], file_name="driving_fresh.pkl")
    asked = dataclasses.replace(request, model=fresh, artifacts=(artifact,), new_bundle={"is_20hz": True})
    with pytest.raises(TargetError, match='no bundle "FRESH"'):
        desk.target.publish(dataclasses.replace(asked, new_bundle=None))
    published = desk.target.publish(asked)
    assert published.files[0].url == (
        f"{desk.sandbox.url}/models/recompiled16/model-Fresh%20%28December%201%2C%202026%29-200/driving_fresh.pkl"
    )
    assert desk.target.observe(fresh).holds({"driving_fresh.pkl": artifact.sha256})
    assert not desk.target.publish(asked).changed
    desk.target.unpublish(fresh, "Take Fresh back")
    assert desk.target.observe(fresh).files == {}
    assert git(desk.sandbox.origin, "diff", "--stat", "main~2", "main") == ""


def test_unpublish_brings_back_artifact_and_entries_byte_for_byte_once(desk: Desk) -> None:
    old = desk.shown("nopp")
    with pytest.raises(TargetError, match="no publication to take back"):
        desk.target.unpublish(model("nopp"), "Take back")
    desk.target.publish(desk.request("nopp", ARTIFACT))
    desk.target.publish(desk.request("drl3", OTHER))
    back = desk.target.unpublish(model("nopp"), "Restore the former No PP")
    assert back.changed
    assert desk.shown("nopp") == old
    assert desk.entry("drl3").sha256 == desk.request("drl3", OTHER).artifacts[0].sha256
    touched = git(desk.sandbox.origin, "diff", "--name-only", "main~3", "main").splitlines()
    assert desk.artifact_path("nopp") not in touched
    assert git(desk.clone, "status", "--porcelain") == ""
    with pytest.raises(TargetError, match="unpublished already"):
        desk.target.unpublish(model("nopp"), "again")


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
