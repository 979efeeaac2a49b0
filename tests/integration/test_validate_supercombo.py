"""The harness on the real sample, by itself and as a job of the agent."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from buildlib.core.verdicts.validation import Asked, judge_run
from tests.support.benches import Bench, local_bench, until
from tests.support.scripts import lay_script

pytestmark = pytest.mark.compile

MODEL = "/data/media/0/models/m.pkl"
SCRIPT = "/data/supercombo-build/scripts/validate_supercombo.py"
REPORT = "/data/supercombo-build/report.json"
CAMERAS = ((1344, 760), (1928, 1208))


def test_the_sample_drives_both_cameras_in_its_own_frames(
    sample_artifact: Path, cpu_environment: dict[str, str], tmp_path: Path
) -> None:
    """As a device gets it: its own files, in a directory with a space."""
    script, report = lay_script("validate_supercombo", tmp_path / "some where"), tmp_path / "some where" / "r.json"
    there = sorted(script.parent.rglob("*"))
    digest = hashlib.sha256(sample_artifact.read_bytes()).hexdigest()
    command = [sys.executable, str(script), str(sample_artifact), "--seconds=3", "--report", str(report)]
    command += ["--sha256", digest.upper(), "--cameras", "1344x760", "1928x1208", "--frame-skip=4"]
    done = subprocess.run(command, env=cpu_environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    status = {"state": "ok", "exit": 0, "report": json.loads(report.read_text())}
    validation = judge_run(status, Asked(sha256=digest, frames=60, cameras=CAMERAS, realtime=False))
    assert validation.good, validation.findings
    assert {name: times["frames"] for name, times in validation.numbers["cameras"].items()} == {
        "1344x760": 30,
        "1928x1208": 30,
    }
    assert validation.numbers["backend"] == "CPU"
    assert validation.numbers["memory"]["device"] is not None
    assert sorted(script.parent.rglob("*")) == sorted([*there, report])
    size = sample_artifact.stat().st_size
    assert validation.proof["before"] == validation.proof["after"]
    assert validation.proof["before"]["size"] == size


@pytest.fixture
def bench(tmp_path: Path, sample_artifact: Path, cpu_environment: dict[str, str]) -> Iterator[Bench]:
    """A device with the artifact installed and the harness sent."""
    bench = local_bench(tmp_path)
    bench.path(MODEL).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(sample_artifact, bench.path(MODEL))
    lay_script("validate_supercombo", bench.path(SCRIPT).parent)
    yield bench
    bench.link.call("job_cancel", key="v")


def start(bench: Bench, environment: dict[str, str], *options: str, **more: Any) -> str:
    """Starts the harness as a job; returns the artifact's sha256."""
    digest = hashlib.sha256(bench.path(MODEL).read_bytes()).hexdigest()
    argv = [sys.executable, bench.link.real(SCRIPT), bench.link.real(MODEL), "--report", bench.link.real(REPORT)]
    argv += ["--sha256", digest, *options]
    inputs = [{"path": MODEL, "sha256": digest}]
    bench.link.call("job_start", key="v", argv=argv, env=environment, inputs=inputs, report=REPORT, **more)
    return digest


def test_a_job_of_the_agent_brings_the_verdict_home(bench: Bench, cpu_environment: dict[str, str]) -> None:
    digest = start(bench, cpu_environment, "--frames=40")
    log: list[bytes] = []
    status = bench.link.follow("v", on_log=lambda _, data: log.append(data))
    validation = judge_run(status, Asked(sha256=digest, frames=40, cameras=CAMERAS, realtime=False))
    assert validation.good, (validation.findings, b"".join(log))
    assert b"40 frames, median" in b"".join(log)


@pytest.mark.parametrize("end", ["onroad", "timeout"])
def test_a_job_that_is_ended_in_the_drive_says_what_it_had_seen(
    bench: Bench, cpu_environment: dict[str, str], end: str
) -> None:
    more = {"timeout": 8} if end == "timeout" else {}
    digest = start(bench, cpu_environment, "--seconds=600", **more)
    if end == "onroad":
        log = bench.path("/data/supercombo-build/jobs/v/log")
        until(lambda: log.exists() and b"frames to go" in log.read_bytes(), 60)
        bench.param("IsOnroad", "1")
    status = bench.link.follow("v")
    bench.param("IsOnroad", "0")
    assert status["state"] == end
    assert status["report"]["verdict"] == "stopped"
    validation = judge_run(status, Asked(sha256=digest, frames=12000, cameras=CAMERAS, realtime=False))
    assert validation.verdict == {"onroad": "unknown", "timeout": "refused"}[end]
    assert bench.pids(bench.link.real(SCRIPT)) == []
