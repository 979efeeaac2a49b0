"""What a person reads while publishing: each line true when it is read, and each remedy one that helps."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.publish_kit import hook
from tests.integration.test_publish_commands import desk, git, republished, vanishing  # noqa: F401 - the fixture
from tests.support.projects import Project

pytestmark = pytest.mark.compile
SANDBOX = Path(".build/sandbox")


def made_anew(project: Project, flag: str) -> None:
    """`nopp` gets other bytes that nobody has published."""
    project.models["nopp"]["flags"] = {flag: 1}
    project.declare()
    project.doit("nopp").ok()


def test_a_refused_push_is_told_in_the_hooks_own_words(desk: Project) -> None:  # noqa: F811
    made_anew(desk, "NOLOCALS")
    hook(desk.root / SANDBOX / "IQModels/.git", "pre-push", "echo no pushes on friday >&2\nexit 1\n")
    run = desk.doit("publish:nopp")
    (desk.root / SANDBOX / "IQModels/.git/hooks/pre-push").unlink()
    assert run.status == 1
    assert "origin refused the push: got no pushes on friday\n" in run.text
    desk.doit("publish:nopp").ok()


def test_a_device_that_does_not_answer_keeps_a_publication_and_a_source_that_is_away_does_not(
    desk: Project,  # noqa: F811
) -> None:
    made_anew(desk, "FLOAT16")
    desk.doit("validate:nopp").ok()
    before = git(desk, "rev-parse", "main")
    desk.switch_off()
    for words in (("publish:nopp",), ("run", "-s", "publish:nopp")):
        run = desk.doit(*words)
        assert run.status == 1
        assert "nopp is not published: local did not answer this run's probe" in run.text
        assert "switch local on, then publish again" in run.text
    assert git(desk, "rev-parse", "main") == before
    desk.switch_on()
    (desk.root / "nopp.onnx").rename(desk.root / "unmounted")
    run = desk.doit("publish:nopp").ok()
    (desk.root / "unmounted").rename(desk.root / "nopp.onnx")
    assert "warning    nopp.onnx: there is no such file" in run.out
    assert git(desk, "rev-parse", "main~1") == before


def test_nothing_speaks_of_a_commit_any_more_that_was_abandoned(desk: Project) -> None:  # noqa: F811
    made_anew(desk, "NOOPT")
    sandbox = desk.root / SANDBOX
    hook(sandbox / "IQModels/.git", "pre-push", f"{vanishing(sandbox)}exit 1\n")
    desk.doit("publish:nopp")
    assert "not known to be pushed" in desk.doit("status", "nopp").ok().out
    assert "nopp: dropped " in desk.doit("abandon", "nopp").ok().out
    (sandbox / "gone.git").rename(sandbox / "origin.git")
    (sandbox / "IQModels/.git/hooks/pre-push").unlink()
    for command in ("status", "explain", "report"):
        assert "not known to be pushed" not in desk.doit(command, "nopp").ok().out
    told = desk.doit("status", "nopp").ok().out
    assert "publish is stale: driving_supercombo_nopp.pkl: " in told


def test_a_plan_behind_the_remote_misses_nothing_since_publish_fetches_first(
    desk: Project,  # noqa: F811
    tmp_path: Path,
) -> None:
    made_anew(desk, "BEAM")
    ann = tmp_path / "ann"
    subprocess.run(["git", "clone", "-q", str(desk.root / SANDBOX / "origin.git"), str(ann)], check=True)
    (ann / "README").write_text("hello\n")
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    for argv in (["add", "README"], [*who, "commit", "-q", "-m", "Add a readme"], ["push", "-q"]):
        subprocess.run(["git", "-C", str(ann), *argv], check=True)
    plan = desk.doit("plan", "publish:nopp").ok().out
    assert "behind origin; publish fetches first" in plan
    assert "Not yet" not in plan
    told = json.loads(desk.doit("plan", "--json", "publish:nopp").ok().out)["nopp"]["publication"]
    assert told["problems"] == []
    assert "behind origin" in told["target"]
    assert told["message"] in plan
    timeless = [line for line in told["diff"].splitlines() if "build_time" not in line]
    assert [line for line in timeless if line not in plan] == []
    assert "+" in {line[:1] for line in told["diff"].splitlines()}
    (file,) = told["files"]
    assert file["path"].endswith("/driving_supercombo_nopp.pkl")
    assert file["new_size"] == (desk.root / "artifacts/nopp/driving_supercombo_nopp.pkl").stat().st_size
    desk.doit("publish:nopp").ok()
    assert (
        desk.doit("plan", "publish:nopp").ok().out
        == "Nothing to do.\nIQModels (branch main, clean, level with origin)\n"
    )


def test_a_remote_that_is_away_is_one_line_and_what_is_not_compiled_is_one_line(desk: Project) -> None:  # noqa: F811
    made_anew(desk, "JIT")
    sandbox = desk.root / SANDBOX
    (sandbox / "origin.git").rename(sandbox / "gone.git")
    plan = desk.doit("plan", "publish:nopp").ok().out
    (sandbox / "gone.git").rename(sandbox / "origin.git")
    (line,) = [line for line in plan.splitlines() if line.startswith("Not yet")]
    assert ".." not in line.replace("../", "")
    desk.models["nopp"]["flags"] = {"IMAGE": 1}
    desk.declare()
    assert desk.doit("plan", "publish:nopp").ok().out.count("nopp is not compiled") == 1
    told = json.loads(desk.doit("plan", "--json", "publish:nopp").ok().out)["nopp"]
    assert "compile" in told
    assert [one["what"] for one in told["publication"]["problems"] if "is not compiled" in one["what"]]
    assert all(one["remedy"] for one in told["publication"]["problems"])


def test_another_target_holds_nobodys_newer_work_because_ours_went_elsewhere_before(desk: Project) -> None:  # noqa: F811
    republished(desk, "NOLOCALS")
    share = desk.root / "share"
    shutil.copytree(desk.root / SANDBOX / "IQModels", share, ignore=shutil.ignore_patterns(".git"))
    for path in share.glob("docs/*.json"):
        path.write_text(path.read_text().replace(entry_of(share, "NOPP"), "5" * 64))
    settings, target = desk.head["targets"], desk.models["nopp"]["target"]
    desk.head["targets"] = {**settings, "share": {**settings["sandbox"], "kind": "folder", "repository": "share"}}
    desk.models["nopp"]["target"] = "share"
    desk.declare()
    try:
        desk.doit("publish:nopp").ok()
        assert entry_of(share, "NOPP") != "5" * 64
    finally:
        desk.head["targets"], desk.models["nopp"]["target"] = settings, target
        desk.declare()


def test_taking_back_a_first_publication_says_that_nothing_stood_there_before(desk: Project) -> None:  # noqa: F811
    (desk.root / "first.onnx").write_bytes((desk.root / "nopp.onnx").read_bytes())
    desk.add("first", "first.onnx", folder="First-201", target="sandbox", bundle={"short_name": "FIRST"})
    try:
        desk.doit("publish-new", "first").ok()
        out = desk.doit("unpublish", "first").ok().out
        assert "first: its files and its bundle are taken out in " in out
        assert "published again" not in out
        assert git(desk, "log", "-1", "--format=%s", "main") == "Take back Model first"
    finally:
        del desk.models["first"]
        desk.declare()


def entry_of(folder: Path, short: str) -> str:
    """A bundle's sha256 in the selector's manifest."""
    bundles = json.loads((folder / "docs/model_selector_b.json").read_text())["bundles"]
    (one,) = [bundle for bundle in bundles if bundle["short_name"] == short]
    return str(one["models"][0]["artifact"]["download_uri"]["sha256"])
