"""Operators that a tinygrad lacks are named before the compile, from its source alone."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from buildlib.artifact.operators import installed_operators, operators_of
from buildlib.core.sources.operators import SupportedOperators, missing_operators, read_operators

from .test_model_form import SUPERCOMBO, inspection

SOURCE = """
class Domain(enum.Enum):
  ONNX = "ai.onnx"
  MICROSOFT = "com.microsoft"
class OnnxDataType(enum.IntEnum):
  FLOAT = 1; UINT8 = 2; FLOAT16 = 10
def get_onnx_ops():
  def helper(x): return x
  def _private(x): return x
  def Conv(X, W): return X
  def softmax_1(x): return x
  Softmax = {OpSetId(Domain.ONNX, 1): softmax_1, OpSetId(Domain.ONNX, 13): softmax_1}
  Fused = {OpSetId(Domain.MICROSOFT, 1): softmax_1}
  Late = {OpSetId(Domain.ONNX, 18): softmax_1}
  return {
    **{op: getattr(Tensor, op.lower()) for op in ("Neg", "Relu")},
    **{name: obj for name, obj in locals().items()},
  }
"""


def lines(operators: dict[str, int], supported: SupportedOperators | None = None, **more: object) -> list[str]:
    known = supported or read_operators(SOURCE)
    assert known is not None
    return [problem.text() for problem in missing_operators(inspection(SUPERCOMBO, operators=operators, **more), known)]


def test_functions_tables_and_methods_are_operators() -> None:
    known = read_operators(SOURCE)
    assert known is not None
    assert known.names == {"Conv", "Softmax", "Fused", "Late", "Neg", "Relu"}
    assert known.dtypes == {"float", "uint8", "float16"}


def test_what_is_there_is_fine_and_what_lacks_is_counted() -> None:
    assert lines({"Conv": 3, "Relu": 1, "Softmax": 1}) == []
    assert lines({"Conv": 3, "LSTM": 2, "helper": 1}) == [
        "the target's tinygrad lacks the operators LSTM (2 times), helper (1 time)"
    ]


def test_domains_and_opsets_count() -> None:
    assert "Late" in lines({"Late": 1})[0]
    assert lines({"Late": 1}, opsets={"": 18}) == []
    assert lines({"com.microsoft:Fused": 1}, opsets={"com.microsoft": 1}) == []
    assert "Fused" in lines({"Fused": 1})[0]
    assert "my.domain:Conv" in lines({"my.domain:Conv": 1}, opsets={"my.domain": 1})[0]


def test_an_unknown_dtype_is_named() -> None:
    assert lines({}, weight_dtypes={"float8e4m3fn": 10}) == [
        "the target's tinygrad does not know the dtype float8e4m3fn"
    ]


@pytest.mark.parametrize("source", ["", "def get_onnx_ops(:", "x = 1", "def get_onnx_ops():\n  return {}", "\0"])
def test_a_source_that_cannot_be_read_says_nothing(source: str) -> None:
    assert read_operators(source) is None


def test_the_table_is_the_one_that_tinygrad_itself_builds() -> None:
    code = "import sys, tinygrad.nn.onnx as onnx; print(*sorted(onnx.onnx_ops))"
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    known = installed_operators()
    assert known is not None
    assert known.names == set(done.stdout.split())


def test_a_tree_without_the_table_says_nothing(tmp_path: Path) -> None:
    assert operators_of(tmp_path) is None


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.11.0", "0.12.0", "0.13.0"])
def test_older_tinygrads_are_read_too(version: str, tmp_path: Path) -> None:
    asked = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(tmp_path), f"tinygrad=={version}")
    if subprocess.run(asked, capture_output=True).returncode:
        pytest.skip(f"pip cannot download tinygrad {version}")
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as archive:
        archive.extractall(tmp_path)
    known = operators_of(tmp_path)
    assert known is not None
    assert {"Conv", "Gemm", "Relu", "Softmax", "Concat"} <= known.names
