"""A project in a directory of its own, built by the real `doit` in a process of its own, as a user would."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import pickletools
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support import stand_in
from tests.support.stand_in import fingerprint

CHECKOUT = Path(__file__).parent.parent.parent
SCRIPT = "/data/stand-in/compile.py"
FLAGS = {"DEV": "CPU", "WARP_DEV": "CPU"}


@dataclass(frozen=True)
class Run:
    """One finished run of doit."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All that it said."""
        return self.out + self.err

    def ok(self) -> Run:
        """Itself, where it ended well."""
        assert self.status == 0, f"status {self.status}\n{self.text}"
        return self

    def without_traceback(self) -> Run:
        """Itself, where it showed no traceback."""
        assert "Traceback" not in self.text, self.text
        return self


@dataclass
class Project:
    """root: holds models.yaml. device: the root of the device `local`; more devices lie beside it."""

    root: Path
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    devices: dict[str, Path] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)
    code: Path = CHECKOUT
    environment: dict[str, str] = field(default_factory=dict)
    head: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    """Of every device, over the usual ones."""

    # The declaration

    def add(self, name: str, source: Any, **more: Any) -> None:
        """Declares a model; a Path is a path source."""
        spelt = str(source) if isinstance(source, Path) else source
        artifact = f"driving_supercombo_{name}.pkl"
        self.models[name] = {"display_name": f"Model {name}", "source": spelt, "artifact": artifact, **more}
        self.declare()

    def declare(self) -> None:
        """Writes models.yaml."""
        devices = {
            name: {
                "transport": "local",
                "profile": "cpu",
                "compile_script": self.scripts.get(name, SCRIPT),
                "install": True,
                "goal": "install",
                "paths": {"root": str(path), "python": str(path / "python")},
                **self.settings,
            }
            for name, path in self.devices.items()
        }
        text = {
            "defaults": {"device": "local", "profile": "cpu"},
            "devices": devices,
            "models": self.models,
            **self.head,
        }
        (self.root / "models.yaml").write_text(yaml.safe_dump(text, sort_keys=False))

    # Running

    def command(self, *arguments: str) -> list[str]:
        """The command line of a run."""
        return [sys.executable, "-m", "doit", *arguments]

    def environ(self) -> dict[str, str]:
        """A user's environment, with this checkout in it."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {**kept, "PYTHONPATH": str(self.code), "PYTHONDONTWRITEBYTECODE": "1", **self.environment}

    def doit(self, *arguments: str, cwd: Path | None = None) -> Run:
        """Runs doit to its end. A run that shows a traceback fails the test."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=cwd or self.root,
            env=self.environ(),
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
        return Run(done.returncode, done.stdout, done.stderr).without_traceback()

    def start(self, *arguments: str, wrapper: Iterable[str] = ()) -> subprocess.Popen[str]:
        """Starts doit and returns at once."""
        return subprocess.Popen(
            [*wrapper, *self.command(*arguments)],
            cwd=self.root,
            env=self.environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def status(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """`doit status --json` by model: its stages."""
        found = json.loads(self.doit("status", "--json", *arguments).ok().out)
        return {row["model"]: row["stages"] for row in found}

    # What is there

    def device(self, name: str = "local") -> Path:
        """A device's root."""
        return self.devices[name]

    def control(self, name: str = "local") -> Path:
        """Where the stand-in looks for wishes."""
        return self.devices[name] / "data" / "stand-in"

    def artifact(self, model: str) -> Path:
        """A model's artifact here."""
        return self.root / "artifacts" / model / self.models[model]["artifact"]

    def calls(self, device: str = "local") -> list[str]:
        """Artifact names in the order in which their compiles began."""
        return [line.split()[0] for line in self._calls(device) if not line.endswith("done")]

    def finished(self, device: str = "local") -> list[str]:
        """Artifact names in the order in which their compiles ended well."""
        return [line.split()[0] for line in self._calls(device) if line.endswith("done")]

    def _calls(self, device: str) -> list[str]:
        path = self.control(device) / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def compiled(self, model: str, device: str = "local") -> int:
        """How many compiles of a model began."""
        return self.calls(device).count(f"driving_supercombo_{model}.pkl")

    def wish(self, kind: str, model: str, text: str = "") -> Path:
        """Asks the stand-in for `sleep`, `fail` or `hook` in a model's next compiles."""
        path = self.control() / f"{kind}-driving_supercombo_{model}.pkl"
        path.write_text(text)
        return path

    def hold(self, model: str) -> Path:
        """A model's next compile goes on until the file given here is removed; it is there once that compile began."""
        return self.wish("hold", model).with_name(f"held-driving_supercombo_{model}.pkl")

    def fingerprint(self, model: str) -> bytes:
        """What made the artifact that lies here."""
        data = self.artifact(model).read_bytes()
        offset = int((self.control() / "offset").read_text())
        return data[offset : offset + 32]

    def made_from(self, model: str, onnx: bytes, **flags: str) -> bool:
        """True when the artifact that lies here was made from these bytes, with these flags over the profile's."""
        return self.fingerprint(model) == fingerprint(onnx, {**FLAGS, **flags})

    def switch_off(self, name: str = "local") -> None:
        """The device answers no more."""
        (self.devices[name] / "python").rename(self.devices[name] / "switched off")

    def switch_on(self, name: str = "local") -> None:
        """The device answers again."""
        (self.devices[name] / "switched off").rename(self.devices[name] / "python")

    def receipts(self) -> list[Path]:
        """All receipts."""
        return sorted((self.root / ".build" / "receipts").glob("*/*.json"))

    def assert_right(self) -> None:
        """The state is what it says: whole files, equal to their hashes, made from the present inputs, no leftovers."""
        for name, model in self.models.items():
            artifact = self.artifact(name)
            digest = hashlib.sha256(artifact.read_bytes()).hexdigest()
            assert artifact.with_name(f"{artifact.name}.sha256").read_text() == f"{digest}  {artifact.name}\n"
            source = self.root / model["source"]
            flags = {flag: str(value) for flag, value in model.get("flags", {}).items()}
            assert self.made_from(name, source.read_bytes(), **flags), f"{name} is not what its inputs make"
            active = self.device() / "data/media/0/models" / artifact.name
            assert active.read_bytes() == artifact.read_bytes()
        partial = [path for path in (self.root / "artifacts").rglob("*") if path.name.startswith(".")]
        assert partial == [], partial


def new_project(folder: Path, artifact: Path, compiler: tuple[Path, str]) -> Project:
    """A project with the device `local`, its stand-in compile script and a small tinygrad of its own."""
    root = folder / "a project's root"
    root.mkdir(parents=True)
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copy(CHECKOUT / name, root / name)
    project = Project(root)
    add_device(project, "local", artifact)
    _seed_compiler(root, compiler)
    return project


def moved_copy(project: Project, folder: Path) -> Project:
    """The project and its devices, copied with their times into another folder."""
    for path in (project.root, *project.devices.values()):
        shutil.copytree(path, folder / path.name, symlinks=True)
    devices = {name: folder / path.name for name, path in project.devices.items()}
    copied = Project(folder / project.root.name, copy.deepcopy(project.models), devices, dict(project.scripts))
    copied.declare()
    return copied


def add_device(project: Project, name: str, artifact: Path) -> Path:
    """A device with a directory of its own beside the project."""
    device = project.root.parent / f"device {name}"
    control = device / "data" / "stand-in"
    control.mkdir(parents=True)
    shutil.copy(Path(stand_in.__file__), control / "compile.py")
    (control / "artifact").symlink_to(artifact)
    (control / "offset").write_text(str(free_offset(artifact)))
    # Answers like python until a test takes it away: the device is unreachable then.
    (device / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (device / "python").chmod(0o755)
    tinygrad = device / "data" / "openpilot" / "tinygrad_repo" / "tinygrad"
    tinygrad.mkdir(parents=True)
    (tinygrad / "__init__.py").write_text("version = 1\n")
    project.devices[name] = device
    return device


def _seed_compiler(root: Path, compiler: tuple[Path, str]) -> None:
    """The C compiler was found once for all tests; trying it out takes seconds."""
    from buildlib.core.key import digest
    from buildlib.steps.toolchain import _candidates
    from buildlib.store.files import write_sealed

    place = root / ".build" / "cache" / "c-compiler.json"
    place.parent.mkdir(parents=True)
    path, identity = compiler
    told = {"stamp": digest(_candidates()), "path": str(path), "identity": identity}
    write_sealed(place, json.dumps(told).encode())


@cache
def free_offset(artifact: Path) -> int:
    """Where 32 bytes of weights may be overwritten without harm: in the middle of the largest buffer."""
    sizes = {
        position: len(argument)
        for operation, argument, position in pickletools.genops(artifact.read_bytes())
        if isinstance(argument, bytes) and len(argument) > 100_000
    }
    place = max(sizes, key=lambda position: sizes[position])
    return place + sizes[place] // 2


def variant(onnx: bytes, number: int) -> bytes:
    """The same ONNX with other weights, of the same size."""
    middle = len(onnx) // 2
    return onnx[:middle] + number.to_bytes(4, "little") + onnx[middle + 4 :]


def until(what: Callable[[], Any], seconds: float = 60) -> Any:
    """Waits for something to become true, and gives it; a test that waits in vain fails here."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it never became true")


def hear(process: subprocess.Popen[str], words: str) -> str:
    """Waits for the line of a running build that has these words, and gives it."""
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return line
    raise AssertionError(f"it ended without: {words}")


def end(process: subprocess.Popen[str]) -> None:
    """Ends a process that a failed test left behind."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
        process.wait()
