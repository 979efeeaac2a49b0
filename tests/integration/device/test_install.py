from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from buildlib import errors
from tests.support.benches import Bench, until

SOURCE = "/data/media/0/models/m.recompiled.pkl"
ACTIVE = "/data/media/0/models/m.pkl"


def install(bench: Bench, data: bytes, **more: object) -> dict:
    sha256 = bench.write(SOURCE, data)
    return bench.link.call("install", source=SOURCE, name="m.pkl", sha256=sha256, **more)


def test_the_former_file_is_backed_up_and_the_new_one_reads_back(bench: Bench):
    bench.write(ACTIVE, b"old")
    os.chmod(bench.path(ACTIVE), 0o640)
    os.chown(bench.path(ACTIVE), os.getuid(), os.getgid())
    receipt = install(bench, b"new")
    assert receipt["former"] == hashlib.sha256(b"old").hexdigest()
    assert receipt["backup"].startswith("/data/supercombo-build/backups/m.pkl.bak.")
    assert bench.path(receipt["backup"]).read_bytes() == b"old"
    assert bench.path(ACTIVE).read_bytes() == b"new"
    assert bench.path(ACTIVE).stat().st_mode & 0o777 == 0o640
    assert install(bench, b"new")["already"]


def test_what_was_sent_to_be_installed_alone_does_not_lie_there_twice(bench: Bench, tmp_path: Path):
    (tmp_path / "artifact").write_bytes(b"new")
    sha256 = hashlib.sha256(b"new").hexdigest()
    sent = f"{bench.device.paths.state}/incoming/{sha256[:16]}.pkl"
    for already in (False, True):
        bench.link.push(tmp_path / "artifact", sent, sha256=sha256)
        assert bench.path(sent).is_file()
        assert bench.link.call("install", source=sent, name="m.pkl", sha256=sha256)["already"] is already
        assert not bench.path(sent).exists()
        assert bench.path(ACTIVE).read_bytes() == b"new"
        assert bench.link.call("gc")["items"] == []
    install(bench, b"newer")
    assert bench.path(SOURCE).is_file(), "what a compile made stays: it is looked for at every build"


def test_another_file_than_the_verified_one_is_not_installed(bench: Bench):
    bench.write(ACTIVE, b"old")
    bench.write(SOURCE, b"new")
    with pytest.raises(errors.InputChanged):
        bench.link.call("install", source=SOURCE, name="m.pkl", sha256="0" * 64)
    assert bench.path(ACTIVE).read_bytes() == b"old"
    assert bench.link.call("backups")["backups"] == []


@pytest.mark.parametrize("state", ["1", None])
def test_nothing_is_installed_on_a_device_that_is_onroad_or_does_not_say(bench: Bench, state: str | None):
    bench.write(ACTIVE, b"old")
    bench.param("IsOnroad", state)
    with pytest.raises(errors.RailRefused):
        install(bench, b"new")
    assert bench.path(ACTIVE).read_bytes() == b"old"
    assert sorted(path.name for path in bench.path("/data/media/0/models").iterdir()) == ["m.pkl", "m.recompiled.pkl"]


@pytest.mark.parametrize("name", ["../m.pkl", "a/b.pkl", "", ".."])
def test_only_a_bare_name_is_installed(bench: Bench, name: str):
    sha256 = bench.write(SOURCE, b"new")
    with pytest.raises(errors.BuildError, match="bare file name"):
        bench.link.call("install", source=SOURCE, name=name, sha256=sha256)


def test_so_many_backups_stay_in_the_order_in_which_they_were_made(bench: Bench):
    for number in range(6):
        install(bench, b"%d" % number, keep=3)
    kept = [bench.path("/data/supercombo-build/backups/" + e["file"]) for e in bench.link.call("backups")["backups"]]
    assert [path.read_bytes() for path in kept] == [b"2", b"3", b"4"]


def test_rollback_goes_back_one_step_at_a_time_past_a_damaged_backup(bench: Bench):
    for number in range(4):
        install(bench, b"%d" % number)
    backups = bench.link.call("backups", name="m.pkl")["backups"]
    bench.path("/data/supercombo-build/backups/" + backups[-1]["file"]).write_bytes(b"damaged")
    bench.link.call("rollback", name="m.pkl")
    assert bench.path(ACTIVE).read_bytes() == b"1"
    bench.link.call("rollback", name="m.pkl")
    assert bench.path(ACTIVE).read_bytes() == b"0"
    with pytest.raises(errors.DeviceError, match="no backup verifies"):
        bench.link.call("rollback", name="m.pkl")
    assert bench.path(ACTIVE).read_bytes() == b"0"


def test_a_refused_first_install_is_removed_and_nobody_elses(bench: Bench):
    receipt = install(bench, b"first")
    with pytest.raises(errors.InputChanged):
        bench.link.call("rollback", name="m.pkl", expect="0" * 64, remove=True)
    bench.link.call("rollback", name="m.pkl", expect=receipt["sha256"], remove=True)
    assert not bench.path(ACTIVE).exists()


def test_a_held_install_is_put_back_by_the_device_when_its_time_is_over(bench: Bench):
    bench.write(ACTIVE, b"old")
    install(bench, b"new", hold=600)
    bench.link.call("probe")
    assert bench.path(ACTIVE).read_bytes() == b"new"
    bench.write("/proc/sys/kernel/random/boot_id", b"after the power went")
    bench.param("IsOnroad", "1")
    assert bench.link.call("probe")["health"]["pending"]
    assert bench.path(ACTIVE).read_bytes() == b"new"
    bench.param("IsOnroad", "0")
    assert bench.link.call("probe")["health"]["undone"] == ["m.pkl put back"]
    assert bench.path(ACTIVE).read_bytes() == b"old"
    assert bench.link.call("probe")["health"]["undone"] == []


def test_a_held_install_that_passed_stays(bench: Bench):
    bench.write(ACTIVE, b"old")
    passed = {"m.pkl": install(bench, b"new", hold=0.01)["sha256"]}
    assert bench.link.call("install_keep", artifacts={"m.pkl": "0" * 64})["kept"] == [], "other bytes passed"
    assert bench.link.call("install_keep", artifacts=passed)["kept"] == ["m.pkl"]
    bench.link.call("probe")
    assert bench.path(ACTIVE).read_bytes() == b"new"
    assert bench.link.call("install_keep", artifacts=passed)["kept"] == []


def held(bench: Bench) -> list[str]:
    return [entry["id"] for entry in bench.link.call("probe")["health"]["journals"]]


def power_cut(bench: Bench) -> list[str]:
    """The device starts anew; what its first probe puts back."""
    bench.write("/proc/sys/kernel/random/boot_id", os.urandom(8).hex().encode())
    return bench.link.call("probe")["health"]["undone"]


def test_a_held_first_install_is_removed(bench: Bench):
    bench.write(ACTIVE, b"long ago")
    install(bench, b"before")
    bench.path(ACTIVE).unlink()
    install(bench, b"new", hold=600)
    assert power_cut(bench) == ["m.pkl removed"]
    assert not bench.path(ACTIVE).exists()


def test_an_install_that_is_asked_for_again_to_stay_is_held_no_more(bench: Bench):
    bench.write(ACTIVE, b"old")
    install(bench, b"new", hold=600)
    assert install(bench, b"new", hold=600)["journal"] in held(bench)
    assert len(held(bench)) == 1
    install(bench, b"new")
    assert power_cut(bench) == []
    assert bench.path(ACTIVE).read_bytes() == b"new"


def test_what_a_test_left_is_taken_back_before_the_next_bytes_come(bench: Bench):
    """Else a refusal of the second would bring back the first, which nobody has passed."""
    bench.write(ACTIVE, b"old")
    install(bench, b"first", hold=600)
    second = install(bench, b"second", hold=600)
    assert bench.path(second["backup"]).read_bytes() == b"old"
    assert power_cut(bench) == ["m.pkl put back"]
    assert bench.path(ACTIVE).read_bytes() == b"old"


def test_a_rollback_ends_the_hold(bench: Bench):
    bench.write(ACTIVE, b"old")
    install(bench, b"new", hold=600)
    bench.link.call("rollback", name="m.pkl")
    assert held(bench) == []


@pytest.mark.parametrize("ended", ["by the rollback", "by what the rollback does first"])
def test_a_rollback_of_a_held_install_goes_back_one_step(bench: Bench, ended: str):
    bench.write(ACTIVE, b"oldest")
    install(bench, b"old")
    tested = install(bench, b"new", hold=600)["sha256"]
    if "first" in ended:
        bench.write("/proc/sys/kernel/random/boot_id", os.urandom(8).hex().encode())
    done = bench.link.call("rollback", name="m.pkl", expect=tested)
    assert (done["former"], done["sha256"]) == (tested, hashlib.sha256(b"old").hexdigest())
    assert bench.path(ACTIVE).read_bytes() == b"old"
    assert held(bench) == []
    bench.link.call("rollback", name="m.pkl")
    assert bench.path(ACTIVE).read_bytes() == b"oldest"


def test_a_rollback_of_a_held_first_install_removes_it_whatever_was_there_long_ago(bench: Bench):
    bench.write(ACTIVE, b"long ago")
    install(bench, b"before")
    bench.path(ACTIVE).unlink()
    install(bench, b"new", hold=600)
    assert bench.link.call("rollback", name="m.pkl")["sha256"] is None
    assert not bench.path(ACTIVE).exists()


def test_a_rollback_of_a_held_install_whose_backup_is_lost_takes_an_older_one(bench: Bench):
    bench.write(ACTIVE, b"oldest")
    install(bench, b"old")
    bench.write(install(bench, b"new", hold=600)["backup"], b"damaged")
    bench.link.call("rollback", name="m.pkl")
    assert bench.path(ACTIVE).read_bytes() == b"oldest"


def test_a_held_install_whose_backup_is_lost_stays_and_is_told(bench: Bench):
    bench.write(ACTIVE, b"old")
    backup = install(bench, b"new", hold=600)["backup"]
    bench.write(backup, b"damaged")
    assert power_cut(bench) == ["m.pkl stays: no backup of what was there before verifies"]
    assert bench.path(ACTIVE).read_bytes() == b"new"
    assert held(bench) == []


def test_a_test_that_begins_has_its_whole_time(bench: Bench):
    bench.write(ACTIVE, b"old")
    receipt = install(bench, b"new", hold=1)
    wanted = {"m.pkl": receipt["sha256"], "other.pkl": "0" * 64}
    assert bench.link.call("install_prolong", artifacts=wanted, seconds=600)["journals"] == [receipt["journal"]]
    time.sleep(1)
    assert bench.link.call("probe")["health"]["undone"] == []
    assert bench.link.call("install_prolong", artifacts={"m.pkl": "1" * 64}, seconds=600)["journals"] == []


def test_the_device_itself_takes_back_what_it_was_left_with(bench: Bench):
    """No workstation asks any more: the job of the test stays awake for it."""
    bench.write(ACTIVE, b"old")
    receipt = install(bench, b"new", hold=3)
    bench.start("a", "pass", guard=[receipt["journal"]])
    assert bench.link.follow("a")["state"] == "ok"
    until(lambda: bench.path(ACTIVE).read_bytes() == b"old")


def test_the_time_of_a_test_can_be_over_at_once(bench: Bench):
    bench.write(ACTIVE, b"old")
    receipt = install(bench, b"new", hold=600)
    bench.start("a", "pass", guard=[receipt["journal"]])
    bench.link.follow("a")
    bench.link.call("install_prolong", artifacts={"m.pkl": receipt["sha256"]}, seconds=0)
    until(lambda: bench.path(ACTIVE).read_bytes() == b"old")


@pytest.mark.parametrize("bench", ["local"], indirect=True)
def test_gc_leaves_what_was_put_where_models_yaml_names_no_place_any_more(bench: Bench, tmp_path):
    (tmp_path / "s").write_bytes(b"source")
    sha256 = hashlib.sha256(b"source").hexdigest()
    bench.link.push(tmp_path / "s", "/data/media/0/before.onnx", sha256=sha256)
    bench.link.paths["sources"] = "/data/media/1"
    bench.link.push(tmp_path / "s", "/data/media/1/now.onnx", sha256=sha256)
    assert [item["name"] for item in bench.link.call("gc")["items"]] == ["/data/media/1/now.onnx"]
    bench.link.call("gc", dry=False)
    assert bench.path("/data/media/0/before.onnx").exists()
    assert not bench.path("/data/media/1/now.onnx").exists()


def test_gc_lists_first_and_removes_only_what_the_build_put_there(bench: Bench, tmp_path):
    (tmp_path / "s").write_bytes(b"source")
    sha256 = hashlib.sha256(b"source").hexdigest()
    for name in ("ours", "theirs", "kept"):
        bench.link.push(tmp_path / "s", f"/data/media/0/{name}.onnx", sha256=sha256)
    bench.write("/data/media/0/theirs.onnx", b"others")
    bench.write("/data/media/0/strange.onnx", b"source")
    bench.start("done", "pass")
    bench.link.follow("done")
    for number in range(3):
        install(bench, b"%d" % number)
    keep = {"keep_files": ["/data/media/0/kept.onnx"], "keep": 1}
    listed = bench.link.call("gc", **keep)
    assert {(item["kind"], item["name"].split(".bak.")[0]) for item in listed["items"]} == {
        ("upload", "/data/media/0/ours.onnx"),
        ("job", "done"),
        ("backup", "m.pkl"),
    }
    assert bench.path("/data/media/0/ours.onnx").exists()
    bench.link.call("gc", dry=False, **keep)
    there = {path.name for path in bench.path("/data/media/0").iterdir()}
    assert there == {"models", "theirs.onnx", "kept.onnx", "strange.onnx"}
    assert bench.link.call("gc", **keep)["items"] == []
