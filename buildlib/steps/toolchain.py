"""What a device compiles with: interpreter, the environment built for a compile, the spec of its identity."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from buildlib.core.catalog import Device
from buildlib.core.key import digest
from buildlib.store import files
from buildlib.store.stat_cache import signature
from buildlib.store.workspace import Workspace
from buildlib.toolchain.c_compiler import CCompiler, find_c_compiler

SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def is_local(device: Device) -> bool:
    """True for a device that is a directory of this workstation."""
    return device.transport == "local"


def python_on(device: Device) -> str:
    """The interpreter that runs agent and compiles: the device's venv, or our own on `local`."""
    if device.paths.python:
        return device.paths.python
    if is_local(device):
        return sys.executable
    return f"{device.paths.root.rstrip('/')}{device.paths.venv}/bin/python"


def spec(workspace: Workspace, device: Device, builtin_digest: str) -> dict[str, Any]:
    """What the agent's `toolchain.identify` is asked for."""
    compiler = c_compiler(workspace) if is_local(device) else None
    builtin = device.compile_script == "builtin"
    return {
        "pythonpath": [device.paths.openpilot, device.paths.tinygrad],
        "script": {"sha256": builtin_digest} if builtin else {"path": device.compile_script},
        "c_compiler": {"path": str(compiler.path), "identity": compiler.identity} if compiler else None,
    }


def compile_environment(
    workspace: Workspace, device: Device, flags: dict[str, str], identity: dict[str, Any]
) -> dict[str, str]:
    """The guide's `sudo env` list (section 5) and the flags; nothing is inherited.

    tinygrad's kernel cache lies in a directory of its own for each toolchain, so one never serves another.
    """
    paths, root = device.paths, device.paths.root.rstrip("/")
    venv = str(Path(sys.prefix)) if is_local(device) else f"{root}{paths.venv}"
    environment = {
        "HOME": f"{root}{paths.home}",
        "XDG_CACHE_HOME": f"{root}{paths.cache}/{digest(identity)[:12]}",
        "UV_CACHE_DIR": f"{root}{paths.uv_cache}",
        "TMPDIR": f"{root}{paths.tmp}",
        "PYTHONPATH": f"{root}{paths.openpilot}:{root}{paths.tinygrad}",
        "PATH": f"{venv}/bin:{SYSTEM_PATH}",
        "VIRTUAL_ENV": venv,
    }
    if is_local(device):
        environment["CC"] = str(c_compiler(workspace).path)
    return {**environment, **flags}


def c_compiler(workspace: Workspace) -> CCompiler:
    """The workstation's compiler for DEV=CPU. Tried out once, then remembered while the programs stay the same."""
    place = workspace.state / "cache" / "c-compiler.json"
    stamp = digest(_candidates())
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(files.read_sealed(place))
        if known["stamp"] == stamp and os.access(known["path"], os.X_OK):
            return CCompiler(Path(known["path"]), known["identity"])
    found = find_c_compiler(workspace.state / "toolchain")
    told = {"stamp": stamp, "path": str(found.path), "identity": found.identity}
    files.write_sealed(place, json.dumps(told).encode())
    return found


def _candidates() -> list[Any]:
    """What the choice of a compiler depends on, by name and by what the file system says of it."""
    clang = shutil.which("clang")
    package = importlib.util.find_spec("ziglang")
    roots = list(package.submodule_search_locations or ()) if package else []
    programs = [clang, *(str(Path(root) / "zig") for root in roots)]
    return [sys.prefix, [[program, signature(program)] for program in programs if program]]
