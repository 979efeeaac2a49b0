"""Confirming by the manifest's own URL: stale hosts are waited for, other bytes are an error."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from buildlib.core.manifests.manifest import Chunk, Entry
from buildlib.errors import Cancelled, TargetError
from buildlib.ports.source import SourceContext
from buildlib.steps.redownload import Clock, redownload
from buildlib.store import files
from tests.integration.publish_kit import Desk

OLD, NEW, THIRD = b"old bytes " * 300, b"new bytes! " * 400, b"third " * 100


class Host:
    """A raw-file host. shows: path -> what it answers, one after the other, the last for ever; None is a 404."""

    def __init__(self) -> None:
        self.shows: dict[str, list[bytes | None]] = {}
        self.asked: list[str] = []
        self.cut: int | None = None
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                host.asked.append(f"{self.path} {self.headers.get('Range', '')}".strip())
                answers = host.shows.get(self.path, [None])
                data = answers.pop(0) if len(answers) > 1 else answers[0]
                if data is None:
                    self.send_error(404)
                    return
                start = int(self.headers.get("Range", "bytes=0-")[6:-1])
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(data) - start))
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
                self.end_headers()
                cut, host.cut = host.cut, None
                self.wfile.write(data[start : start + cut] if cut else data[start:])

            def log_message(self, format: str, *args: Any) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    thread = threading.Thread(target=host.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield host
    host.http.shutdown()
    host.http.server_close()
    thread.join()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def entry(data: bytes, url: str | None) -> Entry:
    return Entry(file_name="nopp.pkl", sha256=sha(data), url=url)


@pytest.fixture
def context(tmp_path: Path) -> SourceContext:
    return SourceContext(root=tmp_path, state=tmp_path / "state", hash_file=files.hash_file, subject="nopp")


class FakeTime:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: self.seconds, sleep=self.sleep)


def test_new_bytes_at_the_third_try_are_waited_for(host: Host, context: SourceContext, tmp_path: Path) -> None:
    host.shows["/nopp.pkl"] = [OLD, OLD, NEW]
    wanted, former = entry(NEW, host.url + "/nopp.pkl"), entry(OLD, None)
    back = redownload(wanted, (former,), tmp_path / "back.pkl", context, timeout=60, clock=FakeTime().clock)
    assert (back.tries, back.sha256, back.size) == (3, sha(NEW), len(NEW))
    assert back.path.read_bytes() == NEW


def test_a_host_that_stays_stale_is_told_as_not_visible_yet(host: Host, context: SourceContext, tmp_path: Path) -> None:
    host.shows["/nopp.pkl"] = [OLD]
    fake = FakeTime()
    with pytest.raises(TargetError, match="not visible yet") as caught:
        redownload(
            entry(NEW, host.url + "/nopp.pkl"),
            (entry(OLD, None),),
            tmp_path / "b",
            context,
            timeout=100,
            clock=fake.clock,
        )
    assert fake.seconds <= 100
    assert "confirm_timeout" in str(caught.value)


def test_a_third_hash_is_an_error_at_once(host: Host, context: SourceContext, tmp_path: Path) -> None:
    host.shows["/nopp.pkl"] = [THIRD]
    with pytest.raises(TargetError, match="not what was published") as caught:
        redownload(entry(NEW, host.url + "/nopp.pkl"), (entry(OLD, None),), tmp_path / "b", context, timeout=600)
    assert caught.value.got == sha(THIRD)
    assert len(host.asked) == 1
    assert not (tmp_path / "b").exists()


def test_a_missing_file_is_not_yet_for_a_new_model_and_an_error_for_an_old_one(
    host: Host, context: SourceContext, tmp_path: Path
) -> None:
    host.shows["/nopp.pkl"] = [None, NEW]
    wanted = entry(NEW, host.url + "/nopp.pkl")
    assert redownload(wanted, (), tmp_path / "b", context, timeout=60, clock=FakeTime().clock).tries == 2
    host.shows["/nopp.pkl"] = [None]
    with pytest.raises(TargetError, match="404"):
        redownload(wanted, (entry(OLD, wanted.url),), tmp_path / "c", context, timeout=60, clock=FakeTime().clock)


def test_a_missing_file_is_not_yet_for_an_old_model_at_a_new_place(
    host: Host, context: SourceContext, tmp_path: Path
) -> None:
    names = [f"nopp.pkl.chunk0{number}of02" for number in (1, 2)]
    host.shows |= {"/moved.pkl": [None, NEW], f"/{names[0]}": [NEW[:900]], f"/{names[1]}": [None, NEW[900:]]}
    pieces = (Chunk(file_name=names[0], sha256=sha(NEW[:900])), Chunk(file_name=names[1], sha256=sha(NEW[900:])))
    whole = entry(OLD, host.url + "/nopp.pkl")
    former = dataclasses.replace(whole, chunks=(Chunk(file_name="nopp.pkl.chunk01of01", sha256=sha(OLD)),))
    split = dataclasses.replace(entry(NEW, whole.url), chunks=pieces)
    for wanted, before in ((entry(NEW, host.url + "/moved.pkl"), whole), (split, former)):
        back = redownload(wanted, (before,), tmp_path / "b", context, timeout=60, clock=FakeTime().clock)
        assert (back.tries, back.path.read_bytes()) == (2, NEW)
    host.shows["/moved.pkl"] = [None]
    with pytest.raises(TargetError, match="not visible yet: the host does not have it") as caught:
        redownload(
            entry(NEW, host.url + "/moved.pkl"), (whole,), tmp_path / "b", context, timeout=3, clock=FakeTime().clock
        )
    assert "former" not in str(caught.value)


def test_a_broken_connection_is_resumed(host: Host, context: SourceContext, tmp_path: Path) -> None:
    host.shows["/nopp.pkl"] = [NEW]
    host.cut = 1000
    back = redownload(entry(NEW, host.url + "/nopp.pkl"), (), tmp_path / "b", context, timeout=60)
    assert back.path.read_bytes() == NEW
    assert host.asked == ["/nopp.pkl", "/nopp.pkl bytes=1000-"]


def test_chunks_are_fetched_beside_the_url_and_joined(host: Host, context: SourceContext, tmp_path: Path) -> None:
    pieces = [NEW[:1500], NEW[1500:3000], NEW[3000:]]
    names = [f"no pp.pkl.chunk0{n}of03" for n in (1, 2, 3)]
    for name, piece in zip(names, pieces, strict=True):
        host.shows["/a%20b/" + name.replace(" ", "%20")] = [piece]
    chunks = tuple(Chunk(file_name=name, sha256=sha(piece)) for name, piece in zip(names, pieces, strict=True))
    wanted = dataclasses.replace(entry(NEW, host.url + "/a%20b/no%20pp.pkl"), chunks=chunks)
    back = redownload(wanted, (), tmp_path / "back.pkl", context, timeout=60)
    assert back.path.read_bytes() == NEW
    assert [path.name for path in tmp_path.iterdir()] == ["back.pkl"]
    lying = dataclasses.replace(wanted, sha256="0" * 64)
    with pytest.raises(TargetError, match="do not make up the artifact"):
        redownload(lying, (), tmp_path / "other.pkl", context, timeout=60)


def test_stale_chunks_are_waited_for(host: Host, context: SourceContext, tmp_path: Path) -> None:
    host.shows["/n.chunk01of01"] = [OLD, NEW]
    wanted = dataclasses.replace(
        entry(NEW, host.url + "/n"), chunks=(Chunk(file_name="n.chunk01of01", sha256=sha(NEW)),)
    )
    former = dataclasses.replace(entry(OLD, None), chunks=(Chunk(file_name="n.chunk01of01", sha256=sha(OLD)),))
    back = redownload(wanted, (former,), tmp_path / "b", context, timeout=60, clock=FakeTime().clock)
    assert back.tries == 2


def test_a_file_url_is_read(context: SourceContext, tmp_path: Path) -> None:
    (tmp_path / "a b.pkl").write_bytes(NEW)
    wanted = entry(NEW, (tmp_path / "a b.pkl").as_uri())
    assert redownload(wanted, (), tmp_path / "back", context, timeout=0).size == len(NEW)


def test_stopping_ends_the_wait(host: Host, context: SourceContext, tmp_path: Path) -> None:
    host.shows["/nopp.pkl"] = [OLD]
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    stopping = dataclasses.replace(context, cancel=cancel)
    with pytest.raises(Cancelled):
        redownload(entry(NEW, host.url + "/nopp.pkl"), (entry(OLD, None),), tmp_path / "b", stopping, timeout=600)


def test_what_was_published_into_the_sandbox_comes_back(desk: Desk, context: SourceContext, tmp_path: Path) -> None:
    former = desk.entry("nopp")
    request = desk.request("nopp", NEW)
    published = desk.target.publish(request)
    assert published.files[0].url == desk.entry("nopp").url
    assert (published.entries, published.former) == ((desk.entry("nopp"),), (former,))
    with desk.sandbox.serving():
        back = redownload(desk.entry("nopp"), (former,), tmp_path / "back.pkl", context, timeout=30)
    assert back.path.read_bytes() == NEW


def test_what_an_earlier_run_downloaded_proves_nothing_of_the_host_now(
    host: Host, context: SourceContext, tmp_path: Path
) -> None:
    host.shows["/nopp.pkl"] = [THIRD]
    for left in ("b", "b.01", "b.part"):
        (tmp_path / left).write_bytes(NEW)
    with pytest.raises(TargetError, match="not what was published"):
        redownload(entry(NEW, host.url + "/nopp.pkl"), (), tmp_path / "b", context, timeout=60)
    pieces = (Chunk(file_name="n.chunk01of01", sha256=sha(NEW)),)
    host.shows["/n.chunk01of01"] = [THIRD]
    (tmp_path / "c.01").write_bytes(NEW)
    with pytest.raises(TargetError, match="not what was published"):
        redownload(
            dataclasses.replace(entry(NEW, host.url + "/n"), chunks=pieces), (), tmp_path / "c", context, timeout=60
        )
    assert host.asked == ["/nopp.pkl", "/n.chunk01of01"]
