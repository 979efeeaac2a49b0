"""What the tests of faults share: a project behind a real SSH server, and a compile that must be refused."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.small_model import SMALL
from tests.support.ssh_projects import SshProject, ssh_project
from tests.support.ssh_said import fresh


@pytest.fixture(scope="module")
def one_desk(
    tmp_path_factory: pytest.TempPathFactory, sample_artifact: Path, sample_onnx: Path
) -> Iterator[SshProject]:
    """One project and device for all tests of a module."""
    with ssh_project(tmp_path_factory.mktemp("desk"), sample_artifact, sample_onnx) as project:
        yield project


@pytest.fixture
def desk(one_desk: SshProject) -> Iterator[SshProject]:
    """A project that has done nothing yet; its settings are put back afterwards."""
    with fresh(one_desk) as project:
        yield project


@pytest.fixture
def refused(run_compile: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> Callable[..., str]:
    """Compiles, and returns what stderr says, having seen the exit status, no traceback as last word, no file left."""

    def run(onnx: Path, status: int, **changes: Any) -> str:
        output = tmp_path / "out" / "artifact.pkl"
        output.parent.mkdir(exist_ok=True)
        done = run_compile(onnx, output, **(SMALL | changes))
        assert done.returncode == status, done.stdout + done.stderr
        assert list(output.parent.iterdir()) == []
        assert "Saved JITs" not in done.stdout
        last = done.stderr.splitlines()[-1]
        assert last.startswith("error: ")
        return "\n".join(line for line in done.stderr.splitlines() if line.startswith("error: "))

    return run
