"""The same six steps a model, the same files and the same probe in every run, told to other build systems.

Each function writes what its tool reads into a folder that holds files.json, probe.json and probe.stdin, runs what a
first run does, and returns the command of a run with nothing to do.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.scene import environ

STEPS = {
    "source": (("onnx",), ("blob",)),
    "upload": (("blob",), ("uploaded",)),
    "compile": (("uploaded",), ("compiled",)),
    "pull": (("compiled",), ("artifact", "digest")),
    "verify": (("artifact",), ("verdict",)),
    "install": (("artifact", "digest"), ("active",)),
}
"""Inputs and targets by step, in order."""

PROBE = "import json,subprocess;subprocess.run(json.load(open('probe.json')),stdin=open('probe.stdin','rb'),stdout=-1)"


def probe_alone() -> list[str]:
    """What asking the device costs by itself."""
    return [sys.executable, "-c", PROBE]


def doit(root: Path) -> list[str]:
    """Bare doit: sqlite, md5."""
    (root / "dodo.py").write_text(BARE_DOIT)
    return _settled(root, [sys.executable, "-m", "doit"])


def scons(root: Path) -> list[str]:
    """SCons, deciding by content."""
    (root / "SConstruct").write_text(SCONSTRUCT)
    return _settled(root, ["scons", "-Q"])


def ninja(root: Path) -> list[str]:
    """ninja: goes by time and command line, hashes nothing. It works on a copy whose times are in the steps' order."""
    lines = [
        f'rule probe\n  command = {sys.executable} -c "{PROBE}"',
        "rule step\n  command = true",
        "build always: phony",
        "build probe: probe always",
    ]
    for files in _copies(root):
        for inputs, targets in STEPS.values():
            made, needed = (" ".join(files[name] for name in names) for names in (targets, inputs))
            lines.append(f"build {made}: step {needed} || probe")
    (root / "build.ninja").write_text("\n".join(lines) + "\n")
    return _settled(root, ["ninja", "--quiet"])


def dvc(root: Path) -> list[str]:
    """DVC: hashes by content. It takes no outputs outside its folder, so it works on a copy."""
    stages: dict[str, dict[str, object]] = {
        "probe": {"cmd": [f'"{sys.executable}" -c "{PROBE}"'], "always_changed": True}
    }
    for number, files in enumerate(_copies(root)):
        for step, (inputs, targets) in STEPS.items():
            stages[f"{step}-{number}"] = {
                "cmd": "true",
                "deps": [files[name] for name in inputs],
                "outs": [{files[name]: {"cache": False, "persist": True}} for name in targets],
            }
    quiet = {**environ(), "DVC_NO_ANALYTICS": "1"}
    subprocess.run(["dvc", "init", "--no-scm", "--quiet"], cwd=root, env=quiet, check=True)
    # JSON is YAML.
    (root / "dvc.yaml").write_text(json.dumps({"stages": stages}))
    subprocess.run(["dvc", "commit", "--force", "--quiet"], cwd=root, env=quiet, check=True)
    return _settled(root, ["dvc", "repro", "--quiet"])


OTHERS: dict[str, Callable[[Path], list[str]]] = {"scons": scons, "dvc": dvc, "ninja": ninja}
"""By the program that has to be installed."""

MOST = {"dvc": 100}
"""Models beyond which a tool takes minutes for one run with nothing to do."""


def _settled(root: Path, command: list[str]) -> list[str]:
    for _ in range(2):
        subprocess.run(command, cwd=root, env=environ(), check=True, stdout=subprocess.DEVNULL)
    return command


def _copies(root: Path) -> list[dict[str, str]]:
    """Each model's files by name, copied under `root`, later steps' younger than earlier ones'; relative paths."""
    found = []
    for model, files in json.loads((root / "files.json").read_text()).items():
        (root / "copies" / model).mkdir(parents=True, exist_ok=True)
        here = {}
        for age, (name, path) in enumerate(files.items()):
            here[name] = f"copies/{model}/{name}"
            shutil.copy(path, root / here[name])
            os.utime(root / here[name], (1_700_000_000 + age, 1_700_000_000 + age))
        found.append(here)
    return found


BARE_DOIT = """
import json, subprocess
from doit.tools import config_changed
FILES = json.load(open("files.json"))
PROBE = json.load(open("probe.json"))
DOIT_CONFIG = {"backend": "sqlite3", "dep_file": "bare.db", "verbosity": 0, "reporter": "zero",
               "default_tasks": list(FILES)}
FLAGS = {"DEV": "CPU", "WARP_DEV": "CPU"}

def probe():
    with open("probe.stdin", "rb") as file:
        subprocess.run(PROBE, stdin=file, stdout=subprocess.PIPE, check=True)

def step(): pass

def task_preflight():
    yield {"name": "local", "actions": [probe], "uptodate": [False]}

def row(stage, after, inputs, targets, uptodate=()):
    for name, at in FILES.items():
        yield {"name": name, "actions": [step], "task_dep": [f"{after}:{name}" if after else "preflight:local"],
               "file_dep": [at[k] for k in inputs], "targets": [at[k] for k in targets],
               "uptodate": list(uptodate)}

def task_source(): yield from row("source", None, ["onnx"], ["blob"])
def task_upload(): yield from row("upload", "source", ["blob"], ["uploaded"])
def task_compile(): yield from row("compile", "upload", ["uploaded"], ["compiled"], [config_changed(FLAGS)])
def task_pull(): yield from row("pull", "compile", ["compiled"], ["artifact", "digest"])
def task_verify(): yield from row("verify", "pull", ["artifact"], ["verdict"])
def task_install(): yield from row("install", "verify", ["artifact", "digest"], ["active"])

def task_model():
    for name in FILES:
        yield {"basename": name, "actions": None, "task_dep": [f"install:{name}"]}
"""

SCONSTRUCT = """
import json, subprocess
FILES = json.load(open("files.json"))
with open("probe.stdin", "rb") as file:
    subprocess.run(json.load(open("probe.json")), stdin=file, stdout=subprocess.PIPE, check=True)
env = Environment()
Decider("content")
SConsignFile("scons.db")
for name, at in FILES.items():
    for inputs, targets in ((["onnx"], ["blob"]), (["blob"], ["uploaded"]), (["uploaded"], ["compiled"]),
                            (["compiled"], ["artifact", "digest"]), (["artifact"], ["verdict"]),
                            (["artifact", "digest"], ["active"])):
        node = env.Command([at[k] for k in targets], [at[k] for k in inputs], lambda target, source, env: None)
        env.Precious(node)
        env.NoClean(node)
"""
