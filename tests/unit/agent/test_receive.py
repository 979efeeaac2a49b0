"""An upload gets its name only when all of it is there and its hash is the one that was said."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import pytest

from buildlib.device_scripts.agent import receive
from buildlib.device_scripts.agent.main import Request
from buildlib.device_scripts.agent.places import Places
from buildlib.device_scripts.agent.wire import Refusal
from tests.unit.agent.test_hashes import places
from tests.unit.agent.test_journal import waits_for

REMOTE = "/data/media/0/x.onnx"
DATA = b"a whole file"


@pytest.fixture
def device(tmp_path: Path) -> Places:
    device = places(tmp_path)
    Path(device.params).mkdir(parents=True)
    Path(device.params, "IsOnroad").write_text("0")
    return device


def send(device: Places, data: bytes, **more: Any) -> dict[str, Any]:
    args = {"path": REMOTE, "size": len(DATA), "sha256": hashlib.sha256(DATA).hexdigest(), "finish": True, **more}
    return receive.do_receive(Request(args, device, io.BytesIO(data)))


def there(device: Places) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(device.sources).iterdir() if path.is_file()}


def test_in_one_piece_or_in_ranges_it_arrives(device: Places) -> None:
    assert send(device, DATA)["finished"]
    assert there(device) == {"x.onnx": DATA}
    Path(device.real(REMOTE)).unlink()
    assert not send(device, DATA[:5], start=0, end=5)["finished"]
    assert there(device).get("x.onnx") is None
    assert send(device, DATA[5:], start=5)["finished"]
    assert there(device) == {"x.onnx": DATA}


@pytest.mark.parametrize("ranges", [((0, 12),), ((0, 5), (5, 12))])
def test_other_bytes_never_get_the_name_and_are_not_kept(device: Places, ranges: tuple[tuple[int, int], ...]) -> None:
    wrong = DATA[:-1] + b"!"
    *first, (start, end) = ranges
    for begin, until in first:
        send(device, wrong[begin:until], start=begin, end=until)
    with pytest.raises(Refusal, match="arrived changed"):
        send(device, wrong[start:end], start=start, end=end)
    assert there(device) == {}


def test_a_part_that_was_damaged_since_never_gets_the_name(device: Places) -> None:
    send(device, DATA[:5], start=0, end=5)
    (part,) = [path for path in Path(device.sources).iterdir() if path.name.endswith(".part")]
    part.write_bytes(b"?" * 5)
    with pytest.raises(Refusal, match="arrived changed"):
        send(device, DATA[5:], start=5)
    assert there(device) == {}


def test_a_file_that_a_running_job_reads_is_not_replaced(device: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def used(places: Places, path: str, owner: str) -> None:
        asked.append((path, owner))
        raise Refusal("busy", "another job reads it")

    monkeypatch.setattr(receive, "require_unused", used)
    with pytest.raises(Refusal, match="reads it"):
        send(device, DATA, owner="me")
    assert "x.onnx" not in there(device)
    begin = {"path": REMOTE, "size": 1, "sha256": "0" * 64, "owner": "me"}
    with pytest.raises(Refusal, match="reads it"):
        receive.do_receive_begin(Request(begin, device))
    assert asked == [(REMOTE, "me")] * 2


def test_two_that_bring_the_last_ranges_at_once_finish_one_after_the_other(device: Places) -> None:
    send(device, DATA[:5], start=0, end=5)
    (part,) = [path for path in Path(device.sources).iterdir() if path.name.endswith(".part")]
    held = part.read_bytes()
    assert waits_for(str(part), lambda: (part.write_bytes(held), send(device, DATA[5:], start=5)))
    assert there(device) == {"x.onnx": DATA}
