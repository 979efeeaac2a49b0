"""A transfer whose link breaks goes on where the other side stopped, not where it began."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO

import pytest

from buildlib.core.catalog import Device
from buildlib.device.link import DeviceLink
from buildlib.errors import ConnectionLost
from buildlib.ports.transport import Finished

DATA = bytes(range(256)) * 40
SHA256 = hashlib.sha256(DATA).hexdigest()
REMOTE = "/data/media/0/x.onnx"
SENT, ARRIVED = 6000, 5000
"""What was taken from the workstation before the link broke, and what of it the device had by then."""


class NoTransport:
    """Nothing goes over it: the link below answers for the device."""

    name = "none"

    def run(
        self,
        argv: tuple[str, ...],
        *,
        stdin: bytes | BinaryIO = b"",
        stdout: Callable[[bytes], None] | None = None,
        idle_timeout: float,
        cancel: Event | None = None,
    ) -> Finished:
        raise AssertionError(argv)

    def round_trip(self, idle_timeout: float) -> float:
        return 0.0

    def close(self) -> None: ...


class Breaking(DeviceLink):
    """A link that breaks once in the middle of a transfer. asked: each operation and the offset that it named."""

    def __init__(self) -> None:
        super().__init__(NoTransport(), Device(name="desk", host="h"))
        self.asked: list[tuple[str, object]] = []
        self.arrived = b""

    def ask(self, op: str, args: dict[str, object], **ways: Any) -> dict[str, Any]:
        self.asked.append((op, args.get("offset")))
        broken = [name for name, _ in self.asked].count(op) == 1
        if op == "receive_begin":
            begun = [{"start": 0, "end": len(DATA), "done": ARRIVED}] if self.arrived else []
            return {"have": False, "ranges": begun}
        if op == "receive":
            if broken:
                self.arrived = ways["body"].read(SENT)[:ARRIVED]
                raise ConnectionLost("cut by the test")
            self.arrived += ways["body"].read()
            return {"done": len(DATA), "finished": True}
        offset = args["offset"]
        assert op == "send"
        assert isinstance(offset, int)
        ways["on_body"](DATA[offset : ARRIVED if broken else len(DATA)])
        if broken:
            raise ConnectionLost("cut by the test")
        return {}


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Breaking:
    monkeypatch.setattr("buildlib.device.link.FIRST_PAUSE", 0.0)
    return Breaking()


def test_an_upload_goes_on_from_what_the_device_has(link: Breaking, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(DATA)
    assert link.push(tmp_path / "x", REMOTE, sha256=SHA256)
    assert [offset for op, offset in link.asked if op == "receive"] == [0, ARRIVED]
    assert link.arrived == DATA


def test_a_download_goes_on_from_what_has_come(link: Breaking, tmp_path: Path) -> None:
    link.fetch(REMOTE, tmp_path / "x", sha256=SHA256, size=len(DATA))
    assert link.asked == [("send", 0), ("send", ARRIVED)]
    assert (tmp_path / "x").read_bytes() == DATA
