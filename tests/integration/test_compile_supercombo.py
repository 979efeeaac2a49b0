"""The compile script on the real sample: what it makes is what the runtime expects, and loads where it was not made."""

from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.scripts import lay_script

pytestmark = pytest.mark.compile

Compile = Callable[..., subprocess.CompletedProcess[str]]

# A runtime of our own: knows the contract, knows nothing of the compile script.
RUNTIME = '''
import json, os, pickle, sys
import numpy as np
from tinygrad import Tensor

names = set()


class Noting(pickle.Unpickler):
    def find_class(self, module, name):
        names.add(f"{module}.{name}")
        return super().find_class(module, name)


artifact = Noting(open(sys.argv[1], "rb")).load()
PADDED = {(1344, 760): (1408, 768, 384, 2428928), (1928, 1208): (2048, 1216, 608, 4804608)}


def picture(size, turn):
    """Slopes below one grey level a pixel, 255 in every byte of padding."""
    (width, height), (stride, y_rows, uv_rows, total) = size, PADDED[size]
    frame = np.full(total, 255, dtype=np.uint8)
    for y in range(height):
        frame[y * stride : y * stride + width] = 10 + turn + np.arange(width) // 20 + y // 10
    for y in range(height // 2):
        line = frame[(y_rows + y) * stride :][: width]
        line[0::2] = 30 + turn + np.arange(width // 2) // 8
        line[1::2] = 200 - turn - y // 8
    return frame


def project(size, frame, m, column, row, grid):
    """Camera value of one output pixel, in the middle's own words: luma (grid 1) or U, V (grid 2, 3)."""
    (width, height), (stride, y_rows, _, _) = size, PADDED[size]
    half = 1 if grid == 1 else 2
    x, y, w = m.astype(np.float64) @ (column * half, row * half, 1)
    x = int(np.clip(np.rint(x / w / half), 0, width // half - 1))
    y = int(np.clip(np.rint(y / w / half), 0, height // half - 1))
    if grid == 1:
        return int(frame[y * stride + x])
    return int(frame[(y_rows + y) * stride + 2 * x + (grid - 2)])


def warp(size, matrices):
    frames = [picture(size, 0), picture(size, 15)]
    inputs = dict(zip(("tfm", "big_tfm"), (Tensor(m, device="NPY").realize() for m in matrices)))
    inputs |= dict(zip(("frame", "big_frame"), (Tensor(f, device="CPU").contiguous().realize() for f in frames)))
    warped = artifact[size](**inputs)
    planes, off = warped.numpy(), 0
    random = np.random.default_rng(5)
    for camera in (0, 1):
        for plane in range(6):
            for _ in range(60):
                i, j = int(random.integers(128)), int(random.integers(256))
                if plane < 4:
                    got = project(size, frames[camera], matrices[camera], 2 * j + plane // 2, 2 * i + plane % 2, 1)
                else:
                    got = project(size, frames[camera], matrices[camera], j, i, plane - 2)
                off = max(off, abs(got - int(planes[camera, plane, i, j])))
    return warped, planes, off


answer = {"keys": [str(key) for key in artifact], "frame_skip": artifact["frame_skip"]}
metadata = artifact["metadata"]
queues = {
    "img_q": np.zeros((5, 6, 128, 256), np.uint8),
    "big_img_q": np.zeros((5, 6, 128, 256), np.uint8),
    "feat_q": np.zeros((96, 1, 512), np.float32),
    "desire_q": np.zeros((100, 1, 8), np.float32),
}
queues = {name: Tensor(value, device="CPU").contiguous().realize() for name, value in queues.items()}
packed = np.zeros(8 + 2 + 2 + 512, np.float32)
host = Tensor(packed, device="NPY").realize()
matrices = [
    np.array([[2.1, 0.02, 90], [-0.02, 1.9, 110], [1e-5, 2e-5, 1]], np.float32),
    np.array([[3.9, 0, -40], [0.01, 2.2, 30], [0, 1e-5, 1]], np.float32),
]
rows = []
for size in PADDED:
    for step in range(3):
        packed[:] = 0.0
        packed[step] = 1.0
        packed[8 + step % 2] = 1.0
        packed[12:] = rows[-1][metadata["output_slices"]["hidden_state"]] if rows else 0
        warped, planes, off = warp(size, [m + np.float32(0.001 * step) for m in matrices])
        (out,) = artifact["run_policy"](warped=warped, packed_npy_inputs=host, **queues)
        rows.append(out.numpy().reshape(-1).copy())
        answer[f"off {size} {step}"] = off
        assert np.array_equal(queues["img_q"].numpy()[-1], planes[0])
        assert np.array_equal(queues["big_img_q"].numpy()[-1], planes[1])
        assert np.array_equal(queues["feat_q"].numpy()[-1, 0], packed[12:])
        assert np.array_equal(queues["desire_q"].numpy()[-1, 0], packed[:8])
answer["finite"] = bool(np.isfinite(rows).all())
answer["rows"] = np.asarray(rows).tobytes().hex()
answer["globals"] = " ".join(sorted(names))
answer["different"] = len({row.tobytes() for row in rows})
print(json.dumps(answer))
'''


@pytest.fixture(scope="module")
def answer(sample_artifact: Path, cpu_environment: dict[str, str]) -> dict[str, object]:
    return _run(sample_artifact, cpu_environment)


def _run(artifact: Path, environment: dict[str, str]) -> dict[str, object]:
    command = [sys.executable, "-c", RUNTIME, str(artifact)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result


def test_the_artifact_has_the_runtimes_keys(answer: dict[str, object]) -> None:
    assert answer["keys"] == ["metadata", "frame_skip", "run_policy", "(1344, 760)", "(1928, 1208)"]
    assert answer["frame_skip"] == 4


def test_both_cameras_and_the_policy_answer_frame_after_frame_in_a_fresh_process(answer: dict[str, object]) -> None:
    assert answer["finite"] is True
    assert answer["different"] == 6


def test_the_warp_is_the_projection_within_one_grey_level(answer: dict[str, object]) -> None:
    off = {name: value for name, value in answer.items() if name.startswith("off ")}
    assert len(off) == 6
    assert all(isinstance(value, int) and value <= 1 for value in off.values()), off


def test_two_processes_give_the_same_bits(
    answer: dict[str, object], sample_artifact: Path, cpu_environment: dict[str, str]
) -> None:
    assert _run(sample_artifact, cpu_environment | {"PYTHONHASHSEED": "7"})["rows"] == answer["rows"]


def test_the_log_ends_as_the_guide_says_and_holds_no_warning_but_the_known_ones(sample_artifact: Path) -> None:
    log = sample_artifact.with_suffix(".log").read_text()
    size = sample_artifact.stat().st_size / 1e6
    assert f"Saved JITs to {sample_artifact} ({size:.2f} MB)\n" in log
    warnings = [line for line in log.splitlines() if "warn" in line.lower() and "warnings.warn(" not in line]
    assert len(warnings) == 4
    assert all("has mismatch on dtype. Expected dtypes.half, received dtypes.float." in line for line in warnings)


def test_the_pickle_names_only_what_a_genuine_artifact_names(answer: dict[str, object]) -> None:
    """Facts, section 2: the globals of a genuine 0.14 artifact, and a slice for the metadata."""
    names = set(str(answer["globals"]).split())
    assert {"tinygrad.engine.jit.CapturedJit", "tinygrad.device.Buffer"} < names
    outside = {name for name in names if not name.startswith("tinygrad.")}
    assert outside == {"builtins.slice", "builtins.bytearray"}


def test_a_stock_artifacts_metadata_can_be_read_from_it(sample_artifact: Path, cpu_environment: dict[str, str]) -> None:
    code = "import pickle, sys; m = pickle.load(open(sys.argv[1], 'rb'))['metadata']; print(pickle.dumps(m).hex())"
    command = [sys.executable, "-c", code, str(sample_artifact)]
    done = subprocess.run(command, env=cpu_environment, capture_output=True, text=True, check=True)
    metadata = pickle.loads(bytes.fromhex(done.stdout))
    assert metadata["input_shapes"]["img"] == (1, 12, 128, 256)
    assert metadata["input_shapes"]["features_buffer"] == (1, 24, 512)
    slices = metadata["output_slices"]
    assert slices["hidden_state"].stop - slices["hidden_state"].start == 512
    assert {"pose", "wide_from_device_euler", "road_transform"} < slices.keys()
    (shape,) = metadata["output_shapes"].values()
    assert shape == (1, max(part.stop for part in slices.values()))


def test_the_script_alone_compiles_away_from_the_project(
    sample_onnx: Path, sample_artifact: Path, run_compile: Compile, tmp_path: Path
) -> None:
    """As a device gets it: its own files, in a directory with a space, cold caches, another hash seed. Same bytes."""
    script = lay_script("compile_supercombo", tmp_path / "some where")
    there = sorted(script.parent.rglob("*"))
    output = tmp_path / "some where" / "out put.pkl"
    cold = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONHASHSEED": "123"}
    done = run_compile(sample_onnx, output, script=script, environment=cold)
    assert done.returncode == 0, done.stderr
    assert sorted(script.parent.rglob("*")) == sorted([*there, output])
    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (output, sample_artifact)}
    assert len(digests) == 1
