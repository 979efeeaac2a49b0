"""Real servers for sources: HTTP with its faults, git over http-backend with an LFS server, bare repositories."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from buildlib.core.sources.lockfile import Pin
from buildlib.ports.source import SourceContext
from buildlib.store.files import hash_file


@pytest.fixture
def context(tmp_path: Path) -> Callable[..., SourceContext]:
    """Makes a SourceContext with root and state that hold spaces."""

    def make(pin: Pin | None = None, **more: object) -> SourceContext:
        root = tmp_path / "the project"
        root.mkdir(exist_ok=True)
        return SourceContext(
            root=root, state=root / ".build" / "sources", hash_file=hash_file, subject="nopp", pin=pin, **more
        )

    return make


@dataclass
class Served:
    """What a FaultyServer does: content by path, and faults that a test sets."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    cut_after: list[int] = field(default_factory=list)
    """Bytes of body after which the n-th answers are cut."""
    claim_length: int | None = None
    redirects: dict[str, str] = field(default_factory=dict)
    statuses: list[int] = field(default_factory=list)
    """Statuses of the first answers."""
    wrong_range: bool = False
    content_length: bool = True
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    on_block: Callable[[], None] | None = None
    url: str = ""


class _Handler(http.server.BaseHTTPRequestHandler):
    served: Served
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:
        served = self.served
        served.seen.append((self.path, dict(self.headers)))
        self.close_connection = True
        if served.statuses:
            self.send_response(served.statuses.pop(0))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path in served.redirects:
            self.send_response(302)
            self.send_header("Location", served.redirects[self.path])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path not in served.files:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self._send(served.files[self.path])

    def _send(self, content: bytes) -> None:
        served = self.served
        start = 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and served.ranges:
            start = int(asked.group(1))
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            first = start + 1 if served.wrong_range else start
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        body = content[start:]
        if served.content_length:
            self.send_header("Content-Length", str(served.claim_length or len(body)))
        self.end_headers()
        if served.cut_after:
            body = body[: served.cut_after.pop(0)]
        try:
            for at in range(0, len(body), 65536):
                self.wfile.write(body[at : at + 65536])
                if served.on_block:
                    served.on_block()
        except OSError:
            pass


@pytest.fixture
def served() -> Iterator[Served]:
    """An HTTP server on loopback whose faults a test sets."""
    state = Served()
    handler = type("Handler", (_Handler,), {"served": state})
    with running(handler) as port:
        state.url = f"http://127.0.0.1:{port}"
        yield state


class running:
    """A server of that handler while the block lasts; its port."""

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> int:
        self.thread.start()
        return int(self.server.server_address[1])

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def git(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Runs git as a user would, isolated from this machine's configuration but for the LFS filters."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    clean.update(
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_AUTHOR_NAME="T",
        GIT_AUTHOR_EMAIL="t@example.com",
        GIT_COMMITTER_NAME="T",
        GIT_COMMITTER_EMAIL="t@example.com",
        **(env or {}),
    )
    finished = subprocess.run(("git", *arguments), cwd=cwd, env=clean, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


class Repository:
    """A work tree and the bare repository that it pushes to, as someone else's server holds them."""

    def __init__(self, base: Path) -> None:
        self.work = base / "work tree"
        self.bare = base / "served repos" / "IQ Models.git"
        self.bare.parent.mkdir(parents=True)
        git("init", "-q", "--bare", "-b", "main", str(self.bare), cwd=base)
        git("config", "http.receivepack", "true", cwd=self.bare)
        git("config", "uploadpack.allowFilter", "true", cwd=self.bare)
        git("init", "-q", "-b", "main", str(self.work), cwd=base)
        git("remote", "add", "origin", str(self.bare), cwd=self.work)

    def git(self, *arguments: str) -> str:
        return git(*arguments, cwd=self.work)

    def remote(self, address: str) -> None:
        self.git("remote", "set-url", "origin", address)

    def track_lfs(self) -> None:
        git("lfs", "install", "--local", cwd=self.work)
        git("lfs", "track", "*.onnx", cwd=self.work)

    def commit(self, path: str, content: bytes, *, push: bool = True) -> str:
        file = self.work / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        git("add", "-A", cwd=self.work)
        git("commit", "-q", "-m", f"add {path}", cwd=self.work)
        if push:
            git("push", "-q", "origin", "HEAD:refs/heads/main", cwd=self.work)
        return git("rev-parse", "HEAD", cwd=self.work)

    def tag(self, name: str) -> None:
        git("tag", "-a", "-m", name, name, cwd=self.work)
        git("push", "-q", "origin", f"refs/tags/{name}", cwd=self.work)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository without LFS."""
    return Repository(tmp_path)


@pytest.fixture
def lfs_repository(tmp_path: Path) -> Repository:
    """A repository whose .onnx files are in LFS."""
    if shutil.which("git-lfs") is None:
        pytest.skip("git-lfs is not installed")
    repository = Repository(tmp_path)
    repository.track_lfs()
    return repository


@dataclass
class GitHost:
    """A git host: http-backend, an LFS batch API over one folder of objects, and what it was asked."""

    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    lfs_login: bool = False
    git_login: bool = False
    href_scheme: str = ""
    old_protocol: bool = False
    """Speaks the first protocol only, which gives no single commit or file that no ref names."""
    cut_after: list[int] = field(default_factory=list)


@pytest.fixture
def git_host(tmp_path: Path) -> Iterator[GitHost]:
    """Serves `tmp_path/served repos` over HTTP with git's own http-backend."""
    host = GitHost()
    root = tmp_path / "served repos"
    backend = Path(git("--exec-path", cwd=tmp_path)) / "git-http-backend"
    if not backend.is_file():
        pytest.skip("git http-backend is not installed")

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            return

        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length")
            if length is not None:
                body = self.rfile.read(int(length))
            else:
                body = b""
                while size := int(self.rfile.readline().strip() or b"0", 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            self._answer(body)

        def do_PUT(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            host.objects[hashlib.sha256(content).hexdigest()] = content
            self._plain(200, b"")

        def _plain(self, status: int, content: bytes, *headers: tuple[str, str]) -> None:
            self.close_connection = True
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if host.cut_after and self.path.startswith("/objects/"):
                content = content[: host.cut_after.pop(0)]
            self.wfile.write(content)

        def _answer(self, body: bytes) -> None:
            host.asked.append(self.path)
            if self.path.endswith("/info/lfs/objects/batch"):
                self._batch(json.loads(body))
            elif self.path.startswith("/objects/"):
                content = host.objects[self.path.rpartition("/")[2]]
                start = int(self.headers.get("Range", "bytes=0-")[6:].rstrip("-") or 0)
                if start:
                    stated = f"bytes {start}-{len(content) - 1}/{len(content)}"
                    self._plain(206, content[start:], ("Content-Range", stated))
                else:
                    self._plain(200, content)
            else:
                self._backend(body)

        def _batch(self, request: dict[str, object]) -> None:
            if host.lfs_login and not self.headers.get("Authorization"):
                self._plain(401, b"{}", ("LFS-Authenticate", 'Basic realm="x"'))
                return
            objects = []
            for item in request["objects"]:
                oid = item["oid"]
                href = f"{host.href_scheme or host.url.partition(':')[0]}:{host.url.partition(':')[2]}/objects/{oid}"
                if request["operation"] == "upload":
                    actions = {} if oid in host.objects else {"actions": {"upload": {"href": href}}}
                    objects.append({**item, **actions})
                elif oid in host.objects:
                    objects.append({**item, "actions": {"download": {"href": href}}})
                else:
                    objects.append({**item, "error": {"code": 404, "message": "Object does not exist"}})
            answer = json.dumps({"transfer": "basic", "objects": objects}).encode()
            self._plain(200, answer, ("Content-Type", "application/vnd.git-lfs+json"))

        def _backend(self, body: bytes) -> None:
            if host.git_login and not self.headers.get("Authorization"):
                self._plain(401, b"", ("WWW-Authenticate", 'Basic realm="models"'))
                return
            path, _, query = self.path.partition("?")
            env = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": "" if host.old_protocol else self.headers.get("Git-Protocol", ""),
                "PATH_INFO": http.server.urllib.parse.unquote(path),
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "REMOTE_ADDR": "127.0.0.1",
            }
            done = subprocess.run((str(backend),), input=body, env=env, capture_output=True)
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            headers = [tuple(line.split(": ", 1)) for line in head.decode().splitlines() if ": " in line]
            status = next((int(value.split()[0]) for name, value in headers if name == "Status"), 200)
            self._plain(status, content, *(pair for pair in headers if pair[0] not in ("Status", "Content-Length")))

    with running(Handler) as port:
        host.url = f"http://127.0.0.1:{port}"
        yield host
