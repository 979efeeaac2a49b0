"""What decides whether something runs: contents, toolchain, receipts; never times, never doit's database (issue 3)."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.projects import CHECKOUT, Project, add_device, variant

UP_TO_DATE = "2 models up to date.\n"
ONE = "driving_supercombo_one.pkl"
TWO = "driving_supercombo_two.pkl"


def test_a_device_that_is_gone_is_assumed_fresh_and_nothing_is_compiled_when_it_comes_back(built: Project) -> None:
    built.switch_off()
    gone = built.doit().ok()
    assert "2 models up to date (assumed)." in gone.out
    assert "last seen" in gone.out
    assert built.status()["one"]["compile"]["state"] == "assumed"
    built.switch_on()
    assert built.doit().ok().out.endswith(UP_TO_DATE)
    assert built.status()["one"]["compile"]["state"] == "fresh"
    assert built.calls() == []


def test_a_source_that_is_away_is_a_warning_while_its_content_is_in_the_store(built: Project) -> None:
    (built.root / "one.onnx").rename(built.root / "unmounted")
    warning = "one         warning    one.onnx: there is no such file; what came from there last is in the store\n"
    run = built.doit().ok()
    assert run.out == f"{warning}2 models up to date (assumed).\n"
    built.models["one"]["flags"] = {"NOLOCALS": 1}
    built.declare()
    run = built.doit().ok()
    assert run.out.startswith(warning)
    assert run.out.endswith(", 1 warning above.\n")
    assert built.calls() == [ONE]
    shutil.rmtree(built.root / ".build" / "blobs")
    lost = built.doit("one")
    assert lost.status == 1
    assert "one.onnx: there is no such file" in lost.out


def test_a_stale_model_fails_without_its_device_and_the_fresh_one_stays_fresh(built: Project) -> None:
    built.models["one"]["flags"] = {"NOLOCALS": 1}
    built.declare()
    built.switch_off()
    run = built.doit()
    assert run.status == 1
    assert "one compile failed" in run.out
    assert "needs local" in run.out
    built.switch_on()
    built.doit().ok()
    assert built.calls() == [ONE]
    built.assert_right()


def test_deleting_everything_that_doit_itself_remembers_rebuilds_nothing(built: Project) -> None:
    for path in [*built.root.glob(".build/doit-marks*"), *built.root.glob(".doit.db*")]:
        path.unlink()
    assert built.doit().ok().text == UP_TO_DATE


def test_every_cache_and_explanation_may_be_lost(built: Project) -> None:
    shutil.rmtree(built.root / ".build" / "cache")
    shutil.rmtree(built.root / ".build" / "latest")
    run = built.doit().ok()
    assert run.out.endswith(UP_TO_DATE)
    assert built.calls() == []


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def shortened(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1])


def deleted(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [damaged, shortened, deleted])
def test_a_harmed_artifact_is_restored_byte_for_byte_without_a_compile(built: Project, harm: Any) -> None:
    artifact = built.artifact("one")
    before = artifact.read_bytes()
    harm(artifact)
    assert "one.pkl is" in built.doit("plan").ok().out
    run = built.doit().ok()
    assert f"from the content store, sha256 {hashlib.sha256(before).hexdigest()[:12]}\n" in run.out
    assert artifact.read_bytes() == before
    assert built.calls() == []
    assert built.doit().ok().text == UP_TO_DATE


def test_a_directory_in_the_place_of_an_artifact_is_an_error_that_names_it(built: Project) -> None:
    artifact = built.artifact("one")
    artifact.unlink()
    artifact.mkdir()
    (artifact / "someone's").write_text("work")
    run = built.doit()
    assert run.status == 1
    assert f"{artifact}: cannot be written: Is a directory" in run.out
    assert "move that directory away" in run.out
    assert (artifact / "someone's").read_text() == "work"


def test_reset_dep_blesses_no_damaged_artifact(built: Project) -> None:
    before = built.artifact("one").read_bytes()
    damaged(built.artifact("one"))
    built.doit("reset-dep")
    built.doit().ok()
    assert built.artifact("one").read_bytes() == before
    assert built.calls() == []


def test_an_edited_digest_file_is_rewritten(built: Project) -> None:
    path = built.artifact("one").with_name(f"{ONE}.sha256")
    before = path.read_bytes()
    path.write_bytes(b"0" * 64 + b"  " + ONE.encode() + b"\n")
    built.doit().ok()
    assert path.read_bytes() == before
    assert built.calls() == []


def test_a_deleted_log_runs_nothing(built: Project) -> None:
    (built.root / "artifacts/one/compile.log").unlink()
    assert built.doit().ok().text == UP_TO_DATE


def lose_store(project: Project) -> None:
    shutil.rmtree(project.root / ".build" / "blobs")


def test_a_lost_store_alone_compiles_nothing(built: Project) -> None:
    lose_store(built)
    built.doit().ok()
    assert built.calls() == []
    assert built.doit().ok().text == UP_TO_DATE
    built.assert_right()


def test_a_lost_store_gets_an_artifact_back_from_its_place_when_a_step_needs_it(built: Project) -> None:
    """The verdict is asked for again while the pull, whose file lies there whole, has nothing to do."""
    shutil.rmtree(built.root / ".build/blobs")
    for receipt in (built.root / ".build/receipts/verify").glob("*.json"):
        receipt.unlink()
    built.doit().ok()
    assert built.calls() == []
    assert built.doit().ok().text == UP_TO_DATE


def test_an_artifact_lost_here_comes_back_from_the_device(built: Project) -> None:
    before = built.artifact("one").read_bytes()
    lose_store(built)
    built.artifact("one").unlink()
    built.doit().ok()
    assert built.calls() == []
    assert built.artifact("one").read_bytes() == before


def test_an_artifact_lost_here_in_the_store_and_on_the_device_is_compiled_again(built: Project) -> None:
    lose_store(built)
    built.artifact("one").unlink()
    for path in built.device().rglob("driving_supercombo_one*.pkl"):
        path.unlink()
    built.doit().ok()
    assert built.calls() == [ONE]
    built.assert_right()


def test_a_damaged_blob_is_neither_believed_nor_handed_out(built: Project) -> None:
    for path in (built.root / ".build" / "blobs").rglob("*"):
        if path.is_file():
            damaged(path)
    artifact = built.artifact("one")
    before = artifact.read_bytes()
    artifact.unlink()
    built.doit().ok()
    assert artifact.read_bytes() == before
    built.assert_right()


def test_a_device_that_lost_everything_gets_its_files_again_without_a_compile(built: Project) -> None:
    shutil.rmtree(built.device() / "data" / "media")
    shutil.rmtree(built.device() / "data" / "supercombo-build")
    run = built.doit().ok()
    assert "upload" in run.out
    assert "install" in run.out
    assert built.calls() == []
    built.assert_right()


def test_the_embedded_device_gets_removed_directories_again_also_for_a_compile(built: Project) -> None:
    shutil.rmtree(built.device() / "data" / "media")
    built.models["one"]["flags"] = {"NOLOCALS": 1}
    built.declare()
    built.doit().ok()
    assert built.calls() == [ONE]
    built.assert_right()


def new_tinygrad(project: Project) -> None:
    (project.device() / "data/openpilot/tinygrad_repo/tinygrad/__init__.py").write_text("version = 2\n")


def new_script(project: Project) -> None:
    script = project.control() / "compile.py"
    script.write_text(script.read_text() + "# newer\n")


def new_system(project: Project) -> None:
    (project.device() / "VERSION").write_text("16.2\n")


def another_frame_skip(project: Project) -> None:
    for model in project.models.values():
        model["frame_skip"] = 2
    project.declare()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (new_tinygrad, "tinygrad"),
        (new_script, "script"),
        (new_system, "os"),
        (another_frame_skip, "frame skip"),
    ],
)
def test_what_compiles_differently_makes_each_compile_stale_and_says_why(
    built: Project, change: Any, words: str
) -> None:
    change(built)
    built.doit("preflight").ok()
    stages = built.status()["one"]
    assert {name for name, stage in stages.items() if stage["state"] == "fresh"} == {"source", "upload"}
    assert {stages[name]["state"] for name in ("compile", "pull", "verify", "install")} == {"stale"}
    assert words in stages["compile"]["reason"]
    assert words in built.doit("explain", "one").ok().out
    assert "2 models" in built.doit("plan").ok().out
    built.doit("compile").ok()
    assert built.calls() == [ONE, TWO]


def test_a_module_beside_tinygrad_that_the_compile_loads_makes_it_stale(project: Project) -> None:
    """compile3 and its kin load `extra` from tinygrad's checkout: other bytes there are another compiler."""
    module = project.device() / "data/openpilot/tinygrad_repo/extra/onnx.py"
    module.parent.mkdir()
    module.write_text("version = 1\n")
    script = project.control() / "compile.py"
    script.write_text(script.read_text().replace("import runpy\n", "import runpy\nimport extra.onnx\n"))
    project.doit("compile:one").ok()
    module.write_text("version = 2\n")
    project.doit("compile:one").ok()
    assert project.calls() == [ONE, ONE]


def test_a_touched_tinygrad_makes_nothing_stale(built: Project) -> None:
    (built.device() / "data/openpilot/tinygrad_repo/tinygrad/__init__.py").touch()
    assert built.doit().ok().text == UP_TO_DATE


SWAP = """
from pathlib import Path
path = Path({path!r})
before = path.read_bytes()
path.write_bytes({other!r})
if {back!r}:
    path.write_bytes(before)
"""


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("what", ["the ONNX on the device", "tinygrad", "the script"])
def test_what_moves_while_a_compile_runs_is_not_recorded(project: Project, what: str, back: bool) -> None:
    project.doit("upload").ok()
    path = {
        "the ONNX on the device": project.device() / "data/media/0/driving_supercombo_one_source.onnx",
        "tinygrad": project.device() / "data/openpilot/tinygrad_repo/tinygrad/__init__.py",
        "the script": project.control() / "compile.py",
    }[what]
    if what == "the ONNX on the device":
        assert path.exists(), sorted(path.parent.iterdir())
    other = variant(path.read_bytes(), 99) if what.startswith("the ONNX") else path.read_bytes() + b"# other\n"
    hook = project.wish("hook", "one", SWAP.format(path=str(path), other=other, back=back))
    run = project.doit("compile:one")
    assert run.status == 1
    assert "changed while" in run.out
    assert not list((project.root / ".build/receipts/compile").glob("*")), "nothing is recorded"
    assert project.compiled("one") == 1
    hook.unlink()
    project.doit().ok()
    assert project.compiled("one") == 2
    project.assert_right()


@pytest.mark.parametrize("back", [False, True])
def test_a_source_that_is_swapped_while_its_compile_runs_never_gives_its_name_to_other_bytes(
    project: Project, back: bool
) -> None:
    path = project.root / "one.onnx"
    other = variant(path.read_bytes(), 99)
    hook = project.wish("hook", "one", SWAP.format(path=str(path), other=other, back=back))
    project.doit()
    hook.unlink()
    project.doit().ok()
    project.assert_right()
    assert project.compiled("one") == (1 if back else 2)


def test_a_flag_that_is_taken_back_is_not_called_damage(built: Project) -> None:
    built.models["one"]["flags"] = {"NOLOCALS": 1}
    built.declare()
    built.doit().ok()
    del built.models["one"]["flags"]
    built.declare()
    assert "is not what this build made" in built.doit("explain", "one").ok().out
    built.doit().ok()
    assert built.calls() == [ONE]


def test_another_device_for_one_run_and_back_compiles_nothing_twice(built: Project) -> None:
    artifact = built.control().resolve() / "artifact"
    add_device(built, "b", artifact.resolve())
    built.declare()
    other = built.doit("device=b").ok()
    assert built.calls("b") == [], "the same toolchain has compiled it"
    assert "install" in other.out
    assert (built.device("b") / "data/media/0/models" / ONE).read_bytes() == built.artifact("one").read_bytes()
    assert "try   doit device=b install:one puts" in built.doit("device=b", "rollback", "one").err
    assert "try   doit install:one puts" in built.doit("rollback", "one").err
    (built.device("b") / "data/openpilot/tinygrad_repo/tinygrad/__init__.py").write_text("version = 3\n")
    built.doit("device=b").ok()
    assert built.calls("b") == [ONE, TWO]
    assert built.doit().ok().text == UP_TO_DATE
    assert built.calls() == []
    assert built.status()["one"]["compile"]["state"] == "fresh"


def test_a_renamed_model_that_says_what_it_was_compiles_nothing(built: Project) -> None:
    built.models["uno"] = {**built.models.pop("one"), "was": "one"}
    built.declare()
    built.doit().ok()
    assert built.calls() == []
    built.assert_right()
    assert built.doit().ok().text == UP_TO_DATE


def test_a_renamed_model_needs_its_former_name_no_more_once_it_is_built(built: Project) -> None:
    built.models["uno"] = {**built.models.pop("one"), "was": "one"}
    built.declare()
    built.doit().ok()
    del built.models["uno"]["was"]
    built.declare()
    built.doit("gc", "--yes").ok()
    assert built.doit().ok().text == UP_TO_DATE
    assert built.calls() == []
    built.models["uno"]["frame_skip"] = 2
    built.declare()
    assert "frame skip: 4 -> 2" in built.doit("plan", "uno").ok().out


def test_what_another_model_made_and_a_model_uses_is_no_garbage(built: Project) -> None:
    """Two models of the same ONNX and flags share what does not depend on their names."""
    built.models["twin"] = {**built.models["one"], "display_name": "Twin", "artifact": "driving_supercombo_twin.pkl"}
    built.declare()
    built.doit("twin").ok()
    made = built.calls()
    del built.models["one"]
    built.declare()
    built.doit("gc", "--yes").ok()
    (built.root / "one.onnx").unlink()
    run = built.doit().ok()
    assert "2 models up to date (assumed)" in run.text
    assert built.calls() == made


def test_an_artifact_under_a_former_file_name_is_garbage(built: Project) -> None:
    former = built.artifact("one")
    built.models["one"]["artifact"] = "driving_supercombo_uno.pkl"
    built.declare()
    built.doit().ok()
    listed = built.doit("gc").ok().out
    assert "an artifact that one has under another name now" in listed
    built.doit("gc", "--yes").ok()
    assert not former.exists()
    assert not former.with_name(f"{former.name}.sha256").exists()
    assert built.artifact("one").exists()
    assert built.doit().ok().text == UP_TO_DATE
    assert built.calls() == []


def test_a_removed_model_keeps_its_files_until_gc_is_told_yes(built: Project) -> None:
    artifact = built.artifact("one")
    del built.models["one"]
    built.declare()
    assert built.doit().ok().text == "1 model up to date.\n"
    assert artifact.exists()
    listed = built.doit("gc").ok().out
    assert "artifacts/one" in listed
    assert artifact.exists(), "listing removes nothing"
    built.doit("gc", "--yes").ok()
    assert not artifact.exists()
    assert built.doit().ok().text == "1 model up to date.\n"
    assert built.doit("gc").ok().out == "Nothing to collect.\n"
    assert built.calls() == []
    built.assert_right()


def test_a_newer_key_format_says_that_all_is_rebuilt_because_the_tool_changed(built: Project, tmp_path: Path) -> None:
    code = tmp_path / "newer tool"
    shutil.copytree(CHECKOUT / "buildlib", code / "buildlib", ignore=shutil.ignore_patterns("__pycache__"))
    key = code / "buildlib" / "core" / "key.py"
    text = key.read_text()
    assert "\nKEY_FORMAT = 1\n" in text
    key.write_text(text.replace("\nKEY_FORMAT = 1\n", "\nKEY_FORMAT = 2\n"))
    built.code = code
    planned = built.doit("plan").ok().out
    assert "the tool changed: keys of format 2 instead of 1, so all is rebuilt" in planned
    built.doit().ok()
    assert built.calls() == [ONE, TWO]
    assert built.doit().ok().text == UP_TO_DATE


def test_what_differs_between_two_keys_is_told_whole_to_programs(built: Project) -> None:
    built.models["one"]["flags"] = {"NOLOCALS": 1}
    built.models["one"]["frame_skip"] = 2
    built.declare()
    found = json.loads(built.doit("explain", "one", "--json").ok().out)["one"]["compile"]
    assert found["changes"] == [
        {"path": "arguments.frame_skip", "before": 4, "after": 2},
        {"path": "flags.NOLOCALS", "before": None, "after": "1"},
    ]
