"""Servers that lie about lengths, ranges, addresses and objects: one line of error, no wrong byte, nothing left."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from buildlib.core.catalog import GitSource, UrlSource
from buildlib.core.sources.lfs_pointer import LfsPointer
from buildlib.errors import SourceError, SourceUnavailable
from buildlib.ports.source import SourceContext
from buildlib.sources import download, lfs, reader, url
from buildlib.sources.git_command import Git

Make = Callable[..., SourceContext]
CONTENT = bytes(range(256)) * 64
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    original = download.Wanted

    def quick(**fields: object) -> download.Wanted:
        return original(**{"pause": 0.0, "timeout": 2.0, **fields})

    for module in (url, lfs):
        monkeypatch.setattr(module, "Wanted", quick)


class Liar:
    """A server that answers every request with the same bytes, whatever they are. drip: seconds between two bytes."""

    def __init__(self) -> None:
        self.answer, self.drip, self.endless = b"", 0.0, False
        self.asked: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._speak, args=(connection,), daemon=True).start()

    def _speak(self, connection: socket.socket) -> None:
        with connection:
            try:
                self.asked.append(connection.recv(65536))
                head, _, body = self.answer.partition(b"\r\n\r\n")
                connection.sendall(head + b"\r\n\r\n")
                for byte in body if self.drip else ():
                    connection.sendall(bytes([byte]))
                    threading.Event().wait(self.drip)
                connection.sendall(b"" if self.drip else body)
                while self.endless:
                    connection.sendall(b"x" * 65536)
            except OSError:
                pass

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()


@pytest.fixture
def liar() -> Iterator[Liar]:
    server = Liar()
    yield server
    server.close()


def says(status: str, *headers: str, body: bytes = CONTENT) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", "Connection: close", *headers, "", ""]).encode("latin-1") + body


def fetch(liar: Liar, context: Make, into: Path, sha256: str = SHA) -> object:
    return reader(UrlSource(url=f"http://127.0.0.1:{liar.port}/m.onnx", sha256=sha256), context()).fetch(into)


LENGTH = f"Content-Length: {len(CONTENT)}"
LIES = {
    "a length of superscripts": says("200 OK", "Content-Length: ²", body=b"x"),
    "a length of five thousand digits": says("200 OK", "Content-Length: " + "9" * 5000, body=b"x"),
    "a negative length": says("200 OK", "Content-Length: -5", body=b""),
    "two lengths": says("200 OK", "Content-Length: 5", LENGTH),
    "chunks that are none": says("200 OK", "Transfer-Encoding: chunked", body=b"zz\r\nabc\r\n"),
    "a chunk without an end": says("200 OK", "Transfer-Encoding: chunked", body=b"ffffffff\r\nabc"),
    "a status that is none": says("9x9 OK", LENGTH),
    "no HTTP at all": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "nothing there": says("204 No Content", "Content-Length: 0", body=b""),
    "packed": says("200 OK", LENGTH, "Content-Encoding: gzip"),
    "packed twice": says("200 OK", LENGTH, "Content-Encoding: gzip, br"),
    "a redirect to no address": says("302 Found", "Location: http://[::1", body=b""),
    "a redirect to a name of no host": says("302 Found", "Location: http://a..b/x", body=b""),
    "a redirect to a port of words": says("302 Found", "Location: http://127.0.0.1:words/x", body=b""),
    "a redirect with a line break": says("302 Found", "Location: http://127.0.0.1/%0d%0aX: y", body=b""),
    "a redirect to nowhere": says("302 Found", body=b""),
    "a part that nobody asked for": says("206 Partial Content", LENGTH, f"Content-Range: bytes 0-{len(CONTENT)}/99"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_one_line_of_error_and_no_file(liar: Liar, context: Make, tmp_path: Path, lie: str) -> None:
    liar.answer = LIES[lie]
    with pytest.raises(SourceError) as caught:
        fetch(liar, context, tmp_path / "m.onnx", sha256=SHA if "two" not in lie else "0" * 64)
    assert "\n" not in caught.value.headline()
    assert not (tmp_path / "m.onnx").exists()


def test_a_part_is_never_taken_for_a_file_whose_hash_nobody_knows(liar: Liar, context: Make, tmp_path: Path) -> None:
    liar.answer = says("206 Partial Content", "Content-Length: 100", "Content-Range: bytes 0-99/9999", body=b"x" * 100)
    address = UrlSource(url=f"http://127.0.0.1:{liar.port}/m.onnx", sha256="")
    with pytest.raises(SourceUnavailable, match="another range"):
        url.Reader(address, context()).fetch_unknown(tmp_path / "m.onnx")
    assert list(tmp_path.glob("m.onnx*")) == []


def test_bytes_that_change_between_two_ranges_are_fetched_anew(served, context: Make, tmp_path: Path) -> None:
    other = CONTENT[::-1]
    served.files["/m.onnx"] = other
    served.cut_after = [5000]
    served.on_block = lambda: served.files.update({"/m.onnx": CONTENT})
    fetched = reader(UrlSource(url=served.url + "/m.onnx", sha256=SHA), context()).fetch(tmp_path / "m.onnx")
    assert fetched.path.read_bytes() == CONTENT
    assert [headers.get("Range") for _, headers in served.seen] == [None, "bytes=5000-", None]


def test_a_body_without_an_end_stops_at_the_limit_and_frees_the_disk(
    liar: Liar, context: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = url.Wanted
    monkeypatch.setattr(url, "Wanted", lambda **fields: quick(limit=1 << 20, **fields))
    liar.answer, liar.endless = says("200 OK"), True
    with pytest.raises(SourceError, match="too large"):
        fetch(liar, context, tmp_path / "m.onnx")
    assert list(tmp_path.glob("m.onnx*")) == []


def test_a_server_that_drips_is_given_up(
    liar: Liar, context: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "MEASURED", 0.5)
    monkeypatch.setattr(download, "MOST_TRIES", 3)
    liar.answer, liar.drip = says("200 OK", LENGTH), 0.05
    with pytest.raises(SourceUnavailable, match="does not come through"):
        fetch(liar, context, tmp_path / "m.onnx")
    assert len(liar.asked) == 3


@pytest.mark.parametrize("inside", ["127.0.0.1", "[::1]", "localhost", "169.254.169.254", "0.0.0.0"])
def test_a_server_elsewhere_leads_nobody_into_this_machine(
    served, context: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    monkeypatch.setenv("http_proxy", served.url)
    monkeypatch.delenv("no_proxy", raising=False)
    there = "http://models.example/m.onnx"
    served.redirects[there] = f"http://{inside}:8080/shutdown"
    with pytest.raises(SourceError, match="this machine itself"):
        reader(UrlSource(url=there, sha256=SHA), context()).fetch(tmp_path / "m.onnx")
    assert len(served.seen) == 1


def test_a_name_that_no_host_can_have_is_told(context: Make, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be asked"):
        reader(UrlSource(url=f"http://{'a' * 64}.example/x", sha256=SHA), context()).fetch(tmp_path / "m.onnx")


@pytest.mark.parametrize("what", ["device", "pipe", "folder", "huge"])
def test_a_file_url_of_something_else_is_refused_before_it_is_read(context: Make, tmp_path: Path, what: str) -> None:
    place = tmp_path / "there"
    if what == "device":
        place = Path("/dev/zero")
    elif what == "pipe":
        os.mkfifo(place)
    elif what == "folder":
        place.mkdir()
    else:
        with place.open("wb") as file:
            file.truncate(download.SIZE_LIMIT + 1)
    with pytest.raises(SourceError, match=r"no plain file|too large|[Dd]irectory"):
        reader(UrlSource(url=place.as_uri(), sha256=SHA), context()).fetch(tmp_path / "m.onnx")
    assert list(tmp_path.glob("m.onnx*")) == []


# -- git-lfs -------------------------------------------------------------------------------------------------------

HREF = "http://127.0.0.1:9/x"


def told(**item: object) -> bytes:
    return json.dumps({"objects": [{"oid": SHA, "size": len(CONTENT), **item}]}).encode()


ANSWERS = {
    "a list": b"[]",
    "a number": b"17",
    "objects of words": b'{"objects": ["x", 3]}',
    "no objects": b'{"objects": null}',
    "actions of null": told(actions=None),
    "actions of words": told(actions="download"),
    "a link of words": told(actions={"download": "here"}),
    "no address": told(actions={"download": {"href": None}}),
    "headers of a list": told(actions={"download": {"href": HREF, "header": [1]}}),
    "a header with a line break": told(actions={"download": {"href": HREF, "header": {"X": "a\r\nHost: b"}}}),
    "a header with a bad name": told(actions={"download": {"href": HREF, "header": {"X Y\n": "a"}}}),
    "an error of words": told(error="gone"),
    "an address of no host": told(actions={"download": {"href": "http://[::1"}}),
    "nested without end": b'{"objects": ' + b"[" * 100_000,
    "another object": json.dumps({"objects": [{"oid": "0" * 64, "size": 1}]}).encode(),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_lfs_server_that_answers_nonsense_is_one_line_of_error(
    liar: Liar, context: Make, tmp_path: Path, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = ANSWERS[answer]
    liar.answer = says("200 OK", f"Content-Length: {len(body)}", body=body)
    repository = f"http://127.0.0.1:{liar.port}/models.git"
    git = Git(repository, tmp_path / "mirror", context())
    monkeypatch.setattr(Git, "config_of", lambda *_: None)

    def none(*_: object, **__: object) -> None:
        raise SourceUnavailable("git-lfs has it neither")

    monkeypatch.setattr(Git, "filter", none)
    spec = GitSource(repository=repository, ref="main", path="m.onnx")
    pointer = LfsPointer(SHA, len(CONTENT))
    with pytest.raises(SourceError) as caught:
        lfs.fetch_object(git, spec, "0" * 40, pointer, tmp_path / "m.onnx", context())
    assert "\n" not in caught.value.headline()
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize("size", [len(CONTENT) - 1, len(CONTENT) + 1, 1, 10**17])
def test_a_pointer_that_lies_about_its_size_is_refused(
    lfs_repository, git_host, context: Make, tmp_path: Path, size: int
) -> None:
    lfs_repository.remote(f"{git_host.url}/IQ%20Models.git")
    lfs_repository.commit("m.onnx", CONTENT)
    (tmp_path / "pointer").write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{SHA}\nsize {size}\n")
    blob = lfs_repository.git("hash-object", "-w", "--no-filters", str(tmp_path / "pointer"))
    lfs_repository.git("update-index", "--cacheinfo", f"100644,{blob},m.onnx")
    lfs_repository.git("commit", "-qm", "a pointer that lies")
    lfs_repository.git("push", "-q", "origin", "HEAD:refs/heads/main")
    commit = lfs_repository.git("rev-parse", "HEAD")
    spec = GitSource(repository=f"{git_host.url}/IQ%20Models.git", ref=commit, path="m.onnx")
    with pytest.raises(SourceError, match=r"another length|too large"):
        reader(spec, context()).fetch(tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


def test_an_lfs_server_elsewhere_leads_nobody_into_this_machine(served, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="this machine itself"):
        lfs._led("https://models.example/info/lfs", "https://127.0.0.1:8080/x")
    assert lfs._led("http://127.0.0.1:1/lfs", "http://127.0.0.1:2/x") == "http://127.0.0.1:2/x"
    assert lfs._led("http://models.example/lfs", "https://files.example/x") == "https://files.example/x"


# -- secrets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["https://TOPSECRET@host/r.git", "https://me:TOPSECRET@host/r.git"])
def test_a_login_in_an_address_is_not_repeated(context: Make, address: str) -> None:
    with pytest.raises(SourceError) as caught:
        reader(GitSource(repository=address, ref="main", path="m.onnx"), context()).observe()
    assert "TOPSECRET" not in caught.value.render()
