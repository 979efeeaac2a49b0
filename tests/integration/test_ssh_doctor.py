"""What `doit doctor` and refusals say of a device behind SSH, to people and to programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from buildlib.device.link import DeviceLink
from buildlib.transports.ssh import SshTransport
from tests.devices.layout import FLAGS, write_sconscript
from tests.devices.server import SSHD_MARKS
from tests.support.ssh_projects import SshProject, ssh_project

pytestmark = SSHD_MARKS
SCONSCRIPT = "data/openpilot/iqpilot/selfdrive/iqmodeld/SConscript"


@pytest.fixture
def desk(tmp_path: Path, sample_artifact: Path, sample_onnx: Path) -> Iterator[SshProject]:
    with ssh_project(tmp_path, sample_artifact, sample_onnx) as project:
        yield project


def test_programs_get_json_alone_also_when_the_device_is_new_or_gets_a_file(desk: SshProject) -> None:
    mine = write_sconscript(desk.root / "mine", plain=FLAGS, fused=FLAGS[:-1])
    desk.set(sync_sconscript=str(mine.relative_to(desk.root)))
    run = desk.doit("doctor", "desk", "--json").ok()
    assert {line["level"] for line in json.loads(run.out)["desk"]} <= {"ok", "note"}
    assert "SConscript copied from mine/" in run.err


def test_a_person_reads_each_thing_once(desk: SshProject) -> None:
    out = desk.doit("doctor", "desk").ok().out
    assert out.startswith("desk\n  ok    reached")
    assert out.count("tinygrad") == 1
    assert "of ours there: 0 sources, 0 compiled and 0 installed, 0 ended jobs, 0 backups\n" in out
    desk.doit().ok()
    out = desk.doit("doctor", "desk").ok().out
    assert "of ours there: 1 source, 1 compiled and 1 installed, 1 ended job, 0 backups\n" in out


def test_a_car_that_drives_is_looked_at_and_keeps_its_sconscript(desk: SshProject) -> None:
    mine = write_sconscript(desk.root / "mine", plain=FLAGS, fused=FLAGS)
    mine.write_text(mine.read_text() + "# newer\n")
    desk.comma.set_param("IsOnroad", "1")
    run = desk.doit("doctor", "desk")
    assert run.out.count("BAD") == 1, "the directories of guide section 4 are no fault of a car's that drives"
    assert "not there yet, made once it is offroad: " in run.out
    desk.comma.set_param("IsOnroad", "0")
    assert "directories writable" in desk.doit("doctor", "desk").ok().out
    theirs = desk.there(SCONSCRIPT).read_bytes()
    desk.set(sync_sconscript=str(mine.relative_to(desk.root)))
    desk.comma.set_param("IsOnroad", "1")
    run = desk.doit("doctor", "desk")
    assert run.status == 1
    assert run.out.count("BAD") == 1
    assert "  BAD   onroad: nothing on it is changed\n        try: park the car\n" in run.out
    assert "directories writable" in run.out
    assert "GB free" in run.out
    assert desk.there(SCONSCRIPT).read_bytes() == theirs
    desk.comma.set_param("IsOnroad", "0")
    assert "SConscript copied from mine/" in desk.doit("doctor", "desk").ok().out
    assert desk.there(SCONSCRIPT).read_bytes() == mine.read_bytes()


def test_what_a_test_left_changed_is_put_back_and_told(desk: SshProject) -> None:
    """The workstation that changed it is gone, and its time is over."""
    comma = desk.comma
    desk.doit("preflight").ok()
    comma.set_param("ModelManager_DownloadIndex", "7")
    link = DeviceLink(SshTransport(comma.catalog_device, home=comma.home), comma.catalog_device)
    link.call("params_write", values={"ModelManager_DownloadIndex": "12"}, hold=0)
    link.close()
    assert desk.there("data/params/d/ModelManager_DownloadIndex").read_text() == "12"
    out = desk.doit("doctor", "desk").ok().out
    assert "  note  put back what an unfinished test had changed: parameter ModelManager_DownloadIndex put back" in out
    assert desk.there("data/params/d/ModelManager_DownloadIndex").read_text() == "7"
    assert "  ok    no unfinished work" in desk.doit("doctor", "desk").ok().out


def test_a_python_that_is_not_there_is_not_called_a_password(desk: SshProject) -> None:
    desk.there("usr/local/venv/bin/python").unlink()
    run = desk.doit("doctor", "desk")
    assert run.status == 1
    assert "python cannot be run on the device: expected " in run.out
    assert "check paths.venv or paths.python" in run.out
