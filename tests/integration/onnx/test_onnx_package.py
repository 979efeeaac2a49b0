"""What the reader takes from the onnx package: its protobuf classes, and nothing that costs a second to load."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from buildlib.artifact import onnx_reader

BELOW_A_BYTE = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}
READ = "print(inspect_onnx(Path(sys.argv[1])).operators)\n"
PACKAGE = "import onnx\nprint(onnx.load(sys.argv[1]) == onnx.ModelProto.FromString(Path(sys.argv[1]).read_bytes()))\n"
TOGETHER = """
from concurrent.futures import ThreadPoolExecutor
def one(number):
    if number % 2:
        import onnx
        return onnx.load(sys.argv[1]) == onnx.ModelProto.FromString(Path(sys.argv[1]).read_bytes())
    return inspect_onnx(Path(sys.argv[1])).operators
with ThreadPoolExecutor(16) as pool:
    print(*pool.map(one, range(16)))
"""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (READ + "print({'numpy', 'ml_dtypes', 'onnx'} & {*sys.modules})\n", "{'Relu': 1} set()"),
        (READ + PACKAGE + READ, "{'Relu': 1} True {'Relu': 1}"),
        (PACKAGE + READ, "True {'Relu': 1}"),
        (TOGETHER, "{'Relu': 1} True " * 8),
    ],
)
def test_reading_loads_no_more_and_gets_on_with_the_rest(
    make_onnx: Callable[[], Path], tmp_path: Path, code: str, said: str
) -> None:
    head = "import sys\nfrom pathlib import Path\nfrom buildlib.artifact.onnx_reader import inspect_onnx\n"
    command = [sys.executable, "-c", head + code, str(make_onnx())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert " ".join(done.stdout.split("\n")).split() == said.split(), done.stderr


@pytest.mark.parametrize("name", onnx.TensorProto.DataType.keys())
def test_a_number_of_each_type_is_as_long_as_onnx_has_it(name: str) -> None:
    number = onnx.TensorProto.DataType.Value(name)
    if name in ("UNDEFINED", "STRING"):
        assert onnx_reader._bytes_of(number, 8) is None
    else:
        bits = BELOW_A_BYTE.get(name) or onnx.helper.tensor_dtype_to_np_dtype(number).itemsize * 8
        assert onnx_reader._bytes_of(number, 8) == bits
        assert onnx_reader._bytes_of(number, 9) == (9 * bits + 7) // 8
