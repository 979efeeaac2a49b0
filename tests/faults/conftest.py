"""What the tests of faults share: a project whose device is behind a real SSH server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
