"""The scripts that run on devices: which files each is made of, and what names them in keys."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

from buildlib.core.catalog import Device
from buildlib.core.key import digest

FOLDER = Path(__file__).parent.parent / "device_scripts"
PREFIX = "supercombo_build"
COMPILE, VALIDATE = f"{PREFIX}_compile", f"{PREFIX}_validate"
IQPILOT, SELECTOR = f"{PREFIX}_iqpilot", f"{PREFIX}_selector"


@dataclass(frozen=True, kw_only=True)
class ScriptFile:
    """One file of a script. name: its path below the directory that the script is sent to, with "/"."""

    name: str
    path: Path
    sha256: str


Script = tuple[ScriptFile, ...]
"""What is started, then the modules that it loads from beside itself: all that it loads of ours."""


def compile_script(kind: str) -> Script:
    """Our compile script for a kind of model."""
    if kind == "supercombo":
        return _script("compile_supercombo", COMPILE, "artifact checks command inputs onnx_file policy shared warp")
    modules = "checks onnx_file shared split_artifact split_command split_inputs split_parts"
    return _script("compile_split", COMPILE, modules)


def harness_script(kind: str) -> Script:
    """Our harness for a kind of model."""
    common = "child command findings frame record watchdog"
    if kind == "supercombo":
        return _script("validate_supercombo", VALIDATE, f"checks drive pictures runtime {common}")
    return _script("validate_split", VALIDATE, f"split_drive split_parts {common}")


def iqpilot_script() -> Script:
    """Our script that runs and watches IQPilot's own harness."""
    return _script("validate_iqpilot", IQPILOT, "command files harness processes watch")


def selector_script() -> Script:
    """What asks a device's model selector for a download."""
    return _script("selector_download", SELECTOR, "bundles command download parameters")


def compile_script_id(device: Device, kind: str = "supercombo") -> str:
    """Our script's digest, or the path of the device's own (whose bytes the probe puts into the toolchain)."""
    if device.compile_script != "builtin":
        return device.compile_script
    return digest_of(compile_script(kind))


def digest_of(script: Script) -> str:
    """One digest for all files of a script, under their names."""
    return digest([[file.name, file.sha256] for file in script])


def shipped_path(device: Device, script: Script, file: ScriptFile) -> str:
    """Where a file of ours lies on a device: in a directory named by the digest of all that is sent with it."""
    return f"{device.paths.state}/scripts/{digest_of(script)[:16]}/{file.name}"


def _script(started: str, package: str, modules: str) -> Script:
    names = [f"{package}/{module}.py" for module in sorted(("__init__", *modules.split()))]
    return tuple(_file(name) for name in (f"{started}.py", *names))


@functools.cache
def _file(name: str) -> ScriptFile:
    path = FOLDER / name
    return ScriptFile(name=name, path=path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
