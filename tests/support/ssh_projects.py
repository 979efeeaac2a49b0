"""A project whose only device is reached over a real SSH server, with compiles that take no time."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.devices.comma import CommaDevice, comma_device
from tests.devices.network import Link, link
from tests.support import stand_in
from tests.support.projects import CHECKOUT, SCRIPT, Project, free_offset, variant

IDLE = 4.0
"""Seconds of silence after which these projects give a device up."""
REMOTE_SOURCE = "data/media/0/driving_supercombo_one_source.onnx"
REMOTE_OUTPUT = "data/media/0/models/driving_supercombo_one.recompiled.pkl"
ACTIVE = "data/media/0/models/driving_supercombo_one.pkl"
STATE = "data/supercombo-build"


@dataclass
class SshProject(Project):
    """`Project` on the device `desk`. comma: the device; settings: its section of models.yaml."""

    comma: CommaDevice = None  # type: ignore[assignment]
    settings: dict[str, Any] = field(default_factory=dict)
    more_devices: dict[str, Any] = field(default_factory=dict)

    def declare(self) -> None:
        """Writes models.yaml."""
        text = {
            "defaults": {"device": "desk", "profile": "cpu"},
            "devices": {"desk": self.settings, **self.more_devices},
            "models": self.models,
            **self.head,
        }
        (self.root / "models.yaml").write_text(yaml.safe_dump(text, sort_keys=False))

    def set(self, **changes: Any) -> None:
        """Changes the device's settings."""
        self.settings.update(changes)
        self.declare()

    def there(self, path: str) -> Path:
        """A path of the device, without its leading slash."""
        return self.comma.root / path

    @property
    def commands(self) -> int:
        """Commands that the device's SSH server was asked to run so far."""
        return self.comma.server.commands

    def through(self, proxy: Link) -> None:
        """From now on the device is reached through a proxy."""
        known_hosts = self.comma.home / f"known_hosts-{proxy.port}"
        known_hosts.write_text(self.comma.server.known_hosts_line(port=proxy.port))
        self.set(port=proxy.port, known_hosts=str(known_hosts))

    def jobs(self) -> list[Path]:
        """Directories of the device's jobs."""
        return sorted((self.there(STATE) / "jobs").glob("*"))

    def forget(self) -> None:
        """Makes project and device as they were before the first build."""
        end_jobs(self.comma.root)
        for path in (self.root / ".build", self.root / "artifacts", self.there(STATE)):
            shutil.rmtree(path, ignore_errors=True)
        for name in ("data/root-home", "data/root-cache", "data/root-uv-cache", "data/root-tmp"):
            shutil.rmtree(self.there(name), ignore_errors=True)
        for path in self.there("data/media/0").rglob("*"):
            if path.is_file():
                path.unlink()
        for path in [*self.control().glob("*-driving*"), self.control() / "calls"]:
            path.unlink(missing_ok=True)
        self.comma.set_param("IsOnroad", "0")

    def second_checkout(self, folder: Path) -> SshProject:
        """Another checkout of the same declaration, without any state."""
        root = folder / "another checkout"
        root.mkdir(parents=True)
        for name in ("dodo.py", "pyproject.toml", "models.yaml", *(model["source"] for model in self.models.values())):
            shutil.copy(self.root / name, root / name)
        return SshProject(
            root,
            models=dict(self.models),
            devices=self.devices,
            environment=self.environment,
            comma=self.comma,
            settings=self.settings,
        )


@contextlib.contextmanager
def ssh_project(folder: Path, artifact: Path, onnx: Path, **options: Any) -> Iterator[SshProject]:
    """A project with the model `one` from a file of its own. options: of `comma_device`."""
    root = folder / "a project's root"
    root.mkdir(parents=True)
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copy(CHECKOUT / name, root / name)
    with comma_device(folder, **options) as comma:
        put_stand_in(comma.root, artifact)
        device = comma.catalog_device
        project = SshProject(
            root,
            devices={"local": comma.root, "desk": comma.root},
            environment={"HOME": str(comma.home), "LC_ALL": "C.UTF-8"},
            comma=comma,
            settings={
                "host": device.host,
                "port": device.port,
                "user": device.user,
                "identity": device.identity,
                "known_hosts": device.known_hosts,
                "profile": "cpu",
                "install": True,
                "goal": "install",
                "compile_script": SCRIPT,
                "paths": {"root": device.paths.root},
                "timeouts": {"connect": IDLE, "idle": IDLE, "compile": 120, "validate": 120},
            },
        )
        (root / "one.onnx").write_bytes(variant(onnx.read_bytes(), 1))
        project.add("one", "one.onnx")
        try:
            yield project
        finally:
            end_jobs(comma.root)


def put_stand_in(root: Path, artifact: Path) -> None:
    """The quick compile script, at its place on a device."""
    control = root / SCRIPT.lstrip("/")
    control.parent.mkdir(parents=True)
    shutil.copy(Path(stand_in.__file__), control)
    (control.parent / "artifact").symlink_to(artifact)
    (control.parent / "offset").write_text(str(free_offset(artifact)))


def end_jobs(root: Path) -> None:
    """Kills what a failed test left running in a device's directory."""
    for pid in processes_in(root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


def processes_in(root: Path) -> list[int]:
    """Living processes that work in a directory of the device or name one among their arguments."""
    mark = str(root)
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            cwd = os.readlink(f"/proc/{entry}/cwd")
            words = Path(f"/proc/{entry}/cmdline").read_bytes().decode("utf-8", "replace")
            state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and (cwd.startswith(f"{mark}/") or f"{mark}/data/stand-in" in words):
                found.append(int(entry))
    return found


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    """A small file system over a directory of the device, with what was there; skipped where mounting is forbidden."""
    import pytest

    kept = path.with_name(f"{path.name} before")
    path.rename(kept)
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=False, capture_output=True
    )
    if done.returncode != 0:
        path.rmdir()
        kept.rename(path)
        pytest.skip("mounting is not allowed here")
    try:
        shutil.copytree(kept, path, dirs_exist_ok=True, symlinks=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
        path.rmdir()
        kept.rename(path)


__all__ = ["Link", "SshProject", "link", "ssh_project"]
