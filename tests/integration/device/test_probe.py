from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from buildlib import errors
from tests.devices.layout import FLAGS, git, write_sconscript
from tests.support.benches import Bench

SCRIPT = "/data/openpilot/iqpilot/selfdrive/iqmodeld/tools/compile_supercombo.py"
SPEC = {"pythonpath": ["/data/openpilot", "/data/openpilot/tinygrad_repo"], "script": {"path": SCRIPT}}


@pytest.fixture
def device(bench: Bench) -> Bench:
    """With a tinygrad of two files as a git checkout, and a compile script that loads one of openpilot's modules."""
    bench.write("/data/openpilot/tinygrad_repo/tinygrad/__init__.py", b"")
    bench.write("/data/openpilot/tinygrad_repo/tinygrad/engine/jit.py", b"a = 1\n")
    repo = bench.path("/data/openpilot/tinygrad_repo")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "one")):
        git(repo, *words)
    bench.write(SCRIPT, b"from openpilot.common import thing\nimport tinygrad\n")
    bench.write("/data/openpilot/openpilot/common/thing.py", b"x = 1\n")
    bench.write("/VERSION", b"15.1\n")
    return bench


def probe(bench: Bench, **more: object) -> dict:
    return bench.link.call("probe", toolchain=SPEC, **more)


def changed(bench: Bench, before: dict) -> set[str]:
    after = probe(bench)["identity"]
    return {name for name in before if before[name] != after[name]}


def test_each_part_of_the_toolchain_moves_its_own_part_of_the_identity(device: Bench):
    identity = probe(device)["identity"]
    assert identity["os"] == "AGNOS 15.1"
    assert identity["python"] == ".".join(map(str, sys.version_info[:3]))
    assert identity["machine"] == platform.machine()
    assert identity["numpy"] == importlib.metadata.version("numpy")
    assert changed(device, identity) == set()
    device.write("/data/openpilot/tinygrad_repo/tinygrad/engine/jit.py", b"a = 2\n")
    assert changed(device, identity) == {"tinygrad"}
    device.write("/data/openpilot/openpilot/common/thing.py", b"x = 2\n")
    assert changed(device, identity) == {"tinygrad", "modules"}
    device.write("/VERSION", b"15.2")
    assert changed(device, identity) == {"tinygrad", "modules", "os"}
    device.write(SCRIPT, b"from openpilot.common import thing\nimport tinygrad # newer\n")
    assert changed(device, identity) == {"tinygrad", "modules", "os", "script"}
    device.write("/data/openpilot/numpy/version.py", b'version = "9.8.7"\n')
    assert changed(device, identity) == {"tinygrad", "modules", "os", "script", "numpy"}
    assert probe(device)["identity"]["numpy"] == "9.8.7"


def test_another_c_compiler_is_another_toolchain_whatever_it_calls_itself(device: Bench):
    def seen(release: str, body: str) -> str:
        device.write("/usr/bin/a clang", f"#!/bin/sh\necho clang version {release}\n{body}\n".encode())
        device.path("/usr/bin/a clang").chmod(0o755)
        spec = {**SPEC, "c_compiler": {"path": str(device.path("/usr/bin/a clang")), "identity": None}}
        return device.link.call("probe", toolchain=spec)["identity"]["c_compiler"]

    first = seen("14", "exit 0")
    assert first.startswith("clang version 14 ")
    assert seen("14", "exit 0") == first
    assert len({first, seen("14", "exit 1"), seen("15", "exit 0")}) == 3


def test_touching_the_toolchain_changes_nothing(device: Bench):
    identity = probe(device)["identity"]
    for path in device.path("/data/openpilot").rglob("*.py"):
        os.utime(path)
    device.write("/data/openpilot/tinygrad_repo/README.md", b"no module")
    assert changed(device, identity) == set()


@pytest.mark.parametrize("bench", ["local"], indirect=True)
def test_the_same_contents_in_another_root_are_the_same_toolchain(device: Bench, tmp_path: Path):
    from tests.support.benches import local_bench

    other = local_bench(tmp_path / "elsewhere")
    subprocess.run(["cp", "-r", device.path("/data/openpilot"), other.path("/data/")], check=True)
    other.write("/VERSION", b"15.1")
    assert probe(other)["identity"] == probe(device)["identity"]


def test_commit_and_dirty_state_are_for_people(device: Bench):
    commit = git(device.path("/data/openpilot/tinygrad_repo"), "rev-parse", "HEAD")
    people = probe(device)["people"]
    assert (people["tinygrad_commit"], people["tinygrad_dirty"]) == (commit, False)
    device.write("/data/openpilot/tinygrad_repo/tinygrad/engine/jit.py", b"a = 2\n")
    people = probe(device)["people"]
    assert (people["tinygrad_commit"], people["tinygrad_dirty"]) == (commit, True)


def test_what_is_missing_is_a_problem_with_a_remedy_and_the_rest_is_told(bench: Bench):
    answer = bench.link.call("probe", toolchain={"pythonpath": ["/data/openpilot"], "script": {"path": SCRIPT}})
    assert answer["identity"]["script"] is None
    assert any(problem["where"] == SCRIPT and "builtin" in problem["remedy"] for problem in answer["problems"])
    assert answer["health"]["onroad"] == "0"


def test_files_of_ours_are_checked_by_content(bench: Bench):
    sha256 = bench.write("/data/media/0/x.onnx", b"abc")
    files = bench.link.call("probe", files=["/data/media/0/x.onnx", "/data/media/0/gone"])["files"]
    assert files == {"/data/media/0/x.onnx": {"size": 3, "sha256": sha256}, "/data/media/0/gone": None}
    path = bench.path("/data/media/0/x.onnx")
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"abd")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = bench.link.call("hash", files=["/data/media/0/x.onnx"])["files"]["/data/media/0/x.onnx"]
    assert again["sha256"] == hashlib.sha256(b"abd").hexdigest()


def test_flags_of_both_functions_of_sconscript_are_told(bench: Bench):
    assert bench.link.call("probe")["flags"] is None
    write_sconscript(bench.root, plain=FLAGS, fused=FLAGS[:-1])
    assert bench.link.call("probe")["flags"] == {"_plain_flags": list(FLAGS), "_fused_flags": list(FLAGS[:-1])}


def test_cache_directories_are_made_and_bad_ones_named(bench: Bench):
    path = bench.path("/data/root-cache")
    path.rmdir()
    assert bench.link.call("probe")["health"]["directories"]["/data/root-cache"] == "ok"
    path.rmdir()
    path.write_text("a file in the way")
    said = bench.link.call("probe")["health"]["directories"]
    assert said["/data/root-cache"] != "ok"
    assert said["/data/root-tmp"] == "ok"


def test_health_says_what_runs_there(bench: Bench):
    bench.param("ModelManager_ActiveBundle", json.dumps({"displayName": "No PP"}))
    bench.start("a", "import time; time.sleep(30)", subject="nopp compile")
    health = bench.link.call("probe", params=["Version"])["health"]
    assert json.loads(health["active_bundle"])["displayName"] == "No PP"
    assert health["params"] == {"Version": None}
    assert [(job["key"], job["state"]) for job in health["jobs"]] == [("a", "running")]
    assert health["lock"]["purpose"].startswith("nopp compile")
    assert health["free"]["models"] > 0


@pytest.mark.parametrize("bench", ["local"], indirect=True)
@pytest.mark.parametrize(
    "name", ["jobs/k/status.json", "jobs/k/job.json", "journal/1.json", "backups/index.json", "uploads.json"]
)
@pytest.mark.parametrize("text", ["{}", "[{}]", '{"/data/x": {}, "child": {}, "steps": 1}', "[1]", "7", "", '{"id":'])
def test_a_state_file_of_another_version_or_damaged_is_no_reason_to_fail(bench: Bench, name: str, text: str):
    state = bench.device.paths.state
    bench.write(f"{state}/{name}", text.encode())
    for operation in ("probe", "job_list", "backups"):
        bench.link.call(operation)
    bench.link.call("gc", dry=False)


def test_an_onroad_device_can_be_looked_at(bench: Bench):
    bench.param("IsOnroad", "1")
    assert bench.link.call("probe")["health"]["onroad"] == "1"
    bench.param("IsOnroad", None)
    assert bench.link.call("probe")["health"]["onroad"] is None


def test_an_unknown_operation_and_a_missing_argument_are_errors_of_ours(bench: Bench):
    with pytest.raises(errors.DeviceError, match="unknown operation"):
        bench.link.call("reboot")
    with pytest.raises(errors.DeviceError, match="agent failed"):
        bench.link.call("hash")
