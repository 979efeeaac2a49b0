"""What a compile is told: the guide's command and its `sudo env` list (section 5), and nothing of anybody else's."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.devices.server import SSHD_MARKS
from tests.support.projects import SCRIPT, Project
from tests.support.ssh_projects import SshProject, ssh_project

INHERITED = {"QCOM": "1", "CPU_LLVM": "1", "BEAM": "2", "VIRTUAL_ENV": "/elsewhere", "XDG_CACHE_HOME": "/elsewhere"}
TELL = "import json, os, sys\nopen({place!r}, 'w').write(json.dumps([sys.orig_argv, dict(os.environ)]))\n"


def told(project: Project, place: Path) -> tuple[list[str], dict[str, str]]:
    """(arguments of the interpreter, environment) of the compile of `one`, for a user with variables of his own."""
    project.wish("hook", "one", TELL.format(place=str(place)))
    project.environment |= INHERITED
    project.models["one"] |= {"frame_skip": 2, "camera_resolutions": ["1928x1208"]}
    project.models["one"] |= {"flags": {"NOLOCALS": 1, "WARP_DEV": None, "IMAGE": ""}}
    project.declare()
    project.doit("compile:one").ok()
    command, environment = json.loads(place.read_text())
    # A shell's and python's own: a test device's interpreter is started by a shell.
    return command[1:], {name: text for name, text in environment.items() if name not in ("PWD", "LC_CTYPE")}


def command_in(root: str, script: str) -> list[str]:
    """The guide's, from the script on, below a root."""
    return [
        f"{root}{script}",
        *("--model-size", "512x256"),
        *("--output", f"{root}/data/media/0/models/driving_supercombo_one.recompiled.pkl"),
        *("--expected-device", "CPU"),
        *("--onnx", f"{root}/data/media/0/driving_supercombo_one_source.onnx"),
        *("--frame-skip", "2"),
        *("--camera-resolutions", "1928x1208"),
    ]


def environment_in(root: str, venv: str) -> dict[str, str]:
    """The guide's, below a root; the kernels' cache lies one directory deeper."""
    return {
        "HOME": f"{root}/data/root-home",
        "XDG_CACHE_HOME": f"{root}/data/root-cache",
        "UV_CACHE_DIR": f"{root}/data/root-uv-cache",
        "TMPDIR": f"{root}/data/root-tmp",
        "PYTHONPATH": f"{root}/data/openpilot:{root}/data/openpilot/tinygrad_repo",
        "PATH": f"{venv}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "VIRTUAL_ENV": venv,
        "DEV": "CPU",
        "NOLOCALS": "1",
        "IMAGE": "",
    }


def cache_of(environment: dict[str, str]) -> dict[str, str]:
    """The same, with the directory that holds the toolchains' caches in place of this toolchain's."""
    return environment | {"XDG_CACHE_HOME": str(Path(environment["XDG_CACHE_HOME"]).parent)}


def test_the_embedded_device_compiles_by_the_guides_command_with_a_compiler_of_its_own(
    project: Project, tmp_path: Path
) -> None:
    command, environment = told(project, tmp_path / "told")
    root = str(project.device())
    assert command == command_in(root, SCRIPT)
    compiler = environment.pop("CC")
    assert Path(compiler).is_absolute()
    assert cache_of(environment) == environment_in(root, sys.prefix)


@pytest.fixture
def desk(tmp_path: Path, sample_artifact: Path, sample_onnx: Path) -> Iterator[SshProject]:
    with ssh_project(tmp_path, sample_artifact, sample_onnx) as project:
        yield project


class TestOverSsh:
    pytestmark = SSHD_MARKS

    def test_a_device_compiles_by_the_guides_command(self, desk: SshProject, tmp_path: Path) -> None:
        command, environment = told(desk, tmp_path / "told")
        root = desk.settings["paths"]["root"]
        venv = f"{root}/usr/local/venv"
        assert command == command_in(root, SCRIPT)
        assert cache_of(environment) == environment_in(root, venv)
