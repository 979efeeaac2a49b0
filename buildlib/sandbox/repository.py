"""Makes the sandbox: a bare `origin`, a clone of it with both manifests, and the port of its server."""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from buildlib.core.catalog import Target
from buildlib.errors import TargetError
from buildlib.sandbox import manifests
from buildlib.sandbox.server import FileServer
from buildlib.store import files
from buildlib.targets.git_commands import Git

MANIFESTS = ("docs/model_selector_b.json", "docs/model_fetcher_b.json")


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """A sandbox on disk. origin: the bare repository; clone: the models repository; port: of its server."""

    root: Path
    port: int

    @property
    def origin(self) -> Path:
        """The bare repository that a publish pushes to."""
        return self.root / "origin.git"

    @property
    def clone(self) -> Path:
        """The models repository that a publish commits in."""
        return self.root / "IQModels"

    @property
    def url(self) -> str:
        """Where the server shows origin's files."""
        return f"http://127.0.0.1:{self.port}"

    def target(self, name: str = "sandbox") -> Target:
        """The sandbox as a target of models.yaml."""
        return Target(
            name=name,
            kind="git",
            repository=str(self.clone),
            manifests=MANIFESTS,
            directory=f"{manifests.DIRECTORY}/model-{{folder}}",
            url=f"{self.url}/{{path}}",
            sandbox=True,
            confirm_timeout=30.0,
            policy=("harness",),
        )

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """The base URL, with the server running at least until the block ends; one that runs already is used."""
        with contextlib.ExitStack() as stack:
            if not _answers(self.port):
                stack.enter_context(FileServer(self.origin, self.root / "served", port=self.port))
            yield self.url


def make_sandbox(root: Path, *, tinygrad_ref: str | None = None) -> Sandbox:
    """Makes a sandbox in a directory, or returns the one that is there. A half-made one is made anew.

    tinygrad_ref: written into the manifests, to practise the rail that one URL keeps one tinygrad.
    Raises TargetError when the directory holds something else.
    """
    root = root.resolve()
    with contextlib.suppress(TargetError):
        return open_sandbox(root)
    building = root.with_name(root.name + ".making")
    if root.exists() and any(root.iterdir()):
        raise TargetError(  # `git clean` takes a bare origin away, and leaves the clone beside it
            "the directory is not empty and no whole sandbox",
            where=str(root),
            remedy="look into it, move it away, then run doit sandbox",
        )
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    sandbox = Sandbox(root=building, port=_free_port())
    published = manifests.models()
    _git(building, "init", "-q", "--bare", "-b", "main", "origin.git")
    _git(building, "init", "-q", "-b", "main", "IQModels")
    git = Git(sandbox.clone)
    for key, value in (("user.name", "Sandbox"), ("user.email", "sandbox@localhost"), ("commit.gpgsign", "false")):
        git.run("config", key, value)
    for seed, path in enumerate(MANIFESTS):
        data = manifests.manifest(published, sandbox.url, tinygrad_ref=tinygrad_ref, seed=seed)
        files.write(sandbox.clone / path, data)
    for model in published:
        (sandbox.clone / model.path).parent.mkdir(parents=True, exist_ok=True)
        (sandbox.clone / model.path).write_bytes(model.data)
    git.run("add", "-A")
    git.run("commit", "-q", "--no-verify", "-m", "Publish sixty models")
    git.run("remote", "add", "origin", "../origin.git")
    git.run("push", "-q", "-u", "origin", "main")
    files.write(building / "sandbox.json", msgspec.json.encode({"port": sandbox.port}))
    if root.exists():
        root.rmdir()
    building.rename(root)
    return Sandbox(root=root, port=sandbox.port)


def open_sandbox(root: Path) -> Sandbox:
    """The sandbox in a directory. Raises TargetError where there is none."""
    try:
        told = msgspec.json.decode((root / "sandbox.json").read_bytes(), type=dict[str, int])
        return Sandbox(root=root.resolve(), port=told["port"])
    except (OSError, msgspec.DecodeError, KeyError, RecursionError) as error:
        raise TargetError("no sandbox here", where=str(root), remedy="make one: doit sandbox") from error


def _git(directory: Path, *argv: str) -> None:
    Git(directory).run(*argv)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.5):
        return True
    return False
