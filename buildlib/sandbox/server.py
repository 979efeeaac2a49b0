"""Shows the files of a bare repository's main branch over HTTP, as a raw-file host does, with range requests.

Also speaks as much of the git-lfs batch API as a push and a download need, so that LFS can be practised too.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

from buildlib.errors import BuildError
from buildlib.store import files
from buildlib.targets import git_tree
from buildlib.targets.git_commands import Git

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_OID = re.compile(r"/lfs/objects/([0-9a-f]{64})")
_LFS_TYPE = "application/vnd.git-lfs+json"


class FileServer:
    """A server on 127.0.0.1 for one bare repository; a context manager. port 0: any that is free.

    cache: a directory for files as they are shown, and for LFS objects.
    """

    def __init__(self, origin: Path, cache: Path, *, port: int = 0, branch: str = "main") -> None:
        self._git = Git(origin)
        self._cache = cache
        self._branch = branch
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                server.get(self)

            def do_HEAD(self) -> None:
                server.get(self)

            def do_PUT(self) -> None:
                server.put(self)

            def do_POST(self) -> None:
                server.batch(self)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """Base URL of the files."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def lfs_url(self) -> str:
        """For `git config lfs.url`."""
        return f"{self.url}/lfs"

    def __enter__(self) -> FileServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def wait(self) -> None:
        """Serves until interrupted."""
        self._thread.join()

    def get(self, request: BaseHTTPRequestHandler) -> None:
        """A file, or the rest of one from a byte on."""
        file = self._file(unquote(urlsplit(request.path).path))
        if file is None:
            _answer(request, HTTPStatus.NOT_FOUND, b"")
            return
        size = file.stat().st_size
        start, end, status = 0, size, HTTPStatus.OK
        if match := _RANGE.fullmatch(request.headers.get("Range", "")):
            start = int(match.group(1))
            end = min(size, int(match.group(2)) + 1) if match.group(2) else size
            status = HTTPStatus.PARTIAL_CONTENT
            if start >= size:
                request.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
                request.send_header("Content-Range", f"bytes */{size}")
                request.send_header("Content-Length", "0")
                request.end_headers()
                return
        request.send_response(status)
        request.send_header("Content-Type", "application/octet-stream")
        request.send_header("Accept-Ranges", "bytes")
        request.send_header("Content-Length", str(end - start))
        request.send_header("ETag", f'"{file.name}"')
        if status == HTTPStatus.PARTIAL_CONTENT:
            request.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        request.end_headers()
        if request.command == "GET":
            with file.open("rb") as source:
                source.seek(start)
                left = end - start
                while left and (block := source.read(min(left, 1 << 20))):
                    request.wfile.write(block)
                    left -= len(block)

    def put(self, request: BaseHTTPRequestHandler) -> None:
        """An LFS object, believed by its hash."""
        match = _OID.fullmatch(urlsplit(request.path).path)
        data = request.rfile.read(int(request.headers.get("Content-Length", "0")))
        if match is None or hashlib.sha256(data).hexdigest() != match.group(1):
            _answer(request, HTTPStatus.BAD_REQUEST, b"")
            return
        files.write(self._lfs_object(match.group(1)), data)
        _answer(request, HTTPStatus.OK, b"")

    def batch(self, request: BaseHTTPRequestHandler) -> None:
        """The git-lfs batch call: where to put or fetch objects."""
        body = request.rfile.read(int(request.headers.get("Content-Length", "0")))
        if urlsplit(request.path).path != "/lfs/objects/batch":
            _answer(request, HTTPStatus.NOT_FOUND, b"{}", _LFS_TYPE)
            return
        asked = json.loads(body)
        told = []
        for item in asked["objects"]:
            there = self._lfs_object(item["oid"]).exists()
            link = {"href": f"{self.lfs_url}/objects/{item['oid']}"}
            answer: dict[str, object] = {"oid": item["oid"], "size": item["size"]}
            if asked["operation"] == "upload" and not there:
                answer["actions"] = {"upload": link}
            elif asked["operation"] == "download" and there:
                answer["actions"] = {"download": link}
            elif asked["operation"] == "download":
                answer["error"] = {"code": 404, "message": "no such object"}
            told.append(answer)
        _answer(request, HTTPStatus.OK, json.dumps({"transfer": "basic", "objects": told}).encode(), _LFS_TYPE)

    def _lfs_object(self, oid: str) -> Path:
        return self._cache / "lfs" / oid

    def _file(self, path: str) -> Path | None:
        if match := _OID.fullmatch(path):
            found = self._lfs_object(match.group(1))
            return found if found.exists() else None
        name = path.lstrip("/")
        try:
            tree = git_tree.files_at(self._git, f"refs/heads/{self._branch}", name)
            if name not in tree:
                return None
            oid = tree[name].oid
            shown = self._cache / oid
            if not shown.exists():
                content = git_tree.content(self._git, oid)
                if content.storage == "lfs" and self._lfs_object(content.sha256).exists():
                    shown.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(self._lfs_object(content.sha256), shown)
                else:
                    with files.replacing(shown) as output:
                        self._git.stream(output, "cat-file", "blob", oid)
        except BuildError:
            return None
        return shown


def _answer(request: BaseHTTPRequestHandler, status: HTTPStatus, body: bytes, kind: str = "text/plain") -> None:
    request.send_response(status)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
