"""A token in an address or the environment is told nowhere: no log, receipt, message, report, commit or error."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from buildlib.errors import BuildError
from buildlib.sandbox import make_sandbox
from tests.integration.publish_kit import Desk, git, model
from tests.support.projects import Project, Run

TOKEN = "TOPSECRET0123456789"


@contextlib.contextmanager
def serving(files: dict[str, bytes]) -> Iterator[str]:
    """A server that wants the token as `?token=`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            data = files.get(path) if query == f"token={TOKEN}" else None
            self.send_response(200 if data is not None else 403)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def told(folder: Path) -> list[str]:
    """Files below a folder that hold the token."""
    found = [path for path in folder.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    return [str(path.relative_to(folder)) for path in found]


def quiet(run: Run) -> Run:
    assert TOKEN not in run.text, run.text
    return run


LOOKS = (
    ("status", "--json"),
    ("explain", "one"),
    ("explain", "--json", "one"),
    ("plan", "--json", "one"),
    ("report", "--json"),
    ("diagnose", "one"),
    ("list", "--all", "--status"),
)


def test_a_token_in_a_sources_address_is_told_nowhere(project: Project) -> None:
    data = (project.root / "one.onnx").read_bytes()
    project.environment = {"MODELS_TOKEN": TOKEN, "HF_TOKEN": TOKEN, "GITHUB_TOKEN": TOKEN}
    with serving({"/one.onnx": data}) as url:
        address = f"{url}/one.onnx?token=${{MODELS_TOKEN}}"
        project.models["one"]["source"] = {"kind": "url", "url": address, "sha256": hashlib.sha256(data).hexdigest()}
        project.declare()
        assert "1 model" in quiet(project.doit("one")).ok().out
        for look in LOOKS:
            quiet(project.doit(*look))
        project.models["one"]["source"]["sha256"] = "0" * 64
        project.declare()
        assert quiet(project.doit("one")).status == 1
        project.models["one"]["source"]["url"] = f"{url}/two.onnx?token=${{MODELS_TOKEN}}"
        project.declare()
        assert quiet(project.doit("one")).status == 1
    assert quiet(project.doit("one")).status == 1
    for look in LOOKS:
        quiet(project.doit(*look))
    # The parsed models.yaml is kept for its owner alone.
    assert told(project.root.parent) == [f"{project.root.name}/.build/cache/catalog.msgpack"]
    assert (project.root / ".build/cache/catalog.msgpack").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("login", ["${MODELS_TOKEN}@", "me:${MODELS_TOKEN}@"])
@pytest.mark.parametrize("kind", ["url", "git", "target"])
def test_a_login_in_models_yaml_is_refused_without_repeating_it(project: Project, login: str, kind: str) -> None:
    project.environment = {"MODELS_TOKEN": TOKEN}
    address = f"https://{login}models.example/one.onnx"
    if kind == "url":
        project.models["one"]["source"] = {"kind": "url", "url": address, "sha256": "0" * 64}
    elif kind == "git":
        project.models["one"]["source"] = {"kind": "git", "repository": address, "ref": "main", "path": "one.onnx"}
    else:
        project.head["targets"] = {"sandbox": {"repository": "clone", "sandbox": True, "url": address}}
        project.models["one"]["target"] = "sandbox"
    project.declare()
    assert quiet(project.doit("one")).status in (1, 4)
    assert not [path for path in told(project.root) if "catalog.msgpack" not in path]


@pytest.mark.parametrize("lfs", [False, True])
def test_a_login_in_the_clones_remote_is_told_nowhere(tmp_path: Path, lfs: bool) -> None:
    made = make_sandbox(tmp_path / "sandbox")
    desk = Desk(sandbox=made, settings=made.target(), blobs=tmp_path / "blobs")
    if lfs:
        if subprocess.run(["git", "lfs", "version"], capture_output=True, check=False).returncode:
            pytest.skip("git-lfs is not installed")
        (desk.clone / ".gitattributes").write_text("*.pkl filter=lfs diff=lfs merge=lfs -text\n")
        git(desk.clone, "lfs", "install", "--local")
        git(desk.clone, "add", ".gitattributes")
        git(desk.clone, "commit", "-qm", "Large files")
        git(desk.clone, "push", "-q", "--no-verify")
    with serving({}) as url:
        secret = url.replace("http://", f"http://me:{TOKEN}@")
        address = str(desk.sandbox.origin) if lfs else f"{secret}/models.git"
        git(desk.clone, "remote", "set-url", "origin", address)
        git(desk.clone, "config", "lfs.url", f"{secret}/lfs")
        with pytest.raises(BuildError) as caught:
            desk.target.publish(desk.request("nopp", b"an artifact\n" * 100))
        state = desk.target.inspect(desk.request("nopp", b"an artifact\n" * 100))
    assert TOKEN not in caught.value.render()
    assert TOKEN not in repr(state)
    assert told(tmp_path) == ["sandbox/IQModels/.git/config"]
    git(desk.clone, "remote", "set-url", "origin", str(desk.sandbox.origin))
    git(desk.clone, "config", "--unset", "lfs.url")
    assert desk.target.observe(model("nopp")).unpushed is None
