"""A directory laid out like a comma device's root, as the guide's "Current Expected Device Context" has it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.support.scripts import lay_script

FLAGS = ("DEV=QCOM", "IMAGE=2", "FLOAT16=1", "NOLOCALS=1", "JIT_BATCH_SIZE=0", "OPENPILOT_HACKS=1")
CPU_FLAGS = ("DEV=CPU", "IMAGE=0", "FLOAT16=1", "NOLOCALS=1", "JIT_BATCH_SIZE=0", "OPENPILOT_HACKS=1")
IQMODELD = "data/openpilot/iqpilot/selfdrive/iqmodeld"
SCONSCRIPT = '''\
import os
import subprocess

Import("env", "arch")


def _plain_flags():
    """Flags of the vision and policy models."""
    if arch == "larch64":
        return "{plain}"
    return "DEV=CPU:LLVM IMAGE=0"


def _fused_flags():
    """Flags of the fused supercombo."""
    if arch == "larch64":
        return "{fused}"
    return "DEV=CPU:LLVM IMAGE=0"


def tinygrad_flags(fused):
    return _fused_flags() if fused else _plain_flags()
'''
PARAMS = {
    "IsOnroad": "0",
    "IsOffroad": "1",
    "OffroadMode": "0",
    "ModelManager_ActiveBundle": json.dumps({"internalName": "TobyRL", "displayName": "TobyRL", "models": []}),
    "ModelManager_LastSyncTime": "0",
    "Version": "0.10.1",
}


def lay_out(
    root: Path, *, plain: tuple[str, ...] = FLAGS, fused: tuple[str, ...] = FLAGS, python: str = sys.executable
) -> Path:
    """Fills a root; the cache directories of the guide's section 4 are left for the build to make.

    plain, fused: what the two functions of SConscript return for larch64.
    """
    for directory in ("data/media/0/models", "data/params/d", "data/community/crashes", "data/root-user", "usr/local"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    write_sconscript(root, plain=plain, fused=fused)
    # IQPilot's own compile script, at its place in the guide; ours takes the same arguments.
    lay_script("compile_supercombo", root / IQMODELD / "tools")
    for name, value in PARAMS.items():
        (root / "data/params/d" / name).write_text(value)
    (root / "VERSION").write_text("15.1")
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/os-release").write_text('NAME="AGNOS"\nID=agnos\nVERSION_ID="15.1"\n')
    (root / "data/openpilot/openpilot").mkdir(exist_ok=True)
    (root / "data/openpilot/openpilot/__init__.py").write_text("")
    _check_out_tinygrad(root / "data/openpilot/tinygrad_repo")
    # Not a link: a Python that is reached by a link looks for its libraries beside the link.
    interpreter = root / "usr/local/venv/bin/python"
    interpreter.parent.mkdir(parents=True, exist_ok=True)
    interpreter.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n')
    interpreter.chmod(0o755)
    return root


def write_sconscript(root: Path, *, plain: tuple[str, ...], fused: tuple[str, ...]) -> Path:
    """The file of guide section 1."""
    file = root / IQMODELD / "SConscript"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(SCONSCRIPT.replace("{plain}", " ".join(plain)).replace("{fused}", " ".join(fused)))
    return file


def set_param(root: Path, name: str, value: str) -> None:
    """By rename, as the device's own Params does."""
    parameter = root / "data/params/d" / name
    temporary = parameter.with_name(f".{name}.tmp")
    temporary.write_text(value)
    temporary.replace(parameter)


@cache
def tinygrad_repository() -> Path:
    """The installed tinygrad as a git repository, made once a process and cloned by every device."""
    import tinygrad

    package = Path(tinygrad.__file__).parent
    directory = Path(tempfile.mkdtemp(prefix="tinygrad-repo-"))
    _forget_at_exit(directory)
    shutil.copytree(package, directory / "tinygrad", ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    (directory / ".gitignore").write_text("__pycache__/\n")
    for arguments in (
        ("init", "-q", "-b", "master"),
        ("add", "-A"),
        ("commit", "-q", "-m", "tinygrad 0.14.0"),
    ):
        git(directory, *arguments)
    return directory


def git(directory: Path, *arguments: str) -> str:
    """git that depends on nobody's configuration; always the same commit for the same tree."""
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{role}_NAME": "test" for role in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{role}_EMAIL": "test@example.invalid" for role in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{role}_DATE": "2026-08-01T00:00:00Z" for role in ("AUTHOR", "COMMITTER")},
    }
    return subprocess.run(
        ["git", *arguments], cwd=directory, env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


def _check_out_tinygrad(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    git(target.parent, "clone", "-q", "--shared", str(tinygrad_repository()), str(target))


def _forget_at_exit(directory: Path) -> None:
    import atexit

    atexit.register(shutil.rmtree, directory, ignore_errors=True)
