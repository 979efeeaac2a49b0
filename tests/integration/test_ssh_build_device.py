"""What a build minds on a comma device: flags, backups, space, rails, and which device of several (issue 4)."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.devices.comma import comma_device
from tests.devices.layout import FLAGS, write_sconscript
from tests.devices.network import link
from tests.devices.server import SSHD_MARKS
from tests.support.projects import variant
from tests.support.ssh_projects import ACTIVE, REMOTE_OUTPUT, STATE, SshProject, put_stand_in, ssh_project
from tests.support.ssh_said import fresh

pytestmark = SSHD_MARKS
ONE = "driving_supercombo_one.pkl"
BACKUPS = f"{STATE}/backups"


@pytest.fixture(scope="module")
def one_desk(
    tmp_path_factory: pytest.TempPathFactory, sample_artifact: Path, sample_onnx: Path
) -> Iterator[SshProject]:
    with ssh_project(tmp_path_factory.mktemp("device"), sample_artifact, sample_onnx) as project:
        yield project


@pytest.fixture
def desk(one_desk: SshProject) -> Iterator[SshProject]:
    """A project that has done nothing yet; its settings are put back afterwards."""
    with fresh(one_desk) as project:
        yield project
    write_sconscript(one_desk.comma.root, plain=FLAGS, fused=FLAGS)


def another_onnx(desk: SshProject, number: int) -> bytes:
    """The model gets other weights; gives the artifact that was active until now."""
    before = desk.there(ACTIVE).read_bytes() if desk.there(ACTIVE).exists() else b""
    path = desk.root / "one.onnx"
    path.write_bytes(variant(path.read_bytes(), number))
    return before


# SConscript and flags.


def test_a_flag_that_one_of_two_functions_lacks_stops_the_compile_and_sync_mends_it(desk: SshProject) -> None:
    write_sconscript(desk.comma.root, plain=FLAGS, fused=FLAGS[:-1])
    desk.set(profile="qcom")
    run = desk.doit()
    assert run.status == 1
    place = "desk:/data/openpilot/iqpilot/selfdrive/iqmodeld/SConscript"
    assert f"one compile failed\n  what  {place}: SConscript: _fused_flags lacks OPENPILOT_HACKS=1\n" in run.out
    assert "  why   guide section 1\n  try   set devices.desk.sync_sconscript to the workstation's file" in run.out
    assert desk.calls() == []
    doctor = desk.doit("doctor", "desk")
    assert "  BAD   SConscript: _fused_flags lacks OPENPILOT_HACKS=1\n        try: set devices.desk.sync" in doctor.out

    mine = write_sconscript(desk.root / "mine", plain=FLAGS, fused=FLAGS)
    desk.set(sync_sconscript=str(mine.relative_to(desk.root)))
    asked = desk.commands
    run = desk.doit()
    there = desk.there("data/openpilot/iqpilot/selfdrive/iqmodeld/SConscript")
    assert there.read_bytes() == mine.read_bytes()
    assert "desk        preflight  SConscript copied from mine/" in run.out
    assert desk.calls() == [ONE]
    # The stand-in's artifact is made for the CPU: a device for QCOM does not get it.
    assert run.status == 1
    assert "one verify failed" in run.out
    assert not desk.there(ACTIVE).exists()
    assert desk.commands > asked
    for number, words in enumerate((("preflight",), ("doctor", "desk"))):
        mine.write_text(f"{mine.read_text()}# {number}\n")
        asked = desk.commands
        assert "SConscript copied from mine/" in desk.doit(*words).out
        assert desk.commands - asked <= 3, "round trips of a look that also copies"
        assert there.read_bytes() == mine.read_bytes()


def test_a_qcom_compile_that_departs_from_the_guide_is_told(desk: SshProject) -> None:
    write_sconscript(desk.comma.root, plain=(), fused=())
    desk.models["one"]["flags"] = {"OPENPILOT_HACKS": None, "IMAGE": 1}
    desk.set(profile="qcom")
    lines = (desk.root / "models.yaml").read_text().splitlines()
    hacks, image = (next(n for n, line in enumerate(lines, 1) if flag in line) for flag in ("OPENPILOT_HACKS", "IMAGE"))
    run = desk.doit()
    assert (
        f"IMAGE=1 (models.yaml:{image}) instead of IMAGE=2, without OPENPILOT_HACKS (models.yaml:{hacks}) instead of "
        "OPENPILOT_HACKS=1: other flags than the guide's; such an artifact may look valid and freeze onroad"
    ) in run.out
    assert "desk: no flags for larch64 are found in SConscript: compare it with the profile by hand" in run.out
    assert "   1   -   SConscript contains the current QCOM flags: not compared" in desk.doit("report").ok().out


def test_a_sample_compiles_on_a_device_and_is_not_installed_there(desk: SshProject) -> None:
    desk.models = {}
    desk.add("one", {"kind": "sample", "seed": 1})
    run = desk.doit()
    assert run.status == 1
    assert "one install failed\n  what  desk: one was made from a sample and installs on `local` only" in run.out
    assert not desk.there(ACTIVE).exists()


def test_what_was_built_for_the_cpu_is_not_installed_where_the_device_does_not_ask_for_it(desk: SshProject) -> None:
    del desk.settings["profile"]
    desk.declare()
    run = desk.doit()
    assert run.status == 1
    assert "one was built for the CPU, and desk does not say that it has no other" in run.out
    assert not desk.there(ACTIVE).exists()
    assert not list((desk.root / ".build/receipts").glob("install/*"))
    # The twin: a device that says so.
    desk.set(profile="cpu")
    desk.doit().ok()
    assert desk.there(ACTIVE).exists()


def test_what_was_built_for_another_backend_than_the_devices_is_not_installed(desk: SshProject) -> None:
    desk.doit("verify").ok()
    # The model says one thing and the profile of its device another.
    desk.head = {"profiles": {"gpu": {"expected_device": "AMD", "flags": {"DEV": "CPU"}}}}
    desk.models["one"] |= {"profile": "gpu", "expected_device": "CPU"}
    desk.set(profile="gpu")
    run = desk.doit()
    assert run.status == 1
    assert "one was built for CPU: expected AMD, got CPU" in run.out
    assert not desk.there(ACTIVE).exists()


def test_a_flag_that_the_devices_tinygrad_does_not_know_is_a_warning_or_with_strict_flags_an_error(
    desk: SshProject,
) -> None:
    desk.models["one"]["flags"] = {"NOLOCALS": 1, "FROBNICATE": 1}
    desk.declare()
    run = desk.doit().ok()
    ignored = "FROBNICATE is ignored: the device's tinygrad does not know it"
    told = [line for line in run.out.splitlines() if " warning  " in line]
    assert [line.partition(": ")[2] for line in told] == [ignored]
    assert told[0].startswith("one         warning    models.yaml:")
    desk.models["one"].update(flags={"NOLOCALS": 1, "FROBNICATE": 2}, strict_flags=True)
    desk.declare()
    run = desk.doit()
    assert run.status == 1
    assert "the device's tinygrad does not know FROBNICATE: it would be ignored without a word" in run.out
    assert desk.calls() == [ONE]


# Installing, going back, cleaning up.


def test_a_reflashed_device_gets_its_files_again_and_compiles_nothing(desk: SshProject) -> None:
    desk.doit().ok()
    data = desk.there("data")
    for path in ("media/0", "supercombo-build", "root-home", "root-cache", "root-uv-cache", "root-tmp"):
        shutil.rmtree(data / path)
    (data / "media/0/models").mkdir(parents=True)
    boot = desk.there("proc/sys/kernel/random/boot_id")
    boot.parent.mkdir(parents=True, exist_ok=True)
    boot.write_text("after the flashing")
    try:
        out = desk.doit().ok().out
        assert re.findall(r"^one +(\w+) ", out, re.MULTILINE) == ["upload", "install"]
        assert desk.calls() == [ONE]
        desk.assert_right()
        assert desk.doit().ok().text == "1 model up to date.\n"
    finally:
        boot.unlink()


def test_backups_are_kept_and_rollback_puts_the_newest_that_verifies_back(desk: SshProject) -> None:
    desk.set(keep_backups=2)
    actives = []
    for number in range(4):
        actives.append(another_onnx(desk, number + 10))
        desk.doit().ok()
    backups = sorted(desk.there(BACKUPS).glob(f"{ONE}.bak.*"))
    assert [path.read_bytes() for path in backups] == actives[2:], "as many as are wanted, the newest"
    # The newest one is damaged: the one before it is put back.
    backups[1].write_bytes(b"damaged")
    said = desk.doit("rollback", "one").ok().out
    assert f"one: /{ACTIVE} is " in said
    assert f"again, from {backups[0].name}" in said
    assert desk.there(ACTIVE).read_bytes() == actives[2]
    again = desk.doit("rollback", "one")
    assert again.status == 1
    assert "no backup verifies" in again.err
    assert desk.there(ACTIVE).read_bytes() == actives[2]
    # The next build installs what models.yaml says.
    out = desk.doit().ok().out
    assert re.findall(r"^one +(\w+) ", out, re.MULTILINE) == ["install"]
    desk.assert_right()


def test_rollback_leaves_a_device_alone_that_is_onroad(desk: SshProject) -> None:
    desk.doit().ok()
    another_onnx(desk, 20)
    desk.doit().ok()
    active = desk.there(ACTIVE).read_bytes()
    desk.comma.set_param("IsOnroad", "1")
    run = desk.doit("rollback", "one")
    assert run.status == 1
    assert "the device is onroad" in run.err
    assert desk.there(ACTIVE).read_bytes() == active


def test_gc_removes_from_a_device_only_what_the_build_put_there_and_no_model_needs(desk: SshProject) -> None:
    (desk.root / "two.onnx").write_bytes(variant((desk.root / "one.onnx").read_bytes(), 30))
    desk.add("two", "two.onnx")
    desk.doit().ok()
    assert desk.doit("gc", "--device", "desk").ok().out == "Nothing to collect on desk.\n"
    mine = desk.there("data/media/0/holiday.jpg")
    mine.write_bytes(b"not the build's")
    del desk.models["two"]
    desk.declare()
    listed = desk.doit("gc", "--device", "desk").ok().out
    assert "file sent there  /data/media/0/driving_supercombo_two_source.onnx" in listed
    assert "ended job" in listed
    assert listed.splitlines()[-1].endswith("places. `doit gc --device desk --yes` removes them.")
    assert "driving_supercombo_one" not in listed
    assert desk.there("data/media/0/driving_supercombo_two_source.onnx").exists()
    assert "removed from desk." in desk.doit("gc", "--device", "desk", "--yes").ok().out
    assert not desk.there("data/media/0/driving_supercombo_two_source.onnx").exists()
    assert mine.exists()
    assert desk.doit("gc", "--device", "desk").ok().out == "Nothing to collect on desk.\n"
    assert desk.doit().ok().text == "1 model up to date.\n"
    unknown = desk.doit("gc", "--device", "dusk")
    assert unknown.status == 3
    assert "no device is called 'dusk'" in unknown.err


def test_two_models_of_one_artifact_name_are_refused_where_they_would_replace_each_other(desk: SshProject) -> None:
    (desk.root / "two.onnx").write_bytes(variant((desk.root / "one.onnx").read_bytes(), 30))
    desk.add("two", "two.onnx", artifact=ONE, folder="another folder")
    run = desk.doit()
    assert run.status == 1
    assert f"one and two are both {ONE}, and a device holds one file of a name" in run.out
    assert "compile failed" in run.out, "before the minutes that a compile takes"
    assert not desk.there(REMOTE_OUTPUT).exists()
    assert not desk.there(ACTIVE).exists()


# Several devices.


def test_devices_that_fit_and_differ_in_toolchain_are_an_error_unless_one_is_pinned(
    desk: SshProject, tmp_path: Path, sample_artifact: Path
) -> None:
    with comma_device(tmp_path, name="lab") as lab:
        put_stand_in(lab.root, sample_artifact)
        device = lab.catalog_device
        desk.set(tags=["c3x"])
        desk.more_devices = {
            "lab": {
                **desk.settings,
                "port": device.port,
                "identity": device.identity,
                "known_hosts": device.known_hosts,
                "paths": {"root": device.paths.root},
                "tags": ["c3x", "spare"],
            }
        }
        desk.models["one"]["tags"] = ["c3x"]
        desk.head = {"defaults": {"profile": "cpu"}}
        desk.declare()
        package = lab.root / "data/openpilot/tinygrad_repo/tinygrad/__init__.py"
        kept = package.read_text()
        package.write_text(kept + "# another\n")
        run = desk.doit()
        assert run.status == 1
        assert (
            "one compile failed\n  what  desk and lab both fit one, and differ in toolchain: got tinygrad: " in run.out
        )
        assert "  try   pin one: models.one.device in models.yaml, or doit device=desk" in run.out
        assert desk.calls() == []
        desk.doit("device=desk").ok()
        assert desk.calls() == [ONE]
        package.write_text(kept)
        assert desk.doit().ok().out.endswith("1 model up to date.\n")
        # A tag that only the other one has.
        desk.models["one"]["tags"] = ["spare"]
        desk.declare()
        desk.doit().ok()
        assert (lab.root / ACTIVE).exists()


def test_two_devices_build_at_the_same_time_each_its_own_models(
    desk: SshProject, tmp_path: Path, sample_artifact: Path
) -> None:
    with comma_device(tmp_path, name="lab") as lab:
        put_stand_in(lab.root, sample_artifact)
        device = lab.catalog_device
        own = {"port": device.port, "identity": device.identity, "known_hosts": device.known_hosts}
        desk.more_devices = {"lab": {**desk.settings, **own, "paths": {"root": device.paths.root}}}
        homes = {"one": desk.comma.root, "two": lab.root, "three": desk.comma.root, "four": lab.root}
        for number, name in enumerate(("two", "three", "four")):
            content = variant((desk.root / "one.onnx").read_bytes(), 40 + number)
            (desk.root / f"{name}.onnx").write_bytes(content)
            desk.add(name, f"{name}.onnx", device="lab" if homes[name] is lab.root else "desk")
        desk.doit("-n", "2").ok()
        for name, home in homes.items():
            there = sorted((home / ACTIVE).parent.glob(f"driving_supercombo_{name}.pkl"))
            assert [path.read_bytes() for path in there] == [desk.artifact(name).read_bytes()]
        assert len({desk.artifact(name).read_bytes() for name in homes}) == len(homes)
        assert len(desk.calls()) == 2


# What is shown.


def test_a_terminal_shows_transfers_and_the_compile_as_they_go_and_plain_output_only_what_was_done(
    desk: SshProject,
) -> None:
    desk.wish("hook", "one", "import time\nfor n in range(5):\n    print('kernel', n, flush=True)\n    time.sleep(0.4)")
    with link(desk.comma.port, rate=2e6) as slow:
        desk.through(slow)
        # A time left is told only with a speed above zero; how high it is on a busy machine is nobody's promise.
        shown = on_a_terminal(desk)
        assert re.search(r"one +upload +\d\.\d of 2\.7 MB, \d+\.\d MB/s, \d+ s left", shown)
        assert re.search(r"one +compile +1 s  kernel \d", shown)
        assert re.search(r"one +pull +\d\.\d of 7\.7 MB, \d+\.\d MB/s, \d+ s left", shown)
        last = shown.rpartition("\r")[2] if not shown.endswith("\n") else shown
        assert last.endswith("1 model built in " + last.rpartition("in ")[2])
        # The next compile is shown against the time that the last one took.
        another_onnx(desk, 50)
        assert re.search(r"one +compile +\d of about \d+ s  kernel \d", on_a_terminal(desk))
        desk.forget()
        plain = desk.doit().ok().out
    assert "\r" not in plain
    assert "left" not in plain
    assert [line.split()[1] for line in plain.splitlines()[:-1]] == [
        "preflight",
        "source",
        "upload",
        "compile",
        "pull",
        "verify",
        "install",
    ]
    desk.set(port=desk.comma.port, known_hosts=str(desk.comma.home / "known_hosts"))
    assert desk.there(REMOTE_OUTPUT).exists()


def on_a_terminal(desk: SshProject) -> str:
    """What a run writes to a terminal of 100 columns, escape characters and all."""
    near, far = pty.openpty()
    process = subprocess.Popen(
        desk.command(),
        cwd=desk.root,
        env={**desk.environ(), "COLUMNS": "100", "TERM": "xterm"},
        stdin=far,
        stdout=far,
        stderr=far,
    )
    os.close(far)
    shown = b""
    while True:
        if not select.select([near], [], [], 100)[0]:
            process.kill()
            break
        try:
            block = os.read(near, 65536)
        except OSError:
            break
        if not block:
            break
        shown += block
    os.close(near)
    assert process.wait() == 0, shown.decode()
    return shown.decode()
