"""Each script that runs on devices is sent with all that it loads, and loads it from where it was sent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from buildlib.steps import scripts
from tests.support.scripts import SCRIPTS, in_checkout, lay_script

LOADED = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
print(json.dumps(sorted(file for file in files if file and file.startswith(sys.argv[2]))))
"""
MODES = ([], ["-I"], ["-P"], ["-s", "-E", "-B"])


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_sent_with_all_that_it_loads_and_with_nothing_else(name: str, tmp_path: Path) -> None:
    folder = lay_script(name, tmp_path / "some where").parent
    done = run("-c", LOADED, name, str(folder), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == sorted(str(path) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("mode", MODES, ids=" ".join)
def test_a_script_finds_what_it_loads_in_any_mode_of_python_and_leaves_no_bytecode(
    name: str, mode: list[str], tmp_path: Path
) -> None:
    script = lay_script(name, tmp_path / "some where")
    there = sorted(script.parent.rglob("*"))
    done = run(*mode, str(script), "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {name}.py [-h]")
    assert sorted(script.parent.rglob("*")) == there


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_by_hand_from_the_checkout_with_the_same_help(name: str, tmp_path: Path) -> None:
    by_hand = run(str(in_checkout(name)), "--help", cwd=tmp_path)
    sent = run(str(lay_script(name, tmp_path / "sent")), "--help", cwd=tmp_path)
    assert (by_hand.returncode, by_hand.stdout) == (0, sent.stdout)


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_lies_elsewhere_under_the_same_name_is_not_taken(name: str, tmp_path: Path) -> None:
    """Neither from the PYTHONPATH nor from the working directory."""
    script = lay_script(name, tmp_path / "sent")
    elsewhere = tmp_path / "elsewhere"
    for file in SCRIPTS[name][1:]:
        (elsewhere / file.name).parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / file.name).write_text("raise SystemExit('taken from elsewhere')\n")
    done = subprocess.run(
        [sys.executable, str(script), "--help"],
        cwd=elsewhere,
        env={"PYTHONPATH": str(elsewhere)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_modules_that_lie_beside_a_script_have_names_that_no_device_has() -> None:
    tops = {file.name.partition("/")[0] for script in SCRIPTS.values() for file in script[1:]}
    assert tops == {f"supercombo_build_{name}" for name in ("compile", "validate", "iqpilot", "selector")}


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_file_counts_in_a_scripts_digest(name: str) -> None:
    script = SCRIPTS[name]
    digests = {scripts.digest_of(script)}
    for number, file in enumerate(script):
        for changed in ({"sha256": "0" * 64}, {"name": "another.py"}):
            other = scripts.ScriptFile(**{"name": file.name, "path": file.path, "sha256": file.sha256, **changed})
            digests.add(scripts.digest_of((*script[:number], other, *script[number + 1 :])))
    assert len(digests) == 1 + 2 * len(script)


def test_a_change_that_only_supercombos_load_makes_no_split_model_stale() -> None:
    shared = {file.name for file in SCRIPTS["compile_split"]} & {file.name for file in SCRIPTS["compile_supercombo"]}
    assert "supercombo_build_compile/checks.py" in shared
    assert "supercombo_build_compile/warp.py" not in shared
