from __future__ import annotations

import hashlib
import random
from pathlib import Path
from threading import Event

import pytest

from buildlib import errors
from buildlib.device.link import DeviceLink
from buildlib.ports.transport import Finished
from tests.support.benches import ODD_NAME, Bench

SIZE = 9_000_001
REMOTE = "/data/media/0/" + ODD_NAME


@pytest.fixture(scope="module")
def payload() -> bytes:
    return random.Random(7).randbytes(SIZE)


@pytest.fixture
def source(tmp_path: Path, payload: bytes) -> Path:
    path = tmp_path / ODD_NAME
    path.write_bytes(payload)
    return path


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Cutting:
    """A transport whose connection is lost after so many bytes in one direction, once for each number given."""

    def __init__(self, inner, cuts: list[int]) -> None:
        self.inner = inner
        self.name = inner.name
        self.cuts = cuts
        self.lost = 0

    def run(self, argv, *, stdin=b"", stdout=None, idle_timeout: float, cancel: Event | None = None) -> Finished:
        left = [self.cuts[0] if self.cuts else 1 << 60]
        me = self

        class Source:
            def __init__(self) -> None:
                import io

                self.file = io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin

            def read(self, size: int = -1) -> bytes:
                block = self.file.read(size)
                me._count(left, len(block))
                return block

        def sink(block: bytes) -> None:
            me._count(left, len(block))
            if stdout is not None:
                stdout(block)

        return self.inner.run(argv, stdin=Source(), stdout=sink, idle_timeout=idle_timeout, cancel=cancel)

    def _count(self, left: list[int], size: int) -> None:
        left[0] -= size
        if left[0] < 0:
            self.cuts.pop(0)
            self.lost += 1
            raise errors.ConnectionLost("cut by the test")

    def close(self) -> None:
        self.inner.close()


def test_a_pushed_file_is_there_whole_and_a_second_push_sends_nothing(bench: Bench, source: Path, payload: bytes):
    seen: list[int] = []
    assert bench.link.push(source, REMOTE, sha256=sha(payload), on_progress=lambda done, _: seen.append(done))
    assert bench.path(REMOTE).read_bytes() == payload
    assert seen == sorted(seen)
    assert seen[-1] == SIZE
    assert not bench.link.push(source, REMOTE, sha256=sha(payload))
    assert [path.name for path in bench.path("/data/media/0").iterdir() if ".part" in path.name] == []


def test_an_empty_file_can_be_pushed_and_fetched(bench: Bench, tmp_path: Path):
    (tmp_path / "empty").write_bytes(b"")
    bench.link.push(tmp_path / "empty", REMOTE, sha256=sha(b""))
    bench.link.fetch(REMOTE, tmp_path / "back", sha256=sha(b""), size=0)
    assert (tmp_path / "back").read_bytes() == b""


@pytest.mark.parametrize("seed", range(4))
def test_a_push_cut_at_random_points_goes_on_where_it_stopped(bench: Bench, source: Path, payload: bytes, seed: int):
    rng = random.Random(seed)
    cutting = Cutting(bench.link.transport, [rng.randrange(30_000, SIZE // 2) for _ in range(3)])
    bench.link.transport = cutting  # type: ignore[assignment]
    bench.link.push(source, REMOTE, sha256=sha(payload))
    assert cutting.lost == 3
    assert bench.path(REMOTE).read_bytes() == payload


@pytest.mark.parametrize("seed", range(4))
def test_a_fetch_cut_at_random_points_goes_on_where_it_stopped(bench: Bench, tmp_path: Path, payload: bytes, seed: int):
    rng = random.Random(100 + seed)
    bench.write(REMOTE, payload)
    cutting = Cutting(bench.link.transport, [rng.randrange(30_000, SIZE // 2) for _ in range(3)])
    bench.link.transport = cutting  # type: ignore[assignment]
    bench.link.fetch(REMOTE, tmp_path / "back", sha256=sha(payload), size=SIZE)
    assert cutting.lost == 3
    assert (tmp_path / "back").read_bytes() == payload


@pytest.mark.parametrize("seed", range(2))
def test_ranges_at_once_are_each_resumed(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int):
    monkeypatch.setattr("buildlib.device.transfer.WORTH_SPLITTING", 1 << 20)
    rng = random.Random(200 + seed)
    payload = rng.randbytes(SIZE)
    (tmp_path / "source").write_bytes(payload)
    cutting: list[Cutting] = []

    def connect() -> Cutting:
        cutting.append(Cutting(bench.connect(), [rng.randrange(30_000, SIZE // 4) for _ in range(2)]))
        return cutting[-1]

    link = DeviceLink(connect(), bench.device, connect=connect, streams=3)
    seen: list[int] = []
    assert link.push(tmp_path / "source", REMOTE, sha256=sha(payload), on_progress=lambda done, _: seen.append(done))
    assert seen[-1] == SIZE
    assert bench.path(REMOTE).read_bytes() == payload
    link.fetch(REMOTE, tmp_path / "back", sha256=sha(payload), size=SIZE)
    assert (tmp_path / "back").read_bytes() == payload
    assert len(cutting) == 3
    assert sum(one.lost for one in cutting) == 6
    assert {path.name for path in bench.path("/data/media/0").iterdir()} == {"models", ODD_NAME}
    assert [path.name for path in tmp_path.iterdir() if ".part" in path.name] == []
    link.close()


def test_a_transfer_of_an_earlier_process_is_taken_up(bench: Bench, tmp_path: Path, source: Path, payload: bytes):
    link = DeviceLink(bench.connect(), bench.device, connect=bench.connect, streams=4)
    there = 0
    # What was sent before the cut may not have been taken yet; a busy device takes more of it the next time.
    while there <= SIZE // 4:
        bench.link.transport = Cutting(bench.connect(), [SIZE // 2] + [10] * 9)  # type: ignore[assignment]
        with pytest.raises(errors.ConnectionLost):
            bench.link.push(source, REMOTE, sha256=sha(payload))
        bench.link.close()
        begun = link.call("receive_begin", path=REMOTE, size=SIZE, sha256=sha(payload), mode=0o644)
        there = sum(one["done"] - one["start"] for one in begun["ranges"])
    seen: list[int] = []
    link.push(source, REMOTE, sha256=sha(payload), on_progress=lambda done, _: seen.append(done))
    assert seen[0] > there
    link.transport = Cutting(link.transport, [SIZE // 2] + [10] * 9)  # type: ignore[assignment]
    link._streams = 1
    with pytest.raises(errors.ConnectionLost):
        link.fetch(REMOTE, tmp_path / "back", sha256=sha(payload), size=SIZE)
    link.close()
    seen.clear()
    bench.new_link().fetch(
        REMOTE, tmp_path / "back", sha256=sha(payload), size=SIZE, on_progress=lambda done, _: seen.append(done)
    )
    assert seen[0] > SIZE // 4
    assert (tmp_path / "back").read_bytes() == payload


def test_a_link_that_is_always_cut_is_given_up(bench: Bench, source: Path, payload: bytes):
    bench.link.transport = Cutting(bench.link.transport, [10] * 50)  # type: ignore[assignment]
    with pytest.raises(errors.ConnectionLost):
        bench.link.push(source, REMOTE, sha256=sha(payload))


def test_a_changed_host_key_is_never_tried_again(bench: Bench):
    class Refusing:
        name = "refusing"
        asked = 0

        def run(self, *args, **kwargs):
            self.asked += 1
            raise errors.HostKeyError("changed")

        def close(self) -> None: ...

    refusing = Refusing()
    bench.link.transport = refusing
    with pytest.raises(errors.HostKeyError):
        bench.link.call("probe")
    assert refusing.asked == 1


def test_a_local_file_that_is_not_what_was_said_is_an_input_that_changed(bench: Bench, source: Path):
    with pytest.raises(errors.InputChanged):
        bench.link.push(source, REMOTE, sha256="0" * 64)
    assert not bench.path(REMOTE).exists()


def test_a_device_file_with_other_bytes_is_refused_and_leaves_nothing(bench: Bench, tmp_path: Path, payload: bytes):
    bench.write(REMOTE, payload)
    with pytest.raises(errors.TransferFailed):
        bench.link.fetch(REMOTE, tmp_path / "back", sha256="0" * 64, size=SIZE)
    with pytest.raises(errors.TransferFailed, match="another size"):
        bench.link.fetch(REMOTE, tmp_path / "back", sha256=sha(payload), size=SIZE + 1)
    assert not (tmp_path / "back").exists()


def test_a_missing_device_file_is_named(bench: Bench, tmp_path: Path):
    with pytest.raises(errors.DeviceError, match="nowhere"):
        bench.link.fetch("/data/media/0/nowhere", tmp_path / "back", sha256="0" * 64, size=1)


def test_a_damaged_part_is_sent_again_from_the_start(bench: Bench, source: Path, payload: bytes):
    bench.link.transport = Cutting(bench.link.transport, [SIZE // 2] + [10] * 9)  # type: ignore[assignment]
    with pytest.raises(errors.ConnectionLost):
        bench.link.push(source, REMOTE, sha256=sha(payload))
    (part,) = [path for path in bench.path("/data/media/0").iterdir() if path.name.endswith(".part")]
    with part.open("r+b") as file:
        file.write(b"damage")
    bench.new_link().push(source, REMOTE, sha256=sha(payload))
    assert bench.path(REMOTE).read_bytes() == payload


@pytest.mark.parametrize("state", ["1", "", None])
def test_nothing_is_sent_to_a_device_that_is_onroad_or_does_not_say(
    bench: Bench, source: Path, payload: bytes, state: str | None
):
    bench.param("IsOnroad", state)
    with pytest.raises(errors.RailRefused):
        bench.link.push(source, REMOTE, sha256=sha(payload))
    assert [path.name for path in bench.path("/data/media/0").iterdir()] == ["models"]


@pytest.mark.parametrize(
    "remote",
    [
        "/data/media/0/models/driving.pkl",
        "/data/params/d/IsOnroad",
        "/etc/passwd",
        "/data/media/0/../params/d/x",
        "relative",
        "/data/openpilot/launch.sh",
    ],
)
def test_the_agent_writes_only_where_the_build_has_business(bench: Bench, source: Path, payload: bytes, remote: str):
    with pytest.raises(errors.BuildError):
        bench.link.push(source, remote, sha256=sha(payload))
    assert bench.path("/data/params/d/IsOnroad").read_text() == "0"
