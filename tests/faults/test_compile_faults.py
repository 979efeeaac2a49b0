"""Every self-check of the compile script, provoked by a fault of its own: exit status, text, and no output."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.scripts import lay_script
from tests.support.small_model import SLICES, SMALL, Model

pytestmark = pytest.mark.compile

Compile = Callable[..., subprocess.CompletedProcess[str]]


def test_the_good_twin_compiles(run_compile: Compile, tmp_path: Path) -> None:
    done = run_compile(Model().write(tmp_path / "m.onnx"), tmp_path / "out.pkl", **SMALL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == (
        f"Saved JITs to {tmp_path / 'out.pkl'} ({(tmp_path / 'out.pkl').stat().st_size / 1e6:.2f} MB)"
    )


def test_an_extra_float_input_goes_to_the_end_of_the_packed_vector(
    run_compile: Compile, cpu_environment: dict[str, str], tmp_path: Path
) -> None:
    model = Model()
    model.inputs["lateral_control_params"] = (np.float16, (1, 3))
    done = run_compile(model.write(tmp_path / "m.onnx"), tmp_path / "out.pkl", **SMALL)
    assert done.returncode == 0, done.stderr
    code = (
        "import pickle, sys, numpy as np; from tinygrad import Tensor\n"
        "a = pickle.load(open(sys.argv[1], 'rb'))['run_policy']\n"
        "z = lambda *shape: Tensor(np.zeros(shape, np.uint8), device='CPU').contiguous().realize()\n"
        "f = lambda *shape: Tensor(np.zeros(shape, np.float32), device='CPU').contiguous().realize()\n"
        "packed = np.zeros(8 + 2 + 2 + 4 + 3, np.float32); host = Tensor(packed, device='NPY').realize(); outs = []\n"
        "for at in (None, 16, 17, 18):\n"
        "    packed[:] = 0\n"
        "    if at: packed[at] = 100\n"
        "    queues = dict(img_q=z(5, 6, 8, 16), big_img_q=z(5, 6, 8, 16), feat_q=f(12, 1, 4), desire_q=f(16, 1, 8))\n"
        "    outs.append(a(warped=z(2, 6, 8, 16), packed_npy_inputs=host, **queues)[0].numpy().tobytes())\n"
        "print(len(set(outs)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out.pkl")]
    answer = subprocess.run(command, env=cpu_environment, capture_output=True, text=True, check=False)
    assert answer.stdout == "4\n", answer.stderr


def test_every_wrong_input_is_named_at_once(refused: Callable[..., str], tmp_path: Path) -> None:
    model = Model()
    del model.inputs["action_t"]
    model.inputs["big_img"] = (np.float16, (1, 12, 8, 16))
    model.inputs["img"] = (np.uint8, (1, 12, 16, 16))
    model.inputs["desire_pulse"] = (np.float16, (1, 32))
    model.inputs["nav_features"] = (np.int64, (1, 4))
    text = refused(model.write(tmp_path / "m.onnx"), 11)
    assert "input action_t is missing" in text
    assert "input big_img: expected dtype uint8, got half" in text
    assert "input img: expected shape (1, any, 8, 16) for --model-size, got (1, 12, 16, 16)" in text
    assert "input desire_pulse: expected shape (1, any, any) for --model-size, got (1, 32)" in text
    assert "extra input nav_features: expected dtype float16 or float32, got long" in text


def test_pictures_of_odd_planes_and_features_of_another_rank_are_named(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    model = Model()
    model.inputs["img"] = (np.uint8, (1, 10, 8, 16))
    model.inputs["features_buffer"] = (np.float16, (1, 12))
    text = refused(model.write(tmp_path / "m.onnx"), 11)
    assert "input img: expected a multiple of 6 planes, got 10" in text
    assert "input features_buffer: expected shape (1, steps, features), got (1, 12)" in text


def test_an_input_without_fixed_sizes_is_named(refused: Callable[..., str], tmp_path: Path) -> None:
    import onnx

    model = Model()
    path = tmp_path / "m.onnx"
    graph = onnx.load(str(model.write(path)))
    graph.graph.input[5].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(graph, str(path))
    assert "input action_t: expected fixed sizes, got ('batch', 2)" in refused(path, 11)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git-lfs pointer"),
        (b"\n<!DOCTYPE html><html>404</html>", "is a web page"),
        (b"", "holds no graph"),
        (b"not a model at all, but some text", "is no ONNX model"),
        (b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}.", "is no ONNX model"),
    ],
)
def test_what_is_no_onnx_is_said(refused: Callable[..., str], tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    assert says in refused(tmp_path / "m.onnx", 10)


def test_a_missing_onnx_is_said(refused: Callable[..., str], tmp_path: Path) -> None:
    assert "m.onnx cannot be read: No such file or directory" in refused(tmp_path / "m.onnx", 10)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_onnx_is_said(refused: Callable[..., str], sample_onnx: Path, tmp_path: Path, share: float) -> None:
    content = sample_onnx.read_bytes()
    (tmp_path / "m.onnx").write_bytes(content[: int(len(content) * share)])
    assert "truncated" in refused(tmp_path / "m.onnx", 10)


def test_an_onnx_that_is_damaged_inside_its_graph_is_said(refused: Callable[..., str], tmp_path: Path) -> None:
    import onnx

    path = tmp_path / "m.onnx"
    model = onnx.load(str(Model().write(path)))
    model.ClearField("graph")
    path.write_bytes(model.SerializeToString() + b"\x3a\x03\x0a\x7f\x00")  # a node of 127 bytes, of which one is there
    assert "m.onnx cannot be read: " in refused(path, 10)


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch '{self.path}'",)


def test_a_hostile_output_slices_is_refused_and_not_run(refused: Callable[..., str], tmp_path: Path) -> None:
    model = Model()
    model.slices = pickle.dumps({"pose": slice(0, 12), "x": Hostile(tmp_path / "it ran")})
    text = refused(model.write(tmp_path / "m.onnx"), 12)
    assert "output_slices cannot be read safely: it names posix.system" in text
    assert not (tmp_path / "it ran").exists()


@pytest.mark.parametrize(
    ("slices", "says"),
    [
        (None, "has no metadata property output_slices"),
        (b"not a pickle", "output_slices cannot be read safely"),
        (["pose"], "expected a dict of name -> slice"),
        ({"pose": slice(12, 0)}, "expected a dict of name -> slice"),
        ({"pose": (0, 12)}, "expected a dict of name -> slice"),
    ],
)
def test_senseless_output_slices_are_refused(
    refused: Callable[..., str], tmp_path: Path, slices: object, says: str
) -> None:
    model = Model()
    model.slices = slices
    assert says in refused(model.write(tmp_path / "m.onnx"), 12)


@pytest.mark.parametrize(
    ("slices", "says"),
    [
        (SLICES | {"plan": slice(34, 99)}, "output_slices reach to 99: expected at most the output's size, got 34"),
        ({**SLICES, "hidden_state": slice(30, 33)}, "expected hidden_state of 4 numbers, got 3"),
        ({key: SLICES[key] for key in ("pose", "road_transform")}, "hidden_state of 4 numbers, got no such slice"),
    ],
)
def test_slices_that_do_not_fit_the_output_are_refused(
    refused: Callable[..., str], tmp_path: Path, slices: object, says: str
) -> None:
    model = Model()
    model.slices = slices
    assert says in refused(model.write(tmp_path / "m.onnx"), 12)


def test_an_operator_that_tinygrad_lacks_is_named(refused: Callable[..., str], tmp_path: Path) -> None:
    model = Model()
    model.op = "Det"
    assert "op='Det' is not supported" in refused(model.write(tmp_path / "m.onnx"), 13)


def test_a_missing_c_compiler_is_named(refused: Callable[..., str], tmp_path: Path) -> None:
    environment = {"CC": "/no/such/clang", "XDG_CACHE_HOME": str(tmp_path / "cold")}
    text = refused(Model().write(tmp_path / "m.onnx"), 13, environment=environment)
    assert "No such file or directory: '/no/such/clang'" in text


@pytest.mark.parametrize("variable", ["DEV", "WARP_DEV"])
def test_a_device_that_is_not_here_is_named(refused: Callable[..., str], tmp_path: Path, variable: str) -> None:
    text = refused(Model().write(tmp_path / "m.onnx"), 13, environment={variable: "QCOM"}, expected_device="QCOM")
    assert "device QCOM cannot be opened here: " in text
    assert "/dev/kgsl-3d0" in text


@pytest.mark.parametrize(("attribute", "value"), [("scale", np.nan), ("bias", np.inf)])
def test_outputs_that_are_no_numbers_are_refused(
    refused: Callable[..., str], tmp_path: Path, attribute: str, value: float
) -> None:
    model = Model()
    setattr(model, attribute, value)
    assert "out0: expected finite numbers, got 34 NaN or infinite ones" in refused(model.write(tmp_path / "m.onnx"), 20)


def test_missing_odometry_outputs_are_named(refused: Callable[..., str], tmp_path: Path) -> None:
    model = Model()
    model.slices = {"pose": slice(0, 12), "hidden_state": slice(30, 34)}
    text = refused(model.write(tmp_path / "m.onnx"), 21)
    assert "output wide_from_device_euler is missing" in text
    assert "output road_transform is missing" in text


def test_an_odometry_output_without_numbers_is_named(refused: Callable[..., str], tmp_path: Path) -> None:
    model = Model()
    model.slices = SLICES | {"road_transform": slice(18, 18)}
    text = refused(model.write(tmp_path / "m.onnx"), 21)
    assert "output road_transform: expected means and deviations, got 0 numbers" in text


def test_a_deviation_of_zero_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    model = Model()
    model.bias = -50.0
    text = refused(model.write(tmp_path / "m.onnx"), 21)
    assert "output pose_stds: expected more than 1e-05, got 1.9" in text


def test_a_deviation_that_the_model_gives_itself_is_taken_as_it_is(refused: Callable[..., str], tmp_path: Path) -> None:
    model = Model()
    model.slices = SLICES | {"road_transform_stds": slice(0, 6)}
    assert "output road_transform_stds: expected more than 1e-05, got" in refused(model.write(tmp_path / "m.onnx"), 21)


def test_a_senseless_speed_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    model = Model()
    model.bias = 300.0
    text = refused(model.write(tmp_path / "m.onnx"), 21)
    assert "output pose: expected a translation norm of at most 200.0, got 5" in text
    assert "output pose: expected a rotation norm of at most 10.0, got 5" in text


def test_a_jit_that_differs_from_a_direct_run_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    model = Model()
    model.sliced_by_input = True
    text = refused(model.write(tmp_path / "m.onnx"), 22)
    assert "differs from a direct run of the ONNX: expected within 0.0001, got" in text


def test_outputs_that_ignore_the_inputs_are_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    model = Model()
    model.scale = 0.0
    assert "run_policy: out0 is the same for other inputs" in refused(model.write(tmp_path / "m.onnx"), 23)


def test_an_artifact_for_another_device_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    text = refused(Model().write(tmp_path / "m.onnx"), 25, expected_device="QCOM")
    assert "run_policy was captured on CPU: expected QCOM; check DEV and WARP_DEV" in text


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("start=frame.uv_start + 1, **chroma", "start=frame.uv_start, **chroma"),
        ("m[0, 2] / scale", "m[0, 2]"),
        ("i * 2 + odd_row", "i * 2 + odd_column"),
        (
            "row * frame.stride + column * step + start).flatten()",
            "row * frame.width + column * step + start).flatten()",
        ),
    ],
)
def test_a_warp_that_is_another_projection_is_refused(
    refused: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    right: str,
    wrong: str,
) -> None:
    script = lay_script("compile_supercombo", tmp_path_factory.mktemp("script"))
    warp = script.parent / "supercombo_build_compile/warp.py"
    text = warp.read_text()
    assert text.count(right) == 1
    warp.write_text(text.replace(right, wrong))
    said = refused(Model().write(tmp_path / "m.onnx"), 26, script=script, cameras=("96x64",))
    assert "warp 96x64: expected within 1 grey level of the same projection in numpy, got" in said


@pytest.mark.parametrize("place", ["missing/artifact.pkl", "directory"])
def test_a_place_that_cannot_be_written_is_said(run_compile: Compile, tmp_path: Path, place: str) -> None:
    (tmp_path / "directory").mkdir()
    done = run_compile(Model().write(tmp_path / "m.onnx"), tmp_path / place, **SMALL)
    assert done.returncode == 30
    assert f"{place} cannot be written: " in done.stderr.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory", "m.onnx"]


def test_the_onnx_is_never_its_own_output(run_compile: Compile, tmp_path: Path) -> None:
    path = Model().write(tmp_path / "m.onnx")
    before = path.read_bytes()
    assert run_compile(path, path, **SMALL).returncode == 30
    assert path.read_bytes() == before


def test_an_older_output_does_not_outlive_a_failure(run_compile: Compile, tmp_path: Path) -> None:
    (tmp_path / "out.pkl").write_text("stale")
    (tmp_path / "m.onnx").write_text("broken")
    assert run_compile(tmp_path / "m.onnx", tmp_path / "out.pkl", **SMALL).returncode == 10
    assert not (tmp_path / "out.pkl").exists()


@pytest.mark.parametrize(
    "option", ["--model-size=512", "--camera-resolutions=0x4", "--frame-skip=0", "--model-size=3x4"]
)
def test_senseless_options_are_usage_errors(compile_script: Path, tmp_path: Path, option: str) -> None:
    good = ["--model-size=32x16", "--camera-resolutions=64x48", "--frame-skip=4"]
    given = [*(part for part in good if part.split("=")[0] != option.split("=")[0]), option]
    command = [sys.executable, str(compile_script), *given, "--onnx=m.onnx", f"--output={tmp_path / 'out.pkl'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "expected" in done.stderr.splitlines()[-1]


def test_a_terminated_compile_leaves_nothing(
    compile_script: Path, sample_onnx: Path, cpu_environment: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, str(compile_script), "--model-size=512x256", "--camera-resolutions=1344x760"]
    command += ["--frame-skip=4", "--expected-device=CPU", f"--onnx={sample_onnx}", f"--output={tmp_path / 'out.pkl'}"]
    with subprocess.Popen(command, env=cpu_environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"compiling" in process.stdout.readline()
        assert [path.name for path in tmp_path.iterdir()] == ["out.pkl.part"]
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
