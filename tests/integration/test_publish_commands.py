"""Publishing and its commands as a user types them, with real git and a server; compiles that take no time."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from buildlib.toolchain.c_compiler import CCompiler
from tests.integration.publish_kit import hook
from tests.support.projects import Project, moved_copy, new_project, variant

pytestmark = pytest.mark.compile

DOCS = ["docs/model_fetcher_b.json", "docs/model_selector_b.json"]
GUIDE = {
    "nopp": ("NOPP", "No PP (June 26, 2026)", "No PP (June 26, 2026)-165"),
    "drl3": ("DRLV3", "DRL V3 (July 9, 2026)", "DRL V3 (July 9, 2026)-171"),
}


def git(project: Project, *argv: str, at: str = "origin.git") -> str:
    place = project.root / ".build" / "sandbox" / at
    return subprocess.run(["git", "-C", str(place), *argv], capture_output=True, text=True, check=True).stdout.strip()


def commits(project: Project) -> int:
    return int(git(project, "rev-list", "--count", "main"))


def changed(project: Project) -> list[str]:
    """Paths of the last commit on origin."""
    return git(project, "diff", "--name-only", "main~1", "main").splitlines()


def said(project: Project, short: str) -> list[str]:
    """sha256 of a bundle's artifact, as each manifest on origin says it."""
    found = []
    for path in DOCS:
        bundles = json.loads(git(project, "show", f"main:{path}"))["bundles"]
        (one,) = [bundle for bundle in bundles if bundle["short_name"] == short]
        found.append(one["models"][0]["artifact"]["download_uri"]["sha256"])
    return found


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def desk(
    tmp_path_factory: pytest.TempPathFactory, sample_artifact: Path, sample_onnx: Path, c_compiler: CCompiler
) -> Project:
    """A project with a sandbox in which `nopp` is published."""
    folder = tmp_path_factory.mktemp("a desk")
    project = new_project(folder, sample_artifact, (c_compiler.path, c_compiler.identity))
    # What is published is validated before, and a real artifact needs the real tinygrad.
    shutil.rmtree(project.device() / "data/openpilot/tinygrad_repo")
    project.settings = {"validate_seconds": 1}
    project.head["targets"] = {"sandbox": {"repository": ".build/sandbox/IQModels", "sandbox": True, "policy": []}}
    for number, (name, (short, display, place)) in enumerate(GUIDE.items()):
        (project.root / f"{name}.onnx").write_bytes(variant(sample_onnx.read_bytes(), number + 1))
        more = {"display_name": display, "folder": place, "target": "sandbox", "bundle": {"short_name": short}}
        project.add(name, f"{name}.onnx", **more)
    project.doit("sandbox").ok()
    project.doit("publish:nopp", "confirm:nopp").ok()
    return project


def vanishing(sandbox: Path) -> str:
    """A line of a hook's: the remote is elsewhere from now on."""
    return f"mv {shlex.quote(f'{sandbox}/origin.git')} {shlex.quote(f'{sandbox}/gone.git')}\n"


def republished(desk: Project, flag: str) -> None:
    """Makes `nopp` another artifact and publishes it."""
    desk.models["nopp"]["flags"] = {flag: 1}
    desk.declare()
    desk.doit("publish:nopp").ok()


def test_another_model_leaves_the_published_one_alone(desk: Project) -> None:
    before, count = said(desk, "NOPP"), commits(desk)
    desk.doit("publish:drl3").ok()
    assert commits(desk) == count + 1
    assert changed(desk) == [*DOCS, f"models/recompiled16/model-{GUIDE['drl3'][2]}/driving_supercombo_drl3.pkl"]
    assert said(desk, "NOPP") == before
    assert desk.doit("publish:nopp", "publish:drl3").ok().out == "2 models up to date.\n"


def test_a_changed_flag_is_one_more_commit_and_one_entry(desk: Project) -> None:
    count = commits(desk)
    republished(desk, "NOLOCALS")
    assert commits(desk) == count + 1
    assert git(desk, "log", "-1", "--format=%s", "main").endswith("with NOLOCALS=1")
    diff = git(desk, "show", "--format=", "-U0", "main", "--", "docs").splitlines()
    lines = [line[1:].strip() for line in diff if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert len(lines) == 8
    assert all(line.startswith(('"sha256"', '"build_time"')) for line in lines)
    assert said(desk, "NOPP") == [sha256(desk.artifact("nopp"))] * 2


def test_unpublish_brings_the_former_back_downloads_it_and_is_known_as_ours(desk: Project) -> None:
    republished(desk, "NOOPT")
    former = sha256(desk.artifact("nopp"))
    republished(desk, "BEAM")
    count = commits(desk)
    out = desk.doit("unpublish", "nopp").ok().out
    assert f"driving_supercombo_nopp.pkl downloads as {former[:12]}" in out
    assert commits(desk) == count + 1
    assert said(desk, "NOPP") == [former] * 2
    assert desk.status("nopp")["nopp"]["publish"]["state"] == "stale"
    again = desk.doit("publish:nopp")
    assert again.status == 1
    assert "was unpublished since" in again.text
    desk.doit("publish:nopp", "--supersede").ok()
    assert said(desk, "NOPP") == [sha256(desk.artifact("nopp"))] * 2


@pytest.mark.slow
def test_a_publication_that_was_killed_after_its_push_is_ours_also_when_the_next_one_differs(desk: Project) -> None:
    sandbox, count = desk.root / ".build" / "sandbox", commits(desk)
    running = sandbox / "IQModels/.git/supercombo-build/running"
    hook(sandbox / "origin.git", "post-update", f"kill -9 $(cat {shlex.quote(str(running))})\n")
    desk.models["nopp"]["flags"] = {"FUSE": 1}
    desk.declare()
    assert desk.doit("publish:nopp").status == -signal.SIGKILL
    (sandbox / "origin.git/hooks/post-update").unlink()
    assert commits(desk) == count + 1
    republished(desk, "SPLIT")
    assert commits(desk) == count + 2
    assert said(desk, "NOPP") == [sha256(desk.artifact("nopp"))] * 2
    # What was cut off is ours until the next publication stands: to go back to it is another's work again.
    git(desk, "-c", "user.name=Ann", "revert", "--no-edit", "HEAD", at="IQModels")
    git(desk, "push", "-q", at="IQModels")
    desk.models["nopp"]["flags"] = {"OTHER": 1}
    desk.declare()
    assert "somebody else has published" in desk.doit("publish:nopp").text
    git(desk, "revert", "--no-edit", "HEAD", at="IQModels")
    git(desk, "push", "-q", at="IQModels")


def test_what_was_committed_and_not_pushed_is_known_and_can_be_abandoned(desk: Project) -> None:
    desk.models["nopp"]["flags"] = {"IMAGE": 0}
    desk.declare()
    desk.doit("nopp").ok()
    sandbox = desk.root / ".build" / "sandbox"
    hook(sandbox / "IQModels" / ".git", "pre-push", f"{vanishing(sandbox)}exit 1\n")
    run = desk.doit("publish:nopp")
    assert run.status == 1
    assert "not known to be pushed" in run.text
    assert "doit abandon nopp" in run.text
    assert "not known to be pushed" in desk.doit("status").ok().out
    assert "not known to be pushed" in desk.doit("explain", "nopp").ok().out
    assert "nopp: dropped " in desk.doit("abandon", "nopp").ok().out
    assert "nothing of it waits" in desk.doit("abandon", "nopp").ok().out
    (sandbox / "gone.git").rename(sandbox / "origin.git")
    (sandbox / "IQModels/.git/hooks/pre-push").unlink()
    count = commits(desk)
    desk.doit("publish:nopp").ok()
    assert commits(desk) == count + 1
    assert git(desk, "status", "--porcelain", at="IQModels") == ""


def test_a_new_model_gets_its_bundle_by_publish_new_and_not_otherwise(desk: Project) -> None:
    (desk.root / "fresh.onnx").write_bytes((desk.root / "nopp.onnx").read_bytes())
    desk.add("fresh", "fresh.onnx", folder="Fresh-200", target="sandbox", bundle={"short_name": "FRESH"})
    try:
        refused = desk.doit("publish:fresh")
        assert refused.status == 1
        assert "doit publish-new" in refused.text
        count = commits(desk)
        desk.doit("publish-new", "fresh").ok()
        assert commits(desk) == count + 1
        assert said(desk, "FRESH") == [sha256(desk.artifact("fresh"))] * 2
        desk.doit("confirm:fresh").ok()
        desk.doit("unpublish", "fresh").ok()
        assert "FRESH" not in git(desk, "show", f"main:{DOCS[0]}")
    finally:
        del desk.models["fresh"]
        desk.declare()


def test_a_catalog_commit_of_unknown_outcome_is_found_by_the_same_command(desk: Project) -> None:
    sandbox, count = desk.root / ".build" / "sandbox", commits(desk)
    dies = f"test $1 = committed || exit 0\n{vanishing(sandbox)}kill -9 $PPID\n"
    hook(sandbox / "origin.git", "reference-transaction", dies)
    begin = ("catalog", "new", "sandbox", "--tinygrad", "0a1b77e0" * 5, "--drop", "*", "--yes")
    run = desk.doit(*begin)
    assert run.status == 1
    assert "not known to be pushed" in run.err
    assert "abandon" not in run.err
    (sandbox / "gone.git").rename(sandbox / "origin.git")
    (sandbox / "origin.git/hooks/reference-transaction").unlink()
    assert "stood there already" in desk.doit(*begin).ok().out
    assert commits(desk) == count + 1
    assert changed(desk) == ["docs/model_fetcher_c.json", "docs/model_selector_c.json"]
    assert git(desk, "status", "--porcelain", at="IQModels") == ""


@pytest.mark.slow
def test_two_checkouts_of_the_tool_share_one_clone(desk: Project, tmp_path: Path) -> None:
    clone = desk.root / ".build" / "sandbox" / "IQModels"
    second = moved_copy(desk, tmp_path)
    second.head = {"targets": {"sandbox": {**desk.head["targets"]["sandbox"], "repository": str(clone)}}}
    desk.models["nopp"]["flags"], second.models["drl3"]["flags"] = {"JIT": 1}, {"JIT": 1}
    for project in (desk, second):
        project.declare()
    count = commits(desk)
    runs = [desk.start("publish:nopp"), second.start("publish:drl3")]
    ended = [run.communicate(timeout=200) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], ended
    assert commits(desk) == count + 2
    assert said(desk, "NOPP") == [sha256(desk.artifact("nopp"))] * 2
    assert said(desk, "DRLV3") == [sha256(second.artifact("drl3"))] * 2
    assert git(desk, "status", "--porcelain", at="IQModels") == ""
