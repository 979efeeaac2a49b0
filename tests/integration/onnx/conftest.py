"""Small real ONNX files, made with the onnx package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.onnx_files import write_onnx


@pytest.fixture
def make_onnx(tmp_path: Path) -> Callable[..., Path]:
    """Writes an ONNX with a supercombo's inputs, or others; its path."""

    def make(name: str = "driving model.onnx", **more: object) -> Path:
        return write_onnx(tmp_path / name, **more)

    return make
