"""A server that speaks the part of the Hugging Face Hub's API that a publication uses: refs, paths-info, commits,
preupload, the LFS batch call, commit and resolve. One repository, commits in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

REPOSITORY = "team/IQModels"
API = f"/api/models/{REPOSITORY}"


@dataclass(frozen=True)
class Blob:
    data: bytes
    lfs: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def oid(self) -> str:
        return hashlib.sha1(f"blob {len(self.data)}\0".encode() + self.data).hexdigest()


@dataclass(frozen=True)
class Commit:
    id: str
    title: str
    message: str
    author: str
    tree: dict[str, Blob]


@dataclass
class HubServer:
    """Use as a context manager. token: who may write. before_commit: run once, as somebody who is quicker."""

    token: str = "hf_test"
    commits: list[Commit] = field(default_factory=list)
    stored: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    before_commit: Any = None
    broken: set[str] = field(default_factory=set)
    """Beginnings of `METHOD path` that end in a closed connection."""

    def __post_init__(self) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_any(self) -> None:
                server.handle(self)

            do_GET = do_HEAD = do_POST = do_PUT = handle_any

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> HubServer:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    # What somebody does to the repository without us.

    def add(self, title: str, changes: dict[str, bytes | None], *, author: str = "ann", message: str = "") -> Commit:
        tree = dict(self.commits[-1].tree) if self.commits else {}
        for path, data in changes.items():
            if data is None:
                del tree[path]
            else:
                tree[path] = Blob(data, lfs=path.endswith(".pkl"))
        return self._commit(title, message, author, tree)

    def add_directory(self, root: Path) -> None:
        hidden = (".git", ".supercombo-build")
        files = {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.relative_to(root).parts[0] not in hidden
        }
        self.add("Publish sixty models", dict(files))

    @property
    def files(self) -> dict[str, bytes]:
        return {path: blob.data for path, blob in self.commits[-1].tree.items()}

    def _commit(self, title: str, message: str, author: str, tree: dict[str, Blob]) -> Commit:
        name = hashlib.sha1(f"{len(self.commits)} {title} {message}".encode()).hexdigest()
        self.commits.append(Commit(name, title, message, author, tree))
        return self.commits[-1]

    # The API.

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        path = unquote(parts.path)
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        line = f"{request.command} {path}"
        self.asked.append(line)
        if any(line.startswith(one) for one in self.broken):
            request.close_connection = True
            return
        writing = request.command in ("POST", "PUT") and "/paths-info/" not in path
        if writing and not path.startswith("/lfs/") and request.headers.get("Authorization") != f"Bearer {self.token}":
            _answer(request, 401, {"error": "Invalid username or password."})
        elif path == f"{API}/refs":
            heads = [{"name": "main", "ref": "refs/heads/main", "targetCommit": self.commits[-1].id}]
            _answer(request, 200, {"branches": heads, "converts": [], "tags": []})
        elif path.startswith(f"{API}/paths-info/"):
            self._paths_info(request, self._at(path.rpartition("/")[2]), parse_qs(body.decode()))
        elif path.startswith(f"{API}/commits/"):
            told = [
                {"id": c.id, "title": c.title, "message": c.message, "date": _DATE, "authors": [{"user": c.author}]}
                for c in reversed(self.commits)
            ]
            _answer(request, 200, told)
        elif path.startswith(f"{API}/preupload/"):
            self._preupload(request, json.loads(body))
        elif path == f"/{REPOSITORY}.git/info/lfs/objects/batch":
            self._batch(request, json.loads(body))
        elif path.startswith("/lfs/"):
            self._put(request, path, body)
        elif path.startswith(f"{API}/commit/"):
            self._post_commit(request, [json.loads(line) for line in body.splitlines()])
        elif path.startswith(f"/{REPOSITORY}/resolve/"):
            revision, _, name = path.removeprefix(f"/{REPOSITORY}/resolve/").partition("/")
            blob = self._at(revision).tree.get(name)
            _send(request, 200 if blob else 404, blob.data if blob else b"Entry not found", "application/octet-stream")
        else:
            _answer(request, 404, {"error": "Repository not found"})

    def _at(self, revision: str) -> Commit:
        return next((one for one in self.commits if one.id == revision), self.commits[-1])

    def _paths_info(self, request: BaseHTTPRequestHandler, commit: Commit, asked: dict[str, list[str]]) -> None:
        told = []
        for path in asked["paths"]:
            blob = commit.tree.get(path)
            if blob is None:
                continue
            info: dict[str, Any] = {"type": "file", "path": path, "size": len(blob.data), "oid": blob.oid}
            if blob.lfs:
                info["lfs"] = {"oid": blob.sha256, "size": len(blob.data), "pointerSize": 134}
            if asked.get("expand", ["false"])[0].lower() == "true":
                last = self._last_change(path, commit)
                info["lastCommit"] = {"id": last.id, "title": last.title, "date": _DATE}
            told.append(info)
        _answer(request, 200, told)

    def _last_change(self, path: str, commit: Commit) -> Commit:
        found = commit
        for one in reversed(self.commits[: self.commits.index(commit) + 1]):
            if one.tree.get(path) != commit.tree[path]:
                break
            found = one
        return found

    def _preupload(self, request: BaseHTTPRequestHandler, asked: dict[str, Any]) -> None:
        tree = self.commits[-1].tree
        told = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(".pkl") else "regular",
                "shouldIgnore": False,
                "oid": tree[file["path"]].oid if file["path"] in tree else None,
            }
            for file in asked["files"]
        ]
        _answer(request, 200, {"files": told})

    def _batch(self, request: BaseHTTPRequestHandler, asked: dict[str, Any]) -> None:
        objects = []
        for item in asked["objects"]:
            told: dict[str, Any] = {"oid": item["oid"], "size": item["size"]}
            if item["oid"] not in self.stored:
                told["actions"] = {"upload": {"href": f"{self.url}/lfs/{item['oid']}"}}
            objects.append(told)
        _answer(request, 200, {"transfer": "basic", "objects": objects})

    def _put(self, request: BaseHTTPRequestHandler, path: str, body: bytes) -> None:
        oid = path.removeprefix("/lfs/")
        if hashlib.sha256(body).hexdigest() != oid:
            _answer(request, 400, {"error": "checksum mismatch"})
            return
        self.stored[oid] = body
        _answer(request, 200, {})

    def _post_commit(self, request: BaseHTTPRequestHandler, lines: list[dict[str, Any]]) -> None:
        if self.before_commit is not None:
            act, self.before_commit = self.before_commit, None
            act(self)
        header = lines[0]["value"]
        if header.get("parentCommit") not in (None, self.commits[-1].id):
            _answer(request, 412, {"error": "A commit has happened since. Please refresh and try again."})
            return
        tree = dict(self.commits[-1].tree)
        old = {blob.sha256: blob.data for one in self.commits for blob in one.tree.values() if blob.lfs}
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                tree[value["path"]] = Blob(base64.b64decode(value["content"]), lfs=False)
            elif line["key"] == "lfsFile":
                data = self.stored.get(value["oid"], old.get(value["oid"]))
                if data is None:
                    _answer(request, 400, {"error": f"LFS object {value['oid']} is not there"})
                    return
                tree[value["path"]] = Blob(data, lfs=True)
            elif line["key"] == "deletedFile":
                del tree[value["path"]]
        made = self._commit(header["summary"], header["description"], "publisher", tree)
        told = {"commitUrl": f"{self.url}/{REPOSITORY}/commit/{made.id}", "commitOid": made.id, "pullRequestUrl": None}
        _answer(request, 200, told)


_DATE = "2026-12-01T08:00:00.000Z"


def _answer(request: BaseHTTPRequestHandler, status: int, value: Any) -> None:
    extra = {"X-Error-Message": value["error"]} if isinstance(value, dict) and "error" in value else {}
    _send(request, status, json.dumps(value).encode(), "application/json", extra)


def _send(
    request: BaseHTTPRequestHandler, status: int, body: bytes, kind: str, extra: dict[str, str] | None = None
) -> None:
    request.send_response(status)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(len(body)))
    for key, value in (extra or {}).items():
        request.send_header(key, value)
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(body)
