"""What the target's tinygrad cannot do, or is not, is named before the compile."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from tests.support.projects import CHECKOUT, Project


@pytest.fixture(autouse=True)
def reader(project: Project) -> None:
    """Gives the device's small tinygrad the real one's ONNX reader."""
    found = importlib.util.find_spec("tinygrad")
    assert found is not None
    assert found.origin is not None
    (package,) = project.device().rglob("tinygrad/__init__.py")
    (package.parent / "nn").mkdir(exist_ok=True)
    shutil.copy(Path(found.origin).parent / "nn" / "onnx.py", package.parent / "nn" / "onnx.py")


def test_the_table_is_read_once_for_a_tinygrad(project: Project, sample_onnx: Path) -> None:
    (project.root / "good.onnx").write_bytes(sample_onnx.read_bytes())
    project.add("good", "good.onnx")
    project.doit("good").ok()
    assert len(list((project.root / ".build/cache/operators").iterdir())) == 1


def test_a_users_own_tinygrad_is_named_with_the_one_that_is_meant(project: Project, tmp_path: Path) -> None:
    installed = tmp_path / "installed" / "tinygrad-0.13.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: tinygrad\nVersion: 0.13.0\n")
    project.environment["PYTHONPATH"] = f"{installed.parent}:{CHECKOUT}"
    run = project.doit("one")
    assert run.status == 1
    assert "expected tinygrad 0.14.0, got 0.13.0" in run.out
    assert "  try   " in run.out
    assert project.calls() == []
