"""Scripts travel together: one request asks which are there, one more brings what is lacking."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from buildlib import errors
from buildlib.device.link import DeviceLink
from tests.integration.device.test_transfers import Cutting
from tests.support.benches import Bench
from tests.support.scripts import SCRIPTS

FOLDER = "/data/supercombo-build/scripts"
TEXTS = {f"{FOLDER}/1/run.py": "print('\u00fc')\n", f"{FOLDER}/1/mine/a.py": "", f"{FOLDER}/1/mine/b.py": "b = 1\r\n"}


class Counting:
    """A transport that counts what is asked."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.name, self.asked = inner, inner.name, 0

    def run(self, argv: Any, **more: Any) -> Any:
        self.asked += 1
        return self.inner.run(argv, **more)

    def close(self) -> None:
        self.inner.close()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, tuple[Path, str]]:
    """The texts as files here."""
    found = {}
    for number, (remote, text) in enumerate(TEXTS.items()):
        path = tmp_path / f"{number}"
        path.write_bytes(text.encode())
        found[remote] = (path, hashlib.sha256(text.encode()).hexdigest())
    return found


def there(bench: Bench) -> dict[str, bytes]:
    top = bench.path(FOLDER)
    return {bench_path(bench, path): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def bench_path(bench: Bench, path: Path) -> str:
    return "/" + str(path.relative_to(bench.root))


ALL = {remote: text.encode() for remote, text in TEXTS.items()}


def test_all_are_there_after_two_round_trips_and_need_one_from_then_on(bench: Bench, files: dict[str, Any]) -> None:
    counting = Counting(bench.connect())
    link = DeviceLink(counting, bench.device)
    link.push_small(files)
    assert (there(bench), counting.asked) == (ALL, 2)
    link.push_small(files)
    assert (there(bench), counting.asked) == (ALL, 3)


@pytest.mark.parametrize("bench", ["local"], indirect=True)
@pytest.mark.parametrize("damage", ["removed", "other bytes", "other bytes of that size"])
def test_only_what_is_lacking_is_written_again(bench: Bench, files: dict[str, Any], damage: str) -> None:
    bench.link.push_small(files)
    spoiled, *others = (bench.path(remote) for remote in TEXTS)
    inodes = [path.stat().st_ino for path in others]
    if damage == "removed":
        spoiled.unlink()
    else:
        spoiled.write_bytes(b"x" * (len(ALL[f"{FOLDER}/1/run.py"]) if "size" in damage else 3))
    bench.link.push_small(files)
    assert there(bench) == ALL
    assert [path.stat().st_ino for path in others] == inodes


@pytest.mark.parametrize("bench", ["local"], indirect=True)
@pytest.mark.parametrize("cuts", [[1], [40_000], [1, 1, 200], [40_000, 40_000]])
def test_a_lost_connection_is_taken_up_again(bench: Bench, files: dict[str, Any], cuts: list[int]) -> None:
    cutting = Cutting(bench.connect(), list(cuts))
    DeviceLink(cutting, bench.device).push_small(files)
    assert there(bench) == ALL
    assert cutting.lost > 0


@pytest.mark.parametrize("bench", ["local"], indirect=True)
def test_a_file_that_is_another_here_is_said_and_nothing_is_sent(bench: Bench, files: dict[str, Any]) -> None:
    files[f"{FOLDER}/1/mine/b.py"][0].write_text("b = 2\n")
    with pytest.raises(errors.InputChanged, match="changed before it was sent"):
        bench.link.push_small(files)
    assert there(bench) == {}


@pytest.mark.parametrize("bench", ["local"], indirect=True)
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"text": "b = 2\n"}, errors.TransferFailed),
        ({"path": "/data/media/0/models/driving.pkl"}, errors.RailRefused),
        ({"path": "/data/params/d/IsOnroad"}, errors.RailRefused),
        ({"path": f"{FOLDER}/../../params/d/IsOnroad"}, errors.BuildError),
    ],
)
def test_one_that_is_refused_keeps_all_others_away(
    bench: Bench, change: dict[str, str], error: type[errors.BuildError]
) -> None:
    asked = [
        {"path": remote, "sha256": hashlib.sha256(text.encode()).hexdigest(), "text": text}
        for remote, text in TEXTS.items()
    ]
    asked[-1].update(change)
    with pytest.raises(error):
        bench.link.call("receive_small", files=asked)
    assert there(bench) == {}
    assert bench.path("/data/params/d/IsOnroad").read_text() == "0"


@pytest.mark.parametrize("bench", ["local"], indirect=True)
def test_what_a_running_job_reads_is_not_replaced(bench: Bench, files: dict[str, Any]) -> None:
    bench.link.push_small(files)
    inputs = [{"path": remote, "sha256": sha256} for remote, (_, sha256) in files.items()]
    bench.start("j", "import time; time.sleep(60)", inputs=inputs)
    bench.path(f"{FOLDER}/1/run.py").write_text("damaged")
    try:
        with pytest.raises(errors.DeviceBusy):
            bench.link.push_small(files)
    finally:
        bench.link.call("job_cancel", key="j")


@pytest.mark.parametrize("bench", ["local"], indirect=True)
def test_a_job_whose_script_lacks_one_file_does_not_start(bench: Bench, files: dict[str, Any]) -> None:
    bench.link.push_small(files)
    inputs = [{"path": remote, "sha256": sha256} for remote, (_, sha256) in files.items()]
    bench.path(f"{FOLDER}/1/mine/b.py").write_text("other")
    bench.start("j", "open('it ran', 'w')", inputs=inputs)
    status = bench.link.follow("j")
    assert status["state"] == "input_changed"
    assert f"{FOLDER}/1/mine/b.py" in status["reason"]
    assert not list(bench.root.rglob("it ran"))


@pytest.mark.parametrize("bench", ["local"], indirect=True)
def test_gc_keeps_the_files_of_a_needed_script_and_leaves_no_empty_directory_of_another(
    bench: Bench, files: dict[str, Any]
) -> None:
    bench.link.push_small(files)
    bench.link.push_small({remote.replace("/1/", "/2/"): file for remote, file in files.items()})
    keep = list(TEXTS)
    found = bench.link.call("gc", dry=False, keep_files=keep)
    assert sorted(item["name"] for item in found["items"]) == sorted(remote.replace("/1/", "/2/") for remote in TEXTS)
    assert there(bench) == ALL
    assert [path.name for path in bench.path(FOLDER).iterdir()] == ["1"]


@pytest.mark.parametrize("bench", ["local"], indirect=True)
def test_gc_finds_what_an_interrupted_transfer_left_beside_a_script(bench: Bench, files: dict[str, Any]) -> None:
    bench.link.push_small(files)
    left = bench.path(f"{FOLDER}/1/mine/.c.py.0123456789abcdef.77.part")
    left.write_bytes(b"half")
    found = bench.link.call("gc", dry=False, keep_files=list(TEXTS))
    assert [item["kind"] for item in found["items"]] == ["part"]
    assert not left.exists()


def test_every_script_of_the_build_goes_to_a_device_as_it_is(bench: Bench) -> None:
    files = {f"{FOLDER}/{name}/{file.name}": file for name, script in SCRIPTS.items() for file in script}
    bench.link.push_small({remote: (file.path, file.sha256) for remote, file in files.items()})
    assert there(bench) == {remote: file.path.read_bytes() for remote, file in files.items()}
