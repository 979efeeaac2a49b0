"""Our own harness on artifacts with one fault each: every fault has its verdict, and none of them the good one's."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import faulty
from tests.support.small_model import INPUTS, SLICES, Model

pytestmark = pytest.mark.compile

Compile = Callable[..., subprocess.CompletedProcess[str]]
CAMERAS = ("64x48", "640x480")
STATUS = {
    "no_artifact": 10, "other_bytes": 11, "moved": 12, "not_loaded": 13, "contract": 14, "died": 15, "frozen": 16,
    "warp_failed": 17, "policy_failed": 18, "not_finite": 20, "bad_odometry": 21, "not_repeatable": 22,
    "indifferent": 23, "reads_padding": 24, "leaks": 25, "too_slow": 26, "wrong_picture": 27, "stopped": 30,
}  # fmt: skip


@pytest.fixture(scope="session")
def small_artifact(kept: Path, run_compile: Compile, small_compiled: Callable[[str, Model], Path]) -> Path:
    return small_compiled("small", Model())


@pytest.fixture(scope="session")
def small_compiled(tmp_path_factory: pytest.TempPathFactory, run_compile: Compile) -> Callable[[str, Model], Path]:
    """A small model compiled with two cameras."""

    def make(name: str, model: Model, **changes: Any) -> Path:
        folder = tmp_path_factory.mktemp(name)
        options = {"model_size": "32x16", "cameras": CAMERAS} | changes
        done = run_compile(model.write(folder / "m.onnx"), folder / "artifact.pkl", **options)
        assert done.returncode == 0, done.stderr
        return folder / "artifact.pkl"

    return make


@pytest.fixture
def spoil(small_artifact: Path, cpu_environment: dict[str, str], tmp_path: Path) -> Callable[..., Path]:
    """spoil("run_policy=Leaks"): the small artifact with faults, see tests/support/faulty.py."""

    def make(*faults: str) -> Path:
        output = tmp_path / "spoiled.pkl"
        command = [sys.executable, faulty.__file__, str(small_artifact), str(output), *faults]
        subprocess.run(command, env=cpu_environment, check=True)
        return output

    return make


def command_of(script: Path, artifact: Path, report: Path, *options: str) -> list[str]:
    return [sys.executable, str(script), str(artifact), "--report", str(report), *options]


@pytest.fixture
def validate(
    validate_script: Path, cpu_environment: dict[str, str], tmp_path: Path
) -> Callable[..., tuple[dict[str, Any], str]]:
    """Runs the harness: (report, log), having seen that exit status, report and last line agree."""

    def run(artifact: Path, *options: str, frames: int = 60, rate: int = 400) -> tuple[dict[str, Any], str]:
        path = tmp_path / "report.json"
        command = command_of(validate_script, artifact, path, f"--frames={frames}", f"--rate={rate}", *options)
        environment = cpu_environment | {"PYTHONPATH": str(Path(faulty.__file__).parent)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        report: dict[str, Any] = json.loads(path.read_text())
        log = done.stdout + done.stderr
        assert done.returncode == STATUS.get(report["verdict"], 0), log
        if report["findings"]:
            assert report["findings"][0]["code"] == report["verdict"]
            assert done.stderr.splitlines()[-1].startswith("error: ")
        else:
            assert report["verdict"] == "good"
            assert done.stdout.splitlines()[-1].startswith(f"validated {artifact}: {frames} frames, median ")
        return report, log

    return run


Validate = Callable[..., tuple[dict[str, Any], str]]
Spoil = Callable[..., Path]


@contextmanager
def running(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The harness in the middle of its drive."""
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert b"frames to go" in process.stdout.readline()
        yield process


def the_one(report: dict[str, Any], code: str) -> dict[str, Any]:
    """The only finding, of this code."""
    assert [finding["code"] for finding in report["findings"]] == [code], report["findings"]
    finding: dict[str, Any] = report["findings"][0]
    return finding


def test_the_good_twin_of_all_these_is_good(validate: Validate, small_artifact: Path) -> None:
    report, _ = validate(small_artifact, "--frame-skip=4", "--cameras", *CAMERAS)
    assert report["verdict"] == "good"
    assert {name: times["frames"] for name, times in report["numbers"]["cameras"].items()} == {
        "64x48": 30,
        "640x480": 30,
    }


def test_one_that_dies_at_second_3_is_told_with_its_signal_and_place(validate: Validate, spoil: Spoil) -> None:
    report, log = validate(spoil("run_policy=DiesAtSecond3"), frames=200, rate=40)
    finding = the_one(report, "died")
    assert finding["got"].startswith("signal 11 (SIGSEGV) in run_policy, after ")
    assert 10 <= report["numbers"]["frames"] < 200
    assert "Segmentation fault" in log, "the log shows where in Python it was"


def test_one_that_exits_quietly_in_the_middle_is_no_pass(validate: Validate, spoil: Spoil) -> None:
    report, _ = validate(spoil("run_policy=Exits"))
    assert the_one(report, "died")["got"].startswith("exit status 0 in run_policy, after ")


def test_one_that_freezes_in_native_code_is_ended_by_the_watchdog(validate: Validate, spoil: Spoil) -> None:
    report, log = validate(spoil("64x48=Freezes"), "--stall-limit=5")
    finding = the_one(report, "frozen")
    assert finding["expected"] == "one within 5 s"
    assert finding["got"].startswith("none in the warp of 64x48, after ")
    assert "in fault" in log, "the log shows the stack of the frozen call"


@pytest.mark.slow
def test_one_that_freezes_while_it_is_rehearsed_is_ended_too(validate: Validate, spoil: Spoil) -> None:
    report, _ = validate(spoil("run_policy=FreezesAtOnce"), "--load-limit=20")
    assert the_one(report, "frozen")["got"].startswith("none in run_policy, after ")


@pytest.mark.parametrize(("fault", "memory"), [("Leaks", "process"), ("LeaksOnDevice", "device")])
def test_one_that_leaks_is_told_how_much_a_frame(validate: Validate, spoil: Spoil, fault: str, memory: str) -> None:
    report, _ = validate(spoil(f"run_policy={fault}"), frames=160, rate=100)
    assert report["verdict"] == "leaks"
    by_name = {finding["what"]: finding for finding in report["findings"]}
    finding = by_name[f"memory of the {memory} grows"]
    least = 200 if fault == "Leaks" else 20
    assert int(finding["got"].rpartition("about ")[2].split()[0]) >= least


def test_one_that_fails_only_in_the_warp_names_the_camera_and_drives_the_other(
    validate: Validate, spoil: Spoil
) -> None:
    """Another jit under the camera's key: tinygrad's own "args mismatch in JIT"."""
    report, log = validate(spoil("640x480=run_policy"))
    finding = the_one(report, "warp_failed")
    assert finding["what"] == "the warp of camera 640x480 fails"
    assert finding["got"].startswith("JitError: args mismatch in JIT")
    assert report["numbers"]["cameras"].keys() == {"64x48"}
    assert "Traceback" in log


def test_the_warp_of_another_camera_is_told_although_tinygrad_takes_it(validate: Validate, spoil: Spoil) -> None:
    """A captured jit compares views and dtypes of its arguments, not the size of a flat buffer."""
    report, _ = validate(spoil("640x480=64x48"))
    assert report["verdict"] == "wrong_picture"
    assert "the warp of 640x480 is another projection" in [finding["what"] for finding in report["findings"]]


@pytest.mark.slow
def test_one_whose_warp_fails_in_the_middle_names_the_frame(validate: Validate, spoil: Spoil) -> None:
    report, _ = validate(spoil("64x48=Raises"))
    finding = the_one(report, "warp_failed")
    assert finding["got"] == "RuntimeError: kernel launch failed"
    assert 0 < finding["frame"] < 60
    assert report["numbers"]["cameras"]["640x480"]["frames"] > 30


@pytest.mark.slow
def test_a_policy_that_fails_in_the_middle_ends_the_run(validate: Validate, spoil: Spoil) -> None:
    report, _ = validate(spoil("run_policy=Raises"))
    assert the_one(report, "policy_failed")["got"] == "RuntimeError: kernel launch failed"
    assert report["proof"]["after"] == report["proof"]["before"]


def test_a_nan_at_frame_100_is_told_with_its_frame(
    validate: Validate, small_compiled: Callable[..., Path], tmp_path: Path
) -> None:
    """A model whose memory grows with every step, as one that overflows on a long drive does."""
    model = Model()
    model.growth = 42.0
    report, _ = validate(small_compiled("growing", model, cameras=("64x48",)), frames=120)
    finding = report["findings"][0]
    assert report["verdict"] == "not_finite"
    assert 90 <= finding["frame"] <= 110
    assert "in hidden_state" in finding["got"]
    assert finding["count"] == 120 - finding["frame"]


def test_a_senseless_pose_is_told_with_its_size(validate: Validate, spoil: Spoil) -> None:
    report, _ = validate(spoil("run_policy=Wild"), frames=20)
    assert report["verdict"] == "bad_odometry"
    said = {finding["what"]: finding for finding in report["findings"]}
    assert said["pose is out of this world"]["expected"] == "a norm of at most 200"
    assert said["road_transform is out of this world"]["count"] == 40
    assert "wide_from_device_euler is out of this world" in said


def test_an_answer_that_drifts_is_told(validate: Validate, spoil: Spoil) -> None:
    report, _ = validate(spoil("run_policy=Drifts"))
    assert report["verdict"] == "not_repeatable"
    assert report["findings"][0]["what"] == "on camera 64x48 it answers otherwise after the run"
    assert report["findings"][0]["got"].startswith("34 of 34 numbers differ, at most by 1")


@pytest.mark.slow
def test_an_output_that_stands_still_is_told(validate: Validate, spoil: Spoil) -> None:
    report, _ = validate(spoil("run_policy=StandsStill"))
    assert "the output stands still: another frame changes nothing" in [one["what"] for one in report["findings"]]


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("Mirrors", "is another projection"),
        pytest.param("SwapsViews", "the road frame shows in the other view", marks=pytest.mark.slow),
    ],
)
def test_a_warp_that_shows_another_picture_is_told(validate: Validate, spoil: Spoil, fault: str, what: str) -> None:
    report, _ = validate(spoil(f"640x480={fault}"), frames=20)
    assert report["verdict"] == "wrong_picture"
    assert any(what in one["what"] for one in report["findings"])
    assert all("640x480" in one["what"] for one in report["findings"])


def test_one_slower_than_real_time_is_refused_where_real_time_is_asked_for(
    validate: Validate, small_artifact: Path
) -> None:
    report, _ = validate(small_artifact, "--require-realtime", rate=5000)
    assert report["verdict"] == "too_slow"
    assert report["findings"][0]["expected"] == "99% of frames within 0.2 ms"


def test_one_slower_than_real_time_is_only_told_elsewhere(validate: Validate, small_artifact: Path) -> None:
    report, _ = validate(small_artifact, rate=5000)
    assert report["verdict"] == "good"
    assert report["numbers"]["late"] == 60


METADATA = {"output_slices": SLICES, "input_shapes": {name: shape for name, (_, shape) in INPUTS.items()}}
ROOT = {"metadata": METADATA, "frame_skip": 4, "run_policy": None, (64, 48): None}


@pytest.mark.parametrize(
    ("root", "what"),
    [
        ([], "it is no dict of captured jits"),
        ({**ROOT, "frame_skip": 2}, "frame skip is not the runtime's"),
        ({key: value for key, value in ROOT.items() if key != (64, 48)}, "camera 64x48 is missing"),
        ({key: value for key, value in ROOT.items() if key != "metadata"}, "root key metadata is missing"),
        ({**ROOT, "metadata": {"output_slices": SLICES}}, "metadata is incomplete"),
        ({**ROOT, "metadata": METADATA | {"output_slices": {}}}, "metadata lacks what the runtime reads"),
    ],
)
def test_what_the_runtime_would_miss_is_named(validate: Validate, tmp_path: Path, root: Any, what: str) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(root))
    report, _ = validate(tmp_path / "a.pkl", "--frame-skip=4", "--cameras", "64x48")
    assert the_one(report, "contract")["what"] == what


def test_other_bytes_than_asked_for_are_not_even_loaded(
    validate: Validate, small_artifact: Path, tmp_path: Path
) -> None:
    hostile = tmp_path / "hostile.pkl"
    hostile.write_bytes(b"cos\nsystem\n(S'touch " + str(tmp_path / "it-ran").encode() + b"'\ntR.")
    report, _ = validate(hostile, "--sha256", "0" * 64)
    assert the_one(report, "other_bytes")["expected"] == "0" * 64
    assert not (tmp_path / "it-ran").exists()


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_copy_does_not_load(validate: Validate, small_artifact: Path, tmp_path: Path, share: float) -> None:
    content = small_artifact.read_bytes()
    (tmp_path / "cut.pkl").write_bytes(content[: int(len(content) * share)])
    report, _ = validate(tmp_path / "cut.pkl")
    assert the_one(report, "not_loaded")["got"].split(":")[0] in ("EOFError", "UnpicklingError")


def test_a_missing_file_is_said(validate: Validate, tmp_path: Path) -> None:
    report, _ = validate(tmp_path / "none.pkl")
    assert the_one(report, "no_artifact")["got"] == "No such file or directory"


@pytest.mark.parametrize(
    ("change", "what"),
    [("replaced", "another file lies under the path now"), ("written", "the file was written into while it ran")],
)
def test_a_file_that_changes_in_mid_run_is_no_pass(
    validate_script: Path,
    cpu_environment: dict[str, str],
    small_artifact: Path,
    tmp_path: Path,
    change: str,
    what: str,
) -> None:
    artifact = tmp_path / "a.pkl"
    content = small_artifact.read_bytes()
    artifact.write_bytes(content)
    command = command_of(validate_script, artifact, tmp_path / "r.json", "--frames=60", "--rate=20")
    with running(command, cpu_environment) as process:
        if change == "replaced":
            other = tmp_path / "b.pkl"
            other.write_bytes(content)
            other.replace(artifact)
        else:
            with artifact.open("r+b") as file:
                file.write(content[:1])
    report = json.loads((tmp_path / "r.json").read_text())
    assert process.returncode == STATUS["moved"]
    assert the_one(report, "moved")["what"] == what
    assert report["proof"]["after"] != report["proof"]["before"]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_harness_that_is_ended_from_outside_reports_what_it_has_and_leaves_no_child(
    validate_script: Path, cpu_environment: dict[str, str], small_artifact: Path, tmp_path: Path, number: int
) -> None:
    command = command_of(validate_script, small_artifact, tmp_path / "r.json", "--frames=4000", "--rate=20")
    with running(command, cpu_environment) as process:
        process.send_signal(number)
        process.communicate()  # ends only when the child, which holds stdout too, is gone
    report = json.loads((tmp_path / "r.json").read_text())
    assert process.returncode == STATUS["stopped"]
    assert the_one(report, "stopped")["what"] == f"ended from outside by {signal.Signals(number).name}"


def test_a_child_whose_watchdog_is_killed_ends_by_itself(
    validate_script: Path, cpu_environment: dict[str, str], small_artifact: Path, tmp_path: Path
) -> None:
    command = command_of(validate_script, small_artifact, tmp_path / "r.json", "--frames=4000", "--rate=20")
    with running(command, cpu_environment) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize(
    "options", [["--frames=0"], ["--seconds=0"], ["--frames=5", "--seconds=5"], [], ["--frames=5", "--sha256=abc"]]
)
def test_senseless_options_are_usage_errors(validate_script: Path, tmp_path: Path, options: list[str]) -> None:
    command = command_of(validate_script, tmp_path / "a.pkl", tmp_path / "r.json", *options)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert not (tmp_path / "r.json").exists()
