"""`doit publish:M confirm:M` as a user types it: real compiles, a real sandbox repository, a real server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.projects import CHECKOUT, Project

pytestmark = pytest.mark.compile

MODELS = """
defaults: { device: local, target: sandbox }
devices:
  local: { transport: local, profile: cpu, validate_seconds: 1 }
targets:
  sandbox: { repository: .build/sandbox/IQModels, sandbox: true, policy: [harness] }
  real: { repository: .build/sandbox/IQModels, policy: [harness] }
models:
  nopp:
    display_name: No PP (June 26, 2026)
    folder: No PP (June 26, 2026)-165
    source: { kind: sample, seed: 2, width: 48 }
    artifact: driving_supercombo_nopp.pkl
    frame_skip: %(frame_skip)d
    target: %(target)s
    bundle: { short_name: NOPP }
  drl3:
    display_name: DRL V3 (July 9, 2026)
    folder: DRL V3 (July 9, 2026)-171
    source: { kind: sample, seed: 2, width: 48 }
    artifact: driving_supercombo_drl3.pkl
    bundle: { short_name: DRLV3 }
"""


def declare(project: Project, frame_skip: int = 4, target: str = "sandbox") -> None:
    """Writes models.yaml."""
    (project.root / "models.yaml").write_text(MODELS % {"frame_skip": frame_skip, "target": target})


def git(project: Project, *argv: str, at: str = "origin.git") -> str:
    """git in the sandbox."""
    place = project.root / ".build" / "sandbox" / at
    return subprocess.run(["git", "-C", str(place), *argv], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with spaces in its path whose `nopp` is published and confirmed."""
    root = tmp_path_factory.mktemp("a desk") / "my models"
    root.mkdir()
    for name in ("dodo.py", "pyproject.toml"):
        (root / name).write_text((CHECKOUT / name).read_text())
    project = Project(root=root)
    declare(project)
    project.doit("sandbox").ok()
    project.doit("publish:nopp", "confirm:nopp").ok()
    return project


def test_one_commit_with_exactly_three_paths_reaches_origin(published: Project) -> None:
    subject, *paths = git(published, "log", "-1", "--name-only", "--format=%s", "main").split("\n\n")
    assert subject.startswith("Recompile No PP (June 26, 2026) with ")
    assert set("\n".join(paths).split("\n")) - {""} == {
        "docs/model_fetcher_b.json",
        "docs/model_selector_b.json",
        "models/recompiled16/model-No PP (June 26, 2026)-165/driving_supercombo_nopp.pkl",
    }


def test_both_diffs_hold_only_lines_of_the_model(published: Project) -> None:
    sha256 = (published.root / "artifacts/nopp/driving_supercombo_nopp.pkl.sha256").read_text().split()[0]
    diff = git(published, "show", "--format=", "-U0", "main", "--", "docs")
    changed = [line[1:].strip() for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert len(changed) == 8
    assert sum(sha256 in line for line in changed) == 2
    assert all(line.startswith(('"sha256"', '"build_time"')) for line in changed)


def test_publishing_again_does_nothing(published: Project) -> None:
    before = git(published, "rev-parse", "main")
    assert published.doit("publish:nopp", "confirm:nopp").ok().out == "1 model up to date.\n"
    assert git(published, "rev-parse", "main") == before


def test_the_report_counts_what_was_done_and_says_what_a_person_still_has_to_do(published: Project) -> None:
    points = {p["number"]: p for p in json.loads(published.doit("report", "--json", "nopp").ok().out)["nopp"]}
    assert [number for number, point in points.items() if not point["done"]] == [1, 8, 9, 15]
    assert "attestation" in points[8]["evidence"]
    assert "by its URL, on no device: validate it" in points[15]["evidence"]


def test_an_entry_edited_by_hand_is_stale_again(published: Project) -> None:
    manifest = published.root / ".build/sandbox/IQModels/docs/model_selector_b.json"
    text = manifest.read_text()
    sha256 = (published.root / "artifacts/nopp/driving_supercombo_nopp.pkl.sha256").read_text().split()[0]
    manifest.write_text(text.replace(sha256, "0" * 64))
    try:
        assert published.status("nopp")["nopp"]["publish"]["state"] == "stale"
        reason = "sandbox holds other bytes, or its entry was edited"
        assert f"nopp: publish is stale: {reason}" in published.doit("status").ok().out
        assert reason in published.doit("explain", "nopp").ok().out
    finally:
        manifest.write_text(text)
    assert published.status("nopp")["nopp"]["publish"]["state"] == "fresh"


def test_a_sample_never_reaches_a_real_target(published: Project) -> None:
    declare(published, target="real")
    try:
        before = git(published, "rev-parse", "main")
        run = published.doit("publish:nopp")
        assert run.status == 1
        assert "made from a sample" in run.text
        assert git(published, "rev-parse", "main") == before
    finally:
        declare(published)


def test_the_plan_shows_diff_and_message_and_changes_nothing(published: Project) -> None:
    before = sorted(str(path) for path in Path(published.root / ".build/sandbox").rglob("*") if path.is_file())
    out = published.doit("plan", "publish:drl3").ok().out
    assert "docs/model_selector_b.json" in out
    assert "Recompile DRL V3 (July 9, 2026)" in out
    assert sorted(str(p) for p in Path(published.root / ".build/sandbox").rglob("*") if p.is_file()) == before


@pytest.mark.slow
def test_another_model_and_a_changed_setting_are_a_commit_and_an_entry_each(published: Project) -> None:
    start = git(published, "rev-parse", "main").strip()
    published.doit("publish:drl3").ok()
    paths = git(published, "diff", "--name-only", f"{start}..main").splitlines()
    assert len(paths) == 3
    assert not any("nopp" in path for path in paths)
    declare(published, frame_skip=2)
    published.doit("publish:nopp", "confirm:nopp").ok()
    assert git(published, "rev-list", "--count", f"{start}..main").strip() == "2"
    assert git(published, "log", "-1", "--format=%s", "main").strip().endswith("with frame skip 2")
    published.doit("unpublish", "nopp").ok()
    assert published.status("nopp")["nopp"]["publish"]["state"] == "stale"


def test_a_new_catalog_begins_beside_the_old_one_and_takes_its_models_one_by_one(published: Project) -> None:
    declare(published)
    head = git(published, "rev-parse", "main")
    listed = published.doit("catalog", "new", "sandbox")
    assert listed.status == 3
    assert "58 bundles are in no model" in listed.err
    assert "Amber" in listed.out
    planned = published.doit("catalog", "new", "sandbox", "--keep", "TOBYRL", "--drop", "*").ok()
    assert "Nothing was written" in planned.out
    assert git(published, "rev-parse", "main") == head
    begun = published.doit("catalog", "new", "sandbox", "--keep", "TOBYRL", "--drop", "*", "--yes").ok()
    assert 'directory: "models/recompiled17/model-{folder}"' in begun.out
    assert git(published, "diff", "--name-status", "main~1", "main").splitlines() == [
        "A\tdocs/model_fetcher_c.json",
        "A\tdocs/model_selector_c.json",
    ]
    settings = """
    directory: "models/recompiled17/model-{folder}"
    manifests: [docs/model_selector_c.json, docs/model_fetcher_c.json]
    succeeds: [docs/model_selector_b.json, docs/model_fetcher_b.json]
"""
    declared = (published.root / "models.yaml").read_text()
    before = "  sandbox: { repository: .build/sandbox/IQModels, sandbox: true, policy: [harness] }\n"
    after = "  sandbox:\n    repository: .build/sandbox/IQModels\n    sandbox: true\n    policy: [harness]" + settings
    (published.root / "models.yaml").write_text(declared.replace(before, after))
    published.doit("publish:nopp", "confirm:nopp").ok()
    assert git(published, "diff", "--name-only", "main~1", "main").splitlines() == [
        "docs/model_fetcher_c.json",
        "docs/model_selector_c.json",
        "models/recompiled17/model-No PP (June 26, 2026)-165/driving_supercombo_nopp.pkl",
    ]
    for manifest in ("docs/model_selector_c.json", "docs/model_fetcher_c.json"):
        bundles = json.loads(git(published, "show", f"main:{manifest}"))["bundles"]
        assert [bundle["short_name"] for bundle in bundles] == ["TOBYRL", "NOPP"]
        assert "/recompiled17/" in bundles[1]["models"][0]["artifact"]["download_uri"]["url"]
