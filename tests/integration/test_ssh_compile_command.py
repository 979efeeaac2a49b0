"""What a compile on a device is started with: the guide's command of section 5, word for word, and nothing else."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.devices.server import SSHD_MARKS
from tests.support.projects import until
from tests.support.ssh_projects import REMOTE_OUTPUT, SshProject, processes_in, ssh_project

pytestmark = SSHD_MARKS
GUIDE = """
HOME=/data/root-home XDG_CACHE_HOME=/data/root-cache UV_CACHE_DIR=/data/root-uv-cache TMPDIR=/data/root-tmp
PYTHONPATH=/data/openpilot:/data/openpilot/tinygrad_repo PATH=/usr/local/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin
VIRTUAL_ENV=/usr/local/venv
DEV=QCOM WARP_DEV=QCOM IMAGE=2 FLOAT16=1 NOLOCALS=1 JIT_BATCH_SIZE=0 OPENPILOT_HACKS=1
"""
ARGUMENTS = """
--model-size 512x256 --camera-resolutions 1344x760 1928x1208 --onnx /data/media/0/driving_supercombo_one_source.onnx
--output /data/media/0/models/driving_supercombo_one.recompiled.pkl --frame-skip 4 --expected-device QCOM
"""
OF_A_SHELL = {"PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}
"""The test device's python is a shell's script."""


@pytest.fixture
def desk(tmp_path: Path, sample_artifact: Path, sample_onnx: Path) -> Iterator[SshProject]:
    with ssh_project(tmp_path, sample_artifact, sample_onnx) as project:
        yield project


def options(words: list[str]) -> dict[str, list[str]]:
    """The values of each option, in whatever order the options stand."""
    found: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            values = found.setdefault(word, [])
        else:
            values.append(word)
    return found


def test_a_compile_gets_the_guides_environment_and_arguments_and_nothing_else(desk: SshProject) -> None:
    told = desk.control() / "told.json"
    desk.wish(
        "hook",
        "one",
        f"import json, os, sys\njson.dump([dict(os.environ), sys.argv, os.geteuid()], open({str(told)!r}, 'w'))",
    )
    desk.set(profile="qcom")
    # What a login there sets is not inherited.
    enter = desk.comma.server.directory / "enter.sh"
    enter.write_text(enter.read_text().replace("#!/bin/sh\n", "#!/bin/sh\nexport QCOM=1 CPU_LLVM=1\n"))
    desk.doit("compile:one").ok()
    environment, argv, user = json.loads(told.read_text())
    root = str(desk.comma.root)
    here = {name: text.replace(root, "") for name, text in environment.items() if name not in OF_A_SHELL}
    guide = dict(word.split("=", 1) for word in shlex.split(GUIDE))
    # Of its own for each toolchain, below the guide's.
    assert os.path.dirname(here["XDG_CACHE_HOME"]) == guide.pop("XDG_CACHE_HOME")
    del here["XDG_CACHE_HOME"]
    assert here == guide
    assert options([word.replace(root, "") for word in argv[1:]]) == options(shlex.split(ARGUMENTS))
    assert user == os.geteuid()


def test_a_compile_that_takes_longer_than_its_timeout_is_ended_with_all_that_it_started(desk: SshProject) -> None:
    desk.set(timeouts={**desk.settings["timeouts"], "compile": 2})
    desk.wish("hook", "one", "import subprocess; subprocess.run(['sleep', '600'])")
    run = desk.doit()
    assert run.status == 1
    assert "one compile failed\n  what  one on desk: the compile took too long: ended after 2 s\n" in run.out
    assert "  try   raise devices.desk.timeouts.compile in models.yaml\n" in run.out
    until(lambda: not processes_in(desk.comma.root))
    assert not desk.there(REMOTE_OUTPUT).exists()
    # Reported once: with more time it is done again.
    (desk.control() / "hook-driving_supercombo_one.pkl").unlink()
    desk.doit().ok()
    desk.assert_right()
