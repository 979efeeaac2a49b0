"""A cut link, a dead workstation, a second one: the device's job is done once and what arrived stays (issue 4)."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.devices.network import Link, link
from tests.devices.server import SSHD_MARKS
from tests.support.projects import end, hear, until, variant
from tests.support.ssh_projects import REMOTE_OUTPUT, SshProject, end_jobs, processes_in, ssh_project

pytestmark = SSHD_MARKS
ONE = "driving_supercombo_one.pkl"
UP_TO_DATE = "1 model up to date.\n"
PROBE = 40_000
"""Bytes that a probe costs at most, about: the agent's sources and its answer."""


@pytest.fixture(scope="module")
def one_desk(
    tmp_path_factory: pytest.TempPathFactory, sample_artifact: Path, sample_onnx: Path
) -> Iterator[tuple[SshProject, Link]]:
    folder = tmp_path_factory.mktemp("cuts")
    with (
        ssh_project(folder, sample_artifact, sample_onnx) as project,
        link(project.comma.port) as proxy,
    ):
        project.through(proxy)
        yield project, proxy


@pytest.fixture
def desk(one_desk: tuple[SshProject, Link]) -> SshProject:
    """A project that has done nothing yet."""
    project, proxy = one_desk
    proxy.cut_after = None
    project.forget()
    return project


@pytest.fixture
def proxy(one_desk: tuple[SshProject, Link]) -> Link:
    """The way to the device of `desk`."""
    return one_desk[1]


BEFORE = {"upload": "source", "compile": "upload", "running": "upload", "pull": "compile", "install": "verify"}
"""Where a test cuts, and how far the build had come before. `running` is in the middle of the compile itself."""


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(n, marks=pytest.mark.slow) for n in range(5, 30))])
def test_a_connection_that_is_cut_anywhere_costs_no_second_compile(desk: SshProject, proxy: Link, seed: int) -> None:
    chance = random.Random(seed)
    stage = tuple(BEFORE)[seed % len(BEFORE)]
    size = {"upload": desk.root / "one.onnx", "pull": desk.control() / "artifact"}
    desk.doit(BEFORE[stage]).ok()
    cuts = proxy.cuts
    if BEFORE[stage] == "upload":
        desk.wish("sleep", "one", "1.2")
    if stage != "running":
        proxy.cut_in(chance.randrange(1000, size[stage].stat().st_size if stage in size else 3 * PROBE))
    run = desk.start()
    if stage == "running":
        until(desk.calls)
        time.sleep(chance.random())
        desk.comma.server.kill_connections()
    status, text = finish(run)
    assert stage == "running" or proxy.cuts == cuts + 1, "the cut came"
    if status != 0:
        # Cut in the probe: nothing is known of the device in this run.
        assert "  try   " in text
        desk.doit().ok()
    desk.assert_right()
    assert desk.calls() == [ONE]
    assert desk.doit().ok().text == UP_TO_DATE
    assert not list(desk.there("data/media/0").glob(".*.part*")), "no parts stay on the device"
    assert not list((desk.root / ".build/incoming").glob("*")), "and none here"


def test_after_the_workstation_was_killed_the_next_build_takes_the_compile_up_and_reads_on(
    desk: SshProject, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    talk = f"""
import os, time
number = 0
while not os.path.exists({str(go)!r}):
    print("line", number, flush=True)
    number += 1
    time.sleep(0.1)
"""
    desk.wish("hook", "one", talk)
    first = desk.start()
    kept = until(lambda: [p for p in (desk.root / ".build/incoming").glob("*.log.part") if p.stat().st_size > 60])
    first.kill()
    first.communicate()
    heard = kept[0].read_bytes()
    assert heard.startswith(b"line 0\n")

    other = desk.second_checkout(tmp_path)
    (other.root / "one.onnx").write_bytes(variant((desk.root / "one.onnx").read_bytes(), 9))
    refused = other.doit()
    assert refused.status == 1
    place = "/data/media/0/driving_supercombo_one_source.onnx"
    busy = "another job works on this device, with another file in this place"
    assert f"one upload failed\n  what  desk:{place}: {busy}: got " in refused.out
    assert f"{desk.root}, compile one, since " in refused.out, "it says which checkout holds the device"
    assert "  try   wait for it" in refused.out

    # Another model of another checkout has places of its own, and waits for the device all the same.
    (other.root / "two.onnx").write_bytes(variant((desk.root / "one.onnx").read_bytes(), 8))
    other.add("two", "two.onnx")
    refused = other.doit("two")
    assert "two compile failed\n  what  desk: another job works on this device: got " in refused.out
    assert f"{desk.root}, compile one (" in refused.out

    again = desk.start()
    until(lambda: kept[0].stat().st_size > len(heard))
    go.touch()
    status, text = finish(again)
    assert status == 0, text
    assert "one         compile    takes up the compile that runs there already" in text
    assert desk.calls() == [ONE]
    desk.assert_right()
    log = (desk.root / "artifacts/one/compile.log").read_bytes()
    assert log.startswith(heard)
    lines = [line for line in log.decode().splitlines() if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(len(lines))]
    # The device is free again.
    other.doit().ok()
    assert desk.calls() == [ONE, ONE, ONE.replace("one", "two")]


def test_a_second_checkout_of_the_same_model_follows_the_same_compile(desk: SshProject, tmp_path: Path) -> None:
    held = desk.hold("one")
    first = desk.start()
    until(held.exists)
    other = desk.second_checkout(tmp_path)
    second = other.start()
    hear(second, "one         compile    takes up the compile that runs there already\n")
    held.unlink()
    assert finish(first)[0] == 0
    assert finish(second)[0] == 0
    assert desk.calls() == [ONE]
    assert other.artifact("one").read_bytes() == desk.artifact("one").read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_build_that_is_asked_to_stop_ends_the_compile_and_its_children(desk: SshProject, number: int) -> None:
    desk.wish("hook", "one", "import subprocess, sys; subprocess.run(['sleep', '600'])")
    run = desk.start()
    until(desk.calls)
    run.send_signal(number)
    status, text = finish(run)
    assert status == {signal.SIGINT: 130, signal.SIGTERM: 143}[signal.Signals(number)], text
    assert not processes_in(desk.comma.root)
    assert not desk.there(REMOTE_OUTPUT).exists()


def test_a_device_that_was_started_anew_in_mid_compile_compiles_again(desk: SshProject) -> None:
    desk.wish("sleep", "one", "600")
    run = desk.start()
    until(desk.calls)
    run.kill()
    run.communicate()
    end_jobs(desk.comma.root)
    boot = desk.there("proc/sys/kernel/random/boot_id")
    boot.parent.mkdir(parents=True, exist_ok=True)
    boot.write_text("another boot")
    (desk.control() / f"sleep-{ONE}").unlink()
    try:
        desk.doit().ok()
        desk.assert_right()
        assert desk.calls() == [ONE, ONE]
    finally:
        boot.unlink()


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """A run's status and all that it said."""
    try:
        out, err = process.communicate(timeout=200)
    finally:
        end(process)
    assert "Traceback" not in out + err, out + err
    return process.returncode, out + err
