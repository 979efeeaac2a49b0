"""Self-checks of the compile script that no ONNX provokes: tinygrad is at fault, in the compile or in the replay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.small_model import Model

pytestmark = pytest.mark.compile

COMPILE, REPLAY = "'--replay' not in sys.orig_argv", "'--replay' in sys.orig_argv"

# Python imports `sitecustomize` at its start.
PICKLE = """
import sys
if '--replay' not in sys.orig_argv:
    import tinygrad.device as device
    make = device.Buffer.__reduce_ex__

    def spoiled(self, protocol):
        kind, arguments, *rest = make(self, protocol)
        arguments = list(arguments)
        for at, value in enumerate(arguments):
            if isinstance(value, (bytes, bytearray)) and self.size > 1000 and "half" in str(self.dtype):
                arguments[at] = bytearray(value)
                arguments[at][1001] ^= 0x40
        return (kind, tuple(arguments), *rest)

    device.Buffer.__reduce_ex__ = spoiled
"""

READ = """
import sys
if {when}:
    import numpy
    import tinygrad.tensor as tensor
    read, times, first = tensor.Tensor.numpy, dict(), dict()

    def spoiled(self):
        out = numpy.array(read(self))
        n = times[out.shape] = times.get(out.shape, 0) + 1
        {fault}
        return out

    tensor.Tensor.numpy = spoiled
"""

OUT, WARPED, FEATURES = (1, 34), (2, 6, 8, 16), (12, 1, 4)
SAME_BITS = "expected the same bits, got 1 of"


@pytest.fixture
def faulty(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """The environment in which a fault is part of every Python."""

    def put(fault: str) -> dict[str, str]:
        (tmp_path / "fault").mkdir()
        (tmp_path / "fault" / "sitecustomize.py").write_text(fault)
        return {"PYTHONPATH": str(tmp_path / "fault")}

    return put


def test_a_pickle_that_replays_other_bits_is_refused(
    refused: Callable[..., str], faulty: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    text = refused(Model().write(tmp_path / "m.onnx"), 24, environment=faulty(PICKLE))
    assert "run_policy: out0 differs after a pickle round trip: expected the same bits, got" in text


# Two answers a drive: the direct run reads 1 and 2, the captures 3 to 8, what is judged 9 and 10, again 11 and 12, the
# other seed 13 and 14, at rest 15 and 16. Queues and warps are read once a drive.
READS = {
    "an answer that comes out otherwise the second time": (
        COMPILE,
        f"if out.shape == {OUT} and n == 12: out[0, 3] += 1",
        24,
        f"run_policy: out1 differs when run twice: {SAME_BITS} 34 numbers off",
    ),
    "a queue that comes out otherwise the second time": (
        COMPILE,
        f"if out.shape == {FEATURES} and n == 6: out[0] += 1",
        24,
        "run_policy: feat_q differs when run twice",
    ),
    "a number that only the captured jit loses": (
        COMPILE,
        f"if out.shape == {OUT} and n == 10: out[0, 3] = numpy.nan",
        20,
        "run_policy: out1: expected finite numbers, got 1 NaN or infinite ones of 34",
    ),
    "a number that is lost at rest": (
        COMPILE,
        f"if out.shape == {OUT} and n == 15: out[0, 3] = numpy.inf",
        20,
        "run_policy at rest: out0: expected finite numbers, got 1",
    ),
    "a warp that ignores its frames": (
        COMPILE,
        f"if out.shape == {WARPED}: out[:] = 7",
        23,
        "warp 64x48: out0 is the same for other inputs",
    ),
    "a queue that is another after the round trip": (
        REPLAY,
        f"if out.shape == {FEATURES}: out[0, 0, 0] += 1",
        24,
        f"run_policy: feat_q differs after a pickle round trip: {SAME_BITS} 48 numbers off",
    ),
    "a warp that is another after the round trip": (
        REPLAY,
        f"if out.shape == {WARPED}: out[0, 0, 0, 0] ^= 1",
        24,
        f"warp 64x48: out0 differs after a pickle round trip: {SAME_BITS} 1536 numbers off",
    ),
    "a replay that ignores its inputs": (
        REPLAY,
        f"if out.shape == {OUT}: out = first.setdefault(n % 2, out)",
        23,
        "run_policy: out0 is the same for other inputs",
    ),
}


@pytest.mark.parametrize("case", READS)
def test_what_is_read_back_wrong_is_refused(
    refused: Callable[..., str], faulty: Callable[[str], dict[str, str]], tmp_path: Path, case: str
) -> None:
    when, fault, status, says = READS[case]
    environment = faulty(READ.format(when=when, fault=fault))
    assert says in refused(Model().write(tmp_path / "m.onnx"), status, environment=environment)


def test_a_pickle_that_does_not_load_is_refused(
    refused: Callable[..., str], faulty: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    environment = faulty(f"import sys\nif {REPLAY}:\n    import pickle\n    pickle.load = lambda file: 1 / 0\n")
    text = refused(Model().write(tmp_path / "m.onnx"), 13, environment=environment)
    assert "the compile failed: ZeroDivisionError: division by zero" in text


def test_a_warp_on_another_device_than_expected_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    text = refused(Model().write(tmp_path / "m.onnx"), 25, environment={"WARP_DEV": "PYTHON"})
    assert text == "error: warp 64x48 was captured on PYTHON: expected CPU; check DEV and WARP_DEV"
