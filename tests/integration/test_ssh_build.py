"""`doit` on a device behind a real SSH server: the whole way, and again nothing but one probe (issue 4)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from buildlib.sources.sample import write_sample
from buildlib.toolchain.c_compiler import CCompiler
from tests.devices.server import SSHD_MARKS
from tests.support import faulty
from tests.support.projects import FLAGS, SCRIPT
from tests.support.ssh_projects import ACTIVE, REMOTE_OUTPUT, REMOTE_SOURCE, STATE, SshProject, ssh_project

pytestmark = SSHD_MARKS
STAGES = ["source", "upload", "compile", "pull", "verify", "install", "validate"]


@pytest.fixture
def desk(tmp_path: Path, sample_artifact: Path, sample_onnx: Path) -> Iterator[SshProject]:
    with ssh_project(tmp_path, sample_artifact, sample_onnx) as project:
        yield project


def test_a_build_leaves_everything_at_the_guides_places_and_a_second_one_is_one_probe(desk: SshProject) -> None:
    first = desk.doit().ok()
    for stage in ("upload", "compile", "pull", "verify", "install"):
        assert f"one         {stage}" in first.out
    desk.assert_right()
    assert desk.there(REMOTE_SOURCE).read_bytes() == (desk.root / "one.onnx").read_bytes()
    assert desk.there(REMOTE_OUTPUT).read_bytes() == desk.artifact("one").read_bytes()
    # Guide, section 4: the caches are made, for whoever compiles.
    for name in ("root-home", "root-cache", "root-uv-cache", "root-tmp"):
        assert desk.there(f"data/{name}").is_dir()
    assert desk.there(STATE).stat().st_mode & 0o777 == 0o700
    before, asked = desk.calls(), desk.commands
    assert desk.doit().ok().text == "1 model up to date.\n"
    assert desk.commands == asked + 1
    assert desk.calls() == before == ["driving_supercombo_one.pkl"]


def compiles_for_real(desk: SshProject, c_compiler: CCompiler) -> None:
    """By our own script, validated. A comma device has a clang on its PATH; here it is what compiles for the CPU."""
    desk.there("usr/local/venv/bin/clang").symlink_to(c_compiler.path)
    desk.set(compile_script="builtin", goal="validate")


@pytest.mark.compile
def test_a_real_model_goes_the_whole_way_and_is_validated_where_it_was_made(
    tmp_path: Path, sample_artifact: Path, sample_onnx: Path, c_compiler: CCompiler
) -> None:
    with ssh_project(tmp_path, sample_artifact, sample_onnx) as desk:
        compiles_for_real(desk, c_compiler)
        desk.doit().ok()
        artifact = desk.artifact("one").read_bytes()
        assert desk.there(ACTIVE).read_bytes() == artifact
        assert desk.there(REMOTE_OUTPUT).read_bytes() == artifact
        log = (desk.root / "artifacts/one/compile.log").read_text()
        assert "warp" in log
        states = {name: stage["state"] for name, stage in desk.status()["one"].items()}
        assert [name for name, state in states.items() if state == "fresh"] == STAGES
        # Guide, section 10: our own harness sees no screen either.
        assert "not seen: a frozen UI shows only on the screen" in desk.doit("report", "one").ok().out
        asked = desk.commands
        assert desk.doit().ok().text == "1 model up to date.\n"
        assert desk.commands == asked + 1
        # The cache of kernels lies under the toolchain's own name, in the compiling user's place.
        assert len(list(desk.there("data/root-cache").glob("*/tinygrad/cache.db"))) == 1


@pytest.mark.compile
def test_slower_than_real_time_is_refused_on_the_backend_that_drives_and_told_elsewhere(
    tmp_path: Path, sample_artifact: Path, sample_onnx: Path, c_compiler: CCompiler, cpu_environment: dict[str, str]
) -> None:
    slow = tmp_path / "slow.pkl"
    command = [sys.executable, faulty.__file__, str(sample_artifact), str(slow), "run_policy=Slow"]
    subprocess.run(command, env=cpu_environment, check=True)
    with ssh_project(tmp_path, slow, sample_onnx) as desk:
        compiles_for_real(desk, c_compiler)
        desk.set(compile_script=SCRIPT, validate_seconds=1)
        shutil.copy(faulty.__file__, desk.there("data/openpilot"))
        # Of a processor it says nothing: the car's own backend has to keep up. One that this artifact only claims.
        desk.head = {"profiles": {"gpu": {"expected_device": "AMD", "flags": dict(FLAGS)}}}
        for profile, late in (("cpu", " late"), ("gpu", "slower than real time on camera ")):
            desk.set(profile=profile)
            desk.models["one"]["profile"] = profile
            desk.declare()
            desk.doit("compile").ok()
            # What verify refuses of an artifact that is pickled with a fault, a device may have got another way.
            shutil.copy(desk.there(REMOTE_OUTPUT), desk.there(ACTIVE))
            run = desk.doit("-s", "validate:one")
            assert late in run.text, run.text
            assert run.status == (0 if profile == "cpu" else 1)
        assert "expected 99% of frames within 50 ms" in run.text
        assert not desk.there(ACTIVE).exists(), "what is refused does not stay"


@pytest.mark.compile
@pytest.mark.slow
@pytest.mark.parametrize(
    "artifacts", [{"artifact": "multi.pkl"}, {"artifacts": {"vision": "v.pkl", "policy": "p.pkl"}}]
)
def test_a_split_model_goes_the_whole_way_in_one_artifact_or_in_parts(
    tmp_path: Path, sample_artifact: Path, sample_onnx: Path, c_compiler: CCompiler, artifacts: dict[str, Any]
) -> None:
    with ssh_project(tmp_path, sample_artifact, sample_onnx) as desk:
        compiles_for_real(desk, c_compiler)
        for role in ("vision", "policy"):
            write_sample(desk.root / f"{role}.onnx", 1, 32, role)
        desk.models = {
            "two": {
                "display_name": "Two parts",
                "kind": "vision_policy",
                "sources": {"vision": "vision.onnx", "policy": "policy.onnx"},
                **artifacts,
            }
        }
        desk.declare()
        desk.doit().ok()
        for name in artifacts.get("artifacts", {"combined": "multi.pkl"}).values():
            made = (desk.root / "artifacts/two" / name).read_bytes()
            assert desk.there(f"data/media/0/models/{name}").read_bytes() == made
        states = {name: stage["state"] for name, stage in desk.status()["two"].items()}
        assert [name for name, state in states.items() if state == "fresh"] == STAGES
        asked = desk.commands
        assert desk.doit().ok().text == "1 model up to date.\n"
        assert desk.commands == asked + 1
