"""A device that is onroad, or does not say, is not touched: not a byte, by no operation."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from buildlib import errors
from tests.support.benches import Bench

SOURCE = "/data/media/0/models/m.recompiled.pkl"
CHANGES: dict[str, Callable[[Bench, Path], object]] = {
    "push": lambda bench, file: bench.link.push(file, "/data/media/0/x.onnx", sha256=sha256_of(file)),
    "push_small": lambda bench, file: bench.link.push_small(
        {"/data/supercombo-build/scripts/1/x.py": (file, sha256_of(file))}
    ),
    "job_start": lambda bench, _: bench.start("new", "pass"),
    "install": lambda bench, _: bench.link.call("install", source=SOURCE, name="m.pkl", sha256=SHA256),
    "rollback": lambda bench, _: bench.link.call("rollback", name="m.pkl", remove=True),
    "params_write": lambda bench, _: bench.link.call("params_write", values={"ModelManager_DownloadIndex": "1"}),
    "gc": lambda bench, _: bench.link.call("gc", dry=False),
}
LOOKS: dict[str, Callable[[Bench], object]] = {
    "probe": lambda bench: bench.link.call("probe", files=[SOURCE]),
    "hash": lambda bench: bench.link.call("hash", files=[SOURCE]),
    "recover": lambda bench: bench.link.call("recover"),
    "job_list": lambda bench: bench.link.call("job_list"),
    "params_read": lambda bench: bench.link.call("params_read", keys=["IsOnroad"]),
    "gc": lambda bench: bench.link.call("gc"),
    "backups": lambda bench: bench.link.call("backups"),
}
SHA256 = hashlib.sha256(b"new").hexdigest()


def sha256_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def everything(root: Path) -> dict[str, object]:
    """Each file's bytes and each directory, with its times."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        found[str(path)] = (status.st_mode, status.st_ino, status.st_mtime_ns, path.is_file() and path.read_bytes())
    return found


@pytest.fixture(params=["1", None, "", "yes"])
def onroad(bench: Bench, request: pytest.FixtureRequest) -> Bench:
    """A device in use, with a job done, a backup and something to roll back, that then goes onroad or silent."""
    bench.start("done", "pass")
    bench.link.follow("done")
    bench.write(SOURCE, b"older")
    bench.link.call("install", source=SOURCE, name="m.pkl", sha256=hashlib.sha256(b"older").hexdigest())
    bench.write(SOURCE, b"old")
    bench.link.call("install", source=SOURCE, name="m.pkl", sha256=hashlib.sha256(b"old").hexdigest())
    bench.write(SOURCE, b"new")
    bench.param("IsOnroad", request.param)
    return bench


@pytest.mark.parametrize("bench", ["local"], indirect=True)
def test_not_a_byte_is_changed(onroad: Bench, tmp_path: Path):
    file = tmp_path / "file"
    file.write_bytes(b"source")
    before = everything(onroad.root)
    for name, change in CHANGES.items():
        with pytest.raises(errors.RailRefused) as caught:
            change(onroad, file)
        assert caught.value.remedy, name
        assert everything(onroad.root) == before, name
    for name, look in LOOKS.items():
        look(onroad)
        assert everything(onroad.root) == before, name


@pytest.mark.parametrize("bench", ["local"], indirect=True)
@pytest.mark.parametrize("parameter", ["1", None])
def test_looking_at_a_device_that_was_never_built_on_leaves_nothing_there(bench: Bench, parameter: str | None):
    """Reading made folders for what it read: on a stock tree's stand-in device even at the root of this machine."""
    shutil.rmtree(bench.root / bench.device.paths.state.lstrip("/"))
    bench.param("IsOnroad", parameter)
    before = everything(bench.root)
    for name, look in LOOKS.items():
        look(bench)
        assert everything(bench.root) == before, name


@pytest.mark.parametrize("bench", ["local"], indirect=True)
def test_offroad_each_of_them_works(bench: Bench, tmp_path: Path):
    file = tmp_path / "file"
    file.write_bytes(b"source")
    bench.write(SOURCE, b"new")
    for change in CHANGES.values():
        change(bench, file)


ODD: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nowhere": lambda path: path.symlink_to(path.with_name("nowhere")),
    "a device without end": lambda path: path.symlink_to("/dev/zero"),
    "missing": lambda path: None,
}


@pytest.mark.parametrize("bench", ["local"], indirect=True)
@pytest.mark.parametrize("what", sorted(ODD))
def test_a_parameter_that_cannot_be_read_is_a_device_that_does_not_say(bench: Bench, what: str):
    param = bench.path("/data/params/d/IsOnroad")
    param.unlink()
    ODD[what](param)
    with pytest.raises(errors.RailRefused, match="does not say"):
        bench.start("a", "pass")
    assert bench.link.call("probe")["health"]["onroad"] is None
    param.rmdir() if what == "a folder" else param.unlink(missing_ok=True)


@pytest.mark.parametrize("bench", ["local"], indirect=True)
@pytest.mark.parametrize(
    "text", ["", "\n", "true", "false", "00", "-0", "0.0", "0 1", "0\n1", "0\0", "0\x001", "\u0660", "1"]
)
def test_only_a_plain_0_is_offroad(bench: Bench, text: str):
    bench.path("/data/params/d/IsOnroad").write_text(text)
    with pytest.raises(errors.RailRefused):
        bench.start("a", "pass")


@pytest.mark.parametrize("bench", ["local"], indirect=True)
def test_another_parameter_that_is_a_pipe_is_an_error_and_no_wait(bench: Bench):
    os.mkfifo(bench.path("/data/params/d/ModelManager_ActiveBundle"))
    with pytest.raises(errors.DeviceError, match="cannot be read"):
        bench.link.call("params_read", keys=["ModelManager_ActiveBundle"])
    assert bench.link.call("probe")["health"]["active_bundle"] is None
