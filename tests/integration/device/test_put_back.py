"""What was changed for a test is put back by the device, whoever died meanwhile."""

from __future__ import annotations

import json
import os
import signal

import pytest

from buildlib import errors
from tests.support.benches import Bench, until

INDEX = "ModelManager_DownloadIndex"
SYS = "/sys/devices/system/cpu"
GOVERNOR = f"{SYS}/cpufreq/policy0/scaling_governor"
SLEEP = "import time\nprint('begun')\ntime.sleep(60)"


@pytest.fixture
def phone(bench: Bench) -> Bench:
    """With big cores that sleep, as the hardware daemon leaves them offroad."""
    for core in range(4, 8):
        bench.write(f"{SYS}/cpu{core}/online", b"0")
    bench.write(GOVERNOR, b"ondemand")
    return bench


def cores(bench: Bench) -> str:
    return "".join(bench.path(f"{SYS}/cpu{core}/online").read_text() for core in range(4, 8))


def begun(bench: Bench, key: str) -> None:
    log = bench.path(f"/data/supercombo-build/jobs/{key}/log")
    until(lambda: log.exists() and "begun" in log.read_text())


def param(bench: Bench, key: str) -> str | None:
    return bench.link.call("params_read", keys=[key])["values"][key]


def test_power_saving_is_off_during_a_job_and_as_before_after_it(phone: Bench):
    assert phone.link.call("probe")["health"]["power_saving"] is True
    phone.start("a", SLEEP, power=True)
    begun(phone, "a")
    assert cores(phone) == "1111"
    assert phone.path(GOVERNOR).read_text() == "performance"
    phone.link.call("job_cancel", key="a")
    assert cores(phone) == "0000"
    assert phone.path(GOVERNOR).read_text() == "ondemand"
    assert phone.link.call("probe")["health"]["journals"] == []


def test_a_job_that_ends_well_puts_power_saving_back_before_it_says_so(phone: Bench):
    phone.start("a", "pass", power=True)
    assert phone.link.follow("a")["state"] == "ok"
    assert cores(phone) == "0000"


def test_after_an_ignition_power_saving_is_the_cars(phone: Bench):
    phone.start("a", SLEEP, power=True)
    begun(phone, "a")
    phone.param("IsOnroad", "1")
    assert phone.link.follow("a")["state"] == "onroad"
    assert cores(phone) == "1111"
    phone.param("IsOnroad", "0")
    phone.link.call("probe")
    assert cores(phone) == "1111"


def test_a_killed_runners_changes_are_undone_by_the_next_probe(phone: Bench):
    phone.param(INDEX, "7")
    phone.start("a", SLEEP, power=True, params={INDEX: "12", "ModelManager_LastSyncTime": "0"})
    begun(phone, "a")
    assert param(phone, INDEX) == "12"
    about = json.loads(phone.path("/data/supercombo-build/jobs/a/job.json").read_text())
    os.kill(about["pid"], signal.SIGKILL)
    os.kill(about["child"]["pid"], signal.SIGKILL)
    undone = phone.link.call("probe")["health"]["undone"]
    assert any(INDEX in text for text in undone)
    assert param(phone, INDEX) == "7"
    assert param(phone, "ModelManager_LastSyncTime") is None
    assert cores(phone) == "0000"


def test_after_a_power_cut_parameters_are_put_back_and_power_saving_is_the_new_boots(phone: Bench):
    phone.write("/proc/sys/kernel/random/boot_id", b"one")
    phone.param(INDEX, "7")
    phone.start("a", SLEEP, power=True, params={INDEX: "12"})
    begun(phone, "a")
    about = json.loads(phone.path("/data/supercombo-build/jobs/a/job.json").read_text())
    os.kill(about["pid"], signal.SIGKILL)
    os.kill(about["child"]["pid"], signal.SIGKILL)
    phone.write("/proc/sys/kernel/random/boot_id", b"two")
    phone.link.call("probe")
    assert param(phone, INDEX) == "7"
    assert cores(phone) == "1111"


def test_while_onroad_the_journal_waits(phone: Bench):
    phone.param(INDEX, "7")
    phone.link.call("params_write", values={INDEX: "12"}, hold=0)
    phone.param("IsOnroad", "1")
    health = phone.link.call("probe")["health"]
    assert health["pending"]
    assert param(phone, INDEX) == "12"
    phone.param("IsOnroad", "0")
    phone.link.call("probe")
    assert param(phone, INDEX) == "7"


def test_a_held_change_stays_for_its_time_and_can_be_ended_at_once(bench: Bench):
    journal = bench.link.call("params_write", values={INDEX: "12"}, hold=600)["journal"]
    bench.link.call("probe")
    assert param(bench, INDEX) == "12"
    bench.link.call("recover", undo=[journal])
    assert param(bench, INDEX) is None


def test_a_running_jobs_journal_is_left_alone(bench: Bench):
    bench.start("a", SLEEP, params={INDEX: "12"})
    begun(bench, "a")
    assert bench.link.call("probe")["health"]["undone"] == []
    assert param(bench, INDEX) == "12"


@pytest.mark.parametrize("key", ["IsOnroad", "OffroadMode", "ModelManager_ClearCache", "../d/IsOnroad", "Anything"])
def test_no_other_parameter_is_written(bench: Bench, key: str):
    with pytest.raises(errors.RailRefused):
        bench.link.call("params_write", values={key: "1"})
    bench.start("a", "pass", params={key: "1"})
    assert bench.link.follow("a")["state"] != "ok"
    assert bench.path("/data/params/d/IsOnroad").read_text() == "0"


def test_parameters_are_not_written_onroad(bench: Bench):
    bench.param("IsOnroad", "1")
    with pytest.raises(errors.RailRefused):
        bench.link.call("params_write", values={INDEX: "1"})
    assert not (bench.path("/data/params/d") / INDEX).exists()
