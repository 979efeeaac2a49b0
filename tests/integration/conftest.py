from pathlib import Path

import pytest

from buildlib.sandbox import Sandbox, make_sandbox
from tests.integration.publish_kit import Desk, copy_sandbox


@pytest.fixture(scope="session")
def made_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return make_sandbox(tmp_path_factory.mktemp("made") / "sand box")


@pytest.fixture
def desk(made_sandbox: Sandbox, tmp_path: Path) -> Desk:
    return copy_sandbox(made_sandbox, tmp_path / "sand box")


@pytest.fixture
def share(desk: Desk) -> Desk:
    """The same with a folder target, as a mounted share would be."""
    return desk.with_settings(kind="folder")
