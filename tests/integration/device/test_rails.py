"""A device that is onroad, or does not say, is not touched: not a byte, by no operation."""

from __future__ import annotations

import hashlib
import os
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
def test_offroad_each_of_them_works(bench: Bench, tmp_path: Path):
    file = tmp_path / "file"
    file.write_bytes(b"source")
    bench.write(SOURCE, b"new")
    for change in CHANGES.values():
        change(bench, file)


@pytest.mark.parametrize("bench", ["local"], indirect=True)
def test_a_parameter_that_cannot_be_read_is_a_device_that_does_not_say(bench: Bench):
    param = bench.path("/data/params/d/IsOnroad")
    param.unlink()
    param.mkdir()
    with pytest.raises(errors.RailRefused, match="does not say"):
        bench.start("a", "pass")
    os.rmdir(param)
