"""What tests of publishing share: a sandbox, the guide's models, and other people with clones of their own."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from buildlib.core.catalog import Bundle, Model, SampleSource, Target
from buildlib.core.manifests.manifest import Entry, read_entry
from buildlib.errors import TargetError
from buildlib.ports.events import Silent
from buildlib.ports.source import SourceContext
from buildlib.ports.target import Artifact, Request
from buildlib.sandbox import Sandbox
from buildlib.sandbox.manifests import GUIDE_MODELS
from buildlib.steps.redownload import redownload
from buildlib.store import files, locks
from buildlib.targets.folder import Folder
from buildlib.targets.git_repository import GitRepository
from buildlib.targets.split import FetchBack

NAMES = {"tobyrl": 0, "nopp": 1, "drl3": 2}


def git(where: Path, *argv: str, check: bool = True) -> str:
    """git, as somebody else would run it."""
    done = subprocess.run(
        ["git", "-c", "user.name=Ann Other", "-c", "user.email=ann@example.org", *argv],
        cwd=where,
        check=False,
        capture_output=True,
        text=True,
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def model(name: str) -> Model:
    """One of the guide's three models as models.yaml would give it."""
    short, display, folder, file_name = GUIDE_MODELS[NAMES[name]]
    return Model(
        name=name,
        display_name=display,
        folder=folder,
        sources={"supercombo": SampleSource(seed=1)},
        artifacts={"supercombo": file_name},
        profile="cpu",
        bundle=Bundle(short_name=short),
    )


@dataclasses.dataclass
class Desk:
    """One workstation's view of a sandbox."""

    sandbox: Sandbox
    settings: Target
    blobs: Path

    @property
    def clone(self) -> Path:
        return Path(self.settings.repository)

    @property
    def target(self) -> GitRepository:
        return GitRepository(self.settings, self.clone)

    def with_settings(self, **changes: object) -> Desk:
        return dataclasses.replace(self, settings=msgspec.structs.replace(self.settings, **changes))

    def request(self, name: str, data: bytes, **changes: object) -> Request:
        """A request to publish these bytes as a model's artifact."""
        sha256 = hashlib.sha256(data).hexdigest()
        path = self.blobs / sha256
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        wanted = model(name)
        request = Request(
            model=wanted,
            artifacts=(Artifact(file_name=wanted.artifact, path=path, sha256=sha256, size=len(data)),),
            message=f"Recompile {wanted.display_name} with OPENPILOT_HACKS=1",
            build_time="2026-12-01T08:00:00Z",
            tinygrad="9c8d21f4" * 5,
            confined="made from a sample",
        )
        return dataclasses.replace(request, **changes)  # type: ignore[arg-type]

    def artifact_path(self, name: str) -> str:
        wanted = model(name)
        return f"models/recompiled16/model-{wanted.folder}/{wanted.artifact}"

    def entry(self, name: str, path: str = "docs/model_selector_b.json", at: str = "origin/main") -> Entry:
        """What a manifest on origin says of a model."""
        data = subprocess.run(
            ["git", "show", f"{at.removeprefix('origin/')}:{path}"],
            cwd=self.sandbox.origin,
            check=True,
            capture_output=True,
        ).stdout
        wanted = model(name)
        assert wanted.bundle is not None
        return read_entry(data, wanted.artifact, wanted.bundle.short_name)

    def shown(self, name: str) -> bytes:
        """A model's artifact on origin."""
        return subprocess.run(
            ["git", "show", f"main:{self.artifact_path(name)}"],
            cwd=self.sandbox.origin,
            check=True,
            capture_output=True,
        ).stdout

    def head(self) -> str:
        return git(self.sandbox.origin, "rev-parse", "main")

    def other(self, where: Path) -> Path:
        """Somebody else's clone."""
        git(where.parent, "clone", "-q", str(self.sandbox.origin), str(where))
        return where

    def snapshot(self) -> dict[str, str]:
        """All that a refused publish may not change: branch, index, status, files, origin."""
        files = {
            str(path.relative_to(self.clone)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.clone.rglob("*"))
            if path.is_file() and ".git" not in path.relative_to(self.clone).parts
        }
        return {
            "head": git(self.clone, "rev-parse", "HEAD", check=False),
            "index": git(self.clone, "ls-files", "-s"),
            "status": git(self.clone, "status", "--porcelain"),
            "origin": self.head(),
            **files,
        }


def copy_sandbox(made: Sandbox, where: Path) -> Desk:
    """A sandbox of one's own; a copy of a made one is quicker than making it."""
    shutil.copytree(made.root, where, symlinks=True)
    sandbox = Sandbox(root=where, port=made.port)
    return Desk(sandbox=sandbox, settings=sandbox.target(), blobs=where.parent / "blobs")


def fetch_back(scratch: Path, *, timeout: float = 5.0) -> FetchBack:
    """Downloads published files, as the publish step does. scratch: for what comes back."""
    context = SourceContext(root=scratch, state=scratch / "state", hash_file=files.hash_file)

    def fetch(entry: Entry, former: tuple[Entry, ...]) -> None:
        scratch.mkdir(exist_ok=True)
        redownload(entry, former, scratch / "back", context, timeout=timeout).path.unlink()

    return fetch


class OtherCheckout(Silent):
    """Another checkout of the tool that is at work behind a lock, and ends as soon as somebody waits for it."""

    def __init__(self, lock: Path) -> None:
        self.told: list[str] = []
        self._work = contextlib.ExitStack()
        self._work.enter_context(locks.exclusive(lock, "doit publish:drl3", wait=0))

    def step(self, subject: str, stage: str, text: str) -> None:
        self.told.append(text)
        self._work.close()


def as_owner(path: Path) -> None:
    """Makes a file executable (a hook)."""
    os.chmod(path, 0o755)


def hook(repository: Path, name: str, script: str) -> None:
    """Installs a hook; repository: a git directory."""
    path = repository / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n" + script)
    as_owner(path)


def refused(desk: Desk, match: str, remedy: str) -> None:
    """Publish and inspect both refuse in one line with its remedy, and change nothing."""
    before = desk.snapshot()
    with pytest.raises(TargetError, match=match) as caught:
        desk.target.publish(desk.request("nopp", b"an artifact\n"))
    assert remedy in (caught.value.remedy or "")
    assert "\n" not in caught.value.headline()
    assert desk.snapshot() == before
    state = desk.target.inspect(desk.request("nopp", b"an artifact\n"))
    assert any(caught.value.what.split(":")[0] in check.what for check in state.refused), state.refused


def folder(share: Desk) -> Folder:
    """The folder target of a desk."""
    return Folder(share.settings, share.clone)
