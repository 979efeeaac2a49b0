"""The short way of a run with nothing to do is taken only while all that its finding came from is as it was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.projects import CHECKOUT, Project, variant

UP_TO_DATE = "2 models up to date.\n"


def took_the_short_way(project: Project, *arguments: str, status: int = 0) -> bool:
    """Runs doit and sees whether it loaded the catalog, which only the long way needs."""
    code = (
        "import sys\n"
        "from doit.doit_cmd import DoitMain\n"
        f"status = DoitMain().run({list(arguments)!r})\n"
        "print('LONG' if 'buildlib.core.catalog' in sys.modules else 'SHORT')\n"
        "sys.exit(status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project.root,
        env=project.environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()[-1] == "SHORT"


@pytest.fixture
def idle(built: Project) -> Project:
    """A project whose next run goes the short way."""
    for _ in range(40):
        if took_the_short_way(built):
            return built
        time.sleep(0.1)
    raise AssertionError("no run went the short way")


def test_a_second_idle_run_goes_the_short_way_and_says_the_same(idle: Project) -> None:
    assert idle.doit().ok().text == UP_TO_DATE


def test_the_short_way_still_looks_at_each_device_and_tells_when(idle: Project) -> None:
    seen = idle.root / ".build/devices/local.seen"
    before = json.loads(seen.read_text())["answered"]
    assert took_the_short_way(idle)
    assert json.loads(seen.read_text())["answered"] > before
    idle.switch_off()
    run = idle.doit().ok()
    assert "assumed" in run.out
    assert "last seen" in run.out
    idle.switch_on()
    assert not took_the_short_way(idle)


@pytest.mark.parametrize("arguments", [["one"], ["compile"], ["-a"], ["status"], ["-s", "verify:one"], ["-r", "zero"]])
def test_whatever_else_is_asked_goes_the_long_way(idle: Project, arguments: list[str]) -> None:
    assert not took_the_short_way(idle, *arguments)


def bump_tinygrad(project: Project) -> None:
    (project.device() / "data/openpilot/tinygrad_repo/tinygrad/__init__.py").write_text("version = 9\n")


def another_system(project: Project) -> None:
    (project.device() / "VERSION").write_text("17\n")


def lose_active_file(project: Project) -> None:
    (project.device() / "data/media/0/models/driving_supercombo_one.pkl").unlink()


def replace_onnx(project: Project) -> None:
    path = project.root / "one.onnx"
    before = path.stat()
    path.write_bytes(variant(path.read_bytes(), 41))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def touch_onnx(project: Project) -> None:
    os.utime(project.root / "one.onnx")


def damage_artifact(project: Project) -> None:
    path = project.artifact("one")
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"xx")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def edit_digest(project: Project) -> None:
    path = project.artifact("one")
    path.with_name(f"{path.name}.sha256").write_text("0" * 64)


def drop_receipt(project: Project) -> None:
    next((project.root / ".build/receipts/verify").iterdir()).unlink()


def damage_receipt(project: Project) -> None:
    path = next((project.root / ".build/receipts/verify").iterdir())
    path.write_bytes(path.read_bytes().replace(b"one", b"eno").replace(b"two", b"owt"))


def lose_blob(project: Project) -> None:
    shutil.rmtree(project.root / ".build/blobs")


def set_flag(project: Project) -> None:
    project.models["one"]["flags"] = {"NOLOCALS": 1}
    project.declare()


def comment_models(project: Project) -> None:
    path = project.root / "models.yaml"
    path.write_text(path.read_text() + "# a word\n")


def edit_dodo(project: Project) -> None:
    path = project.root / "dodo.py"
    path.write_text(path.read_text() + "\n\ndef task_own():\n    return {'actions': ['true']}\n")


def edit_pyproject(project: Project) -> None:
    path = project.root / "pyproject.toml"
    path.write_text(path.read_text() + "\n# a word\n")


def ignore_a_task(project: Project) -> None:
    project.doit("ignore", "compile:one").ok()


def edit_tool(project: Project) -> None:
    code = project.root.parent / "tool"
    shutil.copytree(CHECKOUT / "buildlib", code / "buildlib", ignore=shutil.ignore_patterns("__pycache__"))
    project.code = code


def another_path(project: Project) -> None:
    tools = project.root.parent / "tools"
    tools.mkdir()
    (tools / "clang").symlink_to(shutil.which("true") or "/bin/true")
    project.environment["PATH"] = f"{tools}:{os.environ['PATH']}"


def damage_note(project: Project) -> None:
    path = project.root / ".build/cache/idle"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def shorten_note(project: Project) -> None:
    path = project.root / ".build/cache/idle"
    path.write_bytes(path.read_bytes()[:20])


HARMLESS = {touch_onnx, comment_models, edit_pyproject, damage_note, shorten_note, edit_tool}


@pytest.mark.parametrize(
    "change",
    [
        bump_tinygrad,
        another_system,
        lose_active_file,
        replace_onnx,
        touch_onnx,
        damage_artifact,
        edit_digest,
        drop_receipt,
        damage_receipt,
        lose_blob,
        set_flag,
        comment_models,
        edit_dodo,
        edit_pyproject,
        ignore_a_task,
        edit_tool,
        another_path,
        damage_note,
        shorten_note,
    ],
)
def test_any_change_is_looked_into_the_long_way(idle: Project, change: Any) -> None:
    change(idle)
    if change in HARMLESS:
        run = idle.doit().ok()
        assert run.text == UP_TO_DATE
        assert idle.calls() == []
    else:
        assert not took_the_short_way(idle)


def test_a_touched_artifact_is_read_once_and_never_again(idle: Project) -> None:
    """It is 119 MB in life: a hash a step, or one a run, is what a build that goes by times is chosen for."""
    code = (
        "import sys\n"
        f"path, opened = {str(idle.artifact('one'))!r}, []\n"
        "sys.addaudithook(lambda event, told: event == 'open' and str(told[0]) == path and opened.append(told))\n"
        "from doit.doit_cmd import DoitMain\n"
        "status = DoitMain().run([])\n"
        "print(len(opened))\n"
        "sys.exit(status)\n"
    )

    def opened() -> str:
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, cwd=idle.root, env=idle.environ(), capture_output=True, check=True, text=True
        ).stdout

    assert opened() == f"{UP_TO_DATE}0\n"
    os.utime(idle.artifact("one"))
    time.sleep(0.1)  # longer than a tick: within one, no hash may be believed
    assert [opened(), opened(), opened()] == [f"{UP_TO_DATE}{times}\n" for times in (1, 0, 0)]


def test_a_variable_in_models_yaml_counts(built: Project) -> None:
    built.models["one"]["flags"] = {"NOLOCALS": "${LOCALS:-0}"}
    built.declare()
    built.doit().ok()
    time.sleep(0.2)
    built.doit().ok()
    assert took_the_short_way(built)
    built.environment["LOCALS"] = "1"
    built.doit().ok()
    assert built.compiled("one") == 2


def test_tasks_of_the_users_own_are_never_skipped(built: Project) -> None:
    edit_dodo(built)
    for _ in range(3):
        built.doit("one", "two", "own").ok()
        built.doit().ok()
    assert not took_the_short_way(built)


def test_after_a_killed_build_the_long_way_is_taken(idle: Project, tmp_path: Path) -> None:
    (idle.root / ".build/lock").write_text('{"pid": 1, "purpose": "doit", "since": "then"}')
    assert not took_the_short_way(idle)
    assert took_the_short_way(idle)
