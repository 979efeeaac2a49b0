"""Publishing into a real git repository with a real remote: one commit, its own paths, its own lines."""

import dataclasses
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from buildlib.errors import RailRefused, TargetError
from buildlib.targets import git_tree
from buildlib.targets.git_commands import Git
from tests.integration.publish_kit import Desk, OtherCheckout, git, hook, model

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


def test_a_commit_of_other_paths_than_those_intended_is_not_made(desk: Desk, tmp_path: Path) -> None:
    repository, (same, other) = Git(desk.clone), MANIFESTS
    there = git_tree.files_at(repository, "HEAD", same)[same].oid
    edits = (git_tree.TreeEdit(path=same, oid=there), git_tree.TreeEdit(path=other, oid=None))
    with pytest.raises(TargetError, match=f"exactly the intended paths.*got {other}") as caught:
        git_tree.make_tree(repository, desk.head(), edits, tmp_path / "index")
    assert caught.value.guide == "14"


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


def test_a_publish_waits_while_another_checkout_is_at_work_in_the_clone(desk: Desk) -> None:
    other = OtherCheckout(desk.clone / ".git" / "supercombo-build.lock")
    assert desk.target.publish(desk.request("nopp", ARTIFACT), other).changed
    assert other.told[0].startswith("waits for doit publish:drl3 (pid ")


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
    monkeypatch.setattr("buildlib.core.manifests.release.MAX_PLAIN", {"github.com": 1000})
    git(desk.clone, "remote", "set-url", "--push", "origin", "git@github.com:owner/IQModels.git")
    before = desk.snapshot()
    with pytest.raises(TargetError, match=r"github\.com refuses plain files") as caught:
        desk.target.publish(desk.request("nopp", ARTIFACT))
    assert "lfs or chunks" in str(caught.value)
    assert desk.snapshot() == before


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
    request = desk.request("nopp", ARTIFACT)
    last = {artifact.file_name: artifact.sha256 for artifact in request.artifacts}
    with pytest.raises(TargetError, match="was unpublished since") as caught:
        desk.target.publish(dataclasses.replace(request, last_published=last))
    assert "somebody else" not in str(caught.value)
