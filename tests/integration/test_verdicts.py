"""Every failure mode of guide section 11 and every sign of section 10, on a device that has it, through the real doit:
the verdict names the cause, and nothing of it reaches the models repository."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from buildlib.artifact.inspect_file import inspect_artifact
from tests.conftest import alone
from tests.devices.iqpilot import add_iqpilot, wish
from tests.support.kept_captures import unpack
from tests.support.projects import Project, free_offset, variant
from tests.support.rewriting import rename
from tests.support.scripts import content_of

NOPP = "driving_supercombo_nopp.pkl"
DRL3 = "driving_supercombo_drl3.pkl"
CPU_AND_QCOM = (
    "tinygrad.engine.jit.JitError: args mismatch in JIT: self.captured.expected_input_info="
    "[(UOp(Ops.DEFINE_VAR), (), dtypes.uchar, 'CPU')] != expected_input_info=[(UOp(Ops.DEFINE_VAR), (), dtypes.uchar, "
    "'QCOM')]\n"
)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models repository with its origin, made once; every test gets a copy."""
    from buildlib.sandbox import make_sandbox

    return make_sandbox(tmp_path_factory.mktemp("made") / "sandbox").root


@pytest.fixture
def desk(bare_project: Project, sample_onnx: Path, sandbox: Path) -> Project:
    """`nopp` and `drl3`, published to a sandbox that asks for the harness; not built yet."""
    project = bare_project
    shutil.copytree(sandbox, project.root / ".build/sandbox", symlinks=True)
    clone = project.root / ".build/sandbox/IQModels"
    subprocess.run(["git", "remote", "set-url", "origin", str(clone.parent / "origin.git")], cwd=clone, check=True)
    project.head = {"targets": {"box": {"repository": str(clone), "sandbox": True, "policy": ["harness"]}}}
    project.settings = {"validate_seconds": 1.5}
    for number, name in enumerate(("nopp", "drl3")):
        (project.root / f"{name}.onnx").write_bytes(variant(sample_onnx.read_bytes(), number))
    for name, folder in (("nopp", "No PP (June 26, 2026)-165"), ("drl3", "DRL V3 (July 9, 2026)-171")):
        project.add(
            name,
            f"{name}.onnx",
            folder=folder,
            target="box",
            bundle={"short_name": {"nopp": "NOPP", "drl3": "DRLV3"}[name]},
        )
    return project


def origin(project: Project) -> str:
    place = project.root / ".build/sandbox/origin.git"
    return subprocess.run(
        ["git", "rev-parse", "main"], cwd=place, check=True, capture_output=True, text=True
    ).stdout.strip()


def compiles_to(project: Project, artifact: Path) -> None:
    """From now on the device's compiles leave a copy of this file."""
    link = project.control() / "artifact"
    link.unlink()
    link.symlink_to(artifact)
    try:
        offset = free_offset(artifact)
    except (ValueError, IndexError):  # cut off: somewhere before its end
        offset = max(0, artifact.stat().st_size // 2 - 32)
    (project.control() / "offset").write_text(str(offset))


def assert_refused(project: Project, stage: str, *words: str) -> str:
    """`doit publish:nopp` fails at a stage with these words; the gate is shut, and origin is as it was."""
    before = origin(project)
    run = project.doit("publish:nopp")
    assert run.status == 1, run.text
    assert f"nopp {stage} failed" in run.text, run.text
    for word in words:
        assert word in run.text, f"{word!r} is not in\n{run.text}"
    assert "Not yet: " in project.doit("plan", "publish:nopp").out
    assert origin(project) == before
    return run.text


# Guide 11, before anything is installed: artifacts really compiled the wrong way


@pytest.fixture(scope="session")
def compiled(kept: Path, sample_onnx: Path, run_compile: Callable[..., Any]) -> Callable[..., Path]:
    """compiled(frame_skip=2): the sample compiled in another way than the guide's, kept between runs."""

    def make(**changes: Any) -> Path:
        made_from = content_of("compile_supercombo") + sample_onnx.read_bytes() + json.dumps(changes).encode()
        path = kept / f"wrong-{hashlib.sha256(made_from).hexdigest()[:16]}.pkl"
        with alone(kept / "wrong.lock"):
            if not path.is_file():
                done = run_compile(sample_onnx, path, **changes)
                assert done.returncode == 0, done.stderr
        return path

    return make


@pytest.mark.compile
def test_another_frame_skip_is_named(desk: Project, compiled: Callable[..., Path]) -> None:
    compiles_to(desk, compiled(frame_skip=2, cameras=("1344x760", "1928x1208")))
    text = assert_refused(desk, "verify", "frame skip")
    assert "expected frame_skip 4, got frame_skip 2" in text


@pytest.mark.compile
def test_a_camera_left_out_is_named(desk: Project, compiled: Callable[..., Path]) -> None:
    compiles_to(desk, compiled(cameras=("1344x760",)))
    assert_refused(desk, "verify", "1928x1208")


@pytest.mark.compile
def test_the_metadata_of_another_onnx_is_named(desk: Project, sample_artifact: Path, tmp_path: Path) -> None:
    names = list(inspect_artifact(sample_artifact).metadata.output_slices)  # type: ignore[union-attr, arg-type]
    other = tmp_path / "other.pkl"
    other.write_bytes(rename(sample_artifact.read_bytes(), {names[0]: names[1], names[1]: names[0]}))
    compiles_to(desk, other)
    assert_refused(desk, "verify", "its output_slices are not those of its ONNX", f"{names[0]} ")


@pytest.mark.compile
def test_an_artifact_of_another_tinygrad_is_named(desk: Project, tmp_path: Path) -> None:
    """What a compile script that keeps files, or imports a second tinygrad, leaves."""
    put_real_tinygrad(desk)
    desk.doit("verify:drl3").ok()
    unpack("0.13.0", tmp_path)
    compiles_to(desk, tmp_path / "good.pkl")
    assert_refused(desk, "verify", "was captured by another tinygrad", "tinygrad.dtype.PtrDType")


def put_real_tinygrad(project: Project) -> None:
    """The device gets the one that the workstation has."""
    import tinygrad

    there = project.device() / "data/openpilot/tinygrad_repo/tinygrad"
    shutil.rmtree(there)
    there.symlink_to(Path(tinygrad.__file__).parent)


def test_a_cpu_artifact_for_a_qcom_runtime_is_named(desk: Project) -> None:
    desk.settings["profile"] = "qcom"
    desk.declare()
    assert_refused(desk, "verify", "CPU", "QCOM", "OPENPILOT_HACKS=1")


@pytest.mark.compile
@pytest.mark.parametrize("kept_bytes", [0.5, 0.999])
def test_a_cut_off_copy_is_named(desk: Project, sample_artifact: Path, tmp_path: Path, kept_bytes: float) -> None:
    cut = tmp_path / "cut.pkl"
    data = sample_artifact.read_bytes()
    cut.write_bytes(data[: int(len(data) * kept_bytes)])
    compiles_to(desk, cut)
    assert_refused(desk, "verify", "cut off")


@pytest.mark.compile
def test_a_tiny_file_is_named(desk: Project, tmp_path: Path) -> None:
    tiny = tmp_path / "tiny.pkl"
    tiny.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 119000000\n")
    compiles_to(desk, tiny)
    assert_refused(desk, "verify")


@pytest.mark.compile
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("[Errno 13] Permission denied: '/root/.cache/tinygrad'", ("/root/.cache", "XDG_CACHE_HOME=/data/root-cache")),
        ("unable to open database file", ("cache cannot be written", "XDG_CACHE_HOME=/data/root-cache")),
        ("captured jit and a direct run of the model disagree", ("backend bug", "last good tinygrad")),
    ],
)
def test_a_compile_that_fails_says_why(desk: Project, said: str, words: tuple[str, ...]) -> None:
    desk.wish("fail", "nopp", said)
    assert_refused(desk, "compile", *words)


# Guide 10 and 11, in the run of IQPilot's harness


SIGNS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "args mismatch": ({"raise_at": 0.3, "error": "args mismatch in JIT"}, ("does not match the runtime",)),
    "frame skip": ({"raise_at": 0.3, "error": "arg=2 vs arg=5"}, ("compiled with another frame_skip", "arg=5")),
    "CPU in the crash output": ({"crash_file_at": 0.5, "crash": CPU_AND_QCOM}, ("CPU on one side and QCOM",)),
    "crash file": ({"crash_file_at": 0.5, "crash": "zork"}, ("crash files are new", "2026-12-01--12-00-00.log")),
    "iqmodeld disappears": ({"kill_model_at": 0.7}, ("the model process died",)),
    "iqmodeld becomes a zombie": (
        {"kill_model_at": 0.7, "leaves_the_dead": True},
        ("the model process died and became a zombie",),
    ),
    "freezes onroad": ({"freeze_at": 0.3, "seconds": 5}, ("modelV2 is dead although the model process lives",)),
    "freezes without a queue": ({"freeze_at": 0.3, "sends_nothing": True}, ("process froze",)),
    "livePose dies": ({"stops_pose_at": 0.4, "seconds": 5}, ("livePose died during the run",)),
    "commIssue spam": ({"comm_issue_at": 0.5}, ("commIssue spam",)),
    "the harness fails": ({"ends_at": 1.0, "status": 3}, ("the harness ended with an error",)),
    "it ends too soon": ({"ends_at": 0.8, "status": 0}, ("did not start up in its time",)),
    "another file beside its own": ({"others_file": DRL3}, ("another model ran", DRL3)),
}
SLOW = {
    *("freezes without a queue", "livePose dies", "it ends too soon", "args mismatch", "crash file"),
    *("frame skip", "iqmodeld disappears", "commIssue spam"),
}


@pytest.fixture
def iqpilot(desk: Project) -> Project:
    add_iqpilot(desk.device())
    return desk


@pytest.mark.parametrize("sign", [pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one for one in SIGNS])
def test_a_sign_in_the_run_is_a_refusal_with_its_cause(iqpilot: Project, sign: str) -> None:
    wishes, words = SIGNS[sign]
    iqpilot.settings["validate_seconds"] = wishes.pop("seconds", 1.5)
    iqpilot.declare()
    if sign.startswith("another"):
        iqpilot.doit("drl3").ok()
    wish(iqpilot.device(), **wishes)
    assert_refused(iqpilot, "validate", *words)
    assert not (iqpilot.device() / "data/media/0/models" / NOPP).exists(), "there was none before"
    assert (iqpilot.device() / "data/params/d/IsOnroad").read_text() == "0"


@pytest.mark.parametrize("wishes", [{"starts_no_model": True, "ends_at": 0.5}, {"fails_at_once": True}])
def test_a_harness_that_starts_no_model_says_nothing_about_the_artifact(
    iqpilot: Project, wishes: dict[str, Any]
) -> None:
    wish(iqpilot.device(), **wishes)
    told = "without a verdict within", "takes this install back; or: doit install:nopp"
    assert_refused(iqpilot, "validate", "the harness started no model process", *told)
    assert (iqpilot.device() / "data/media/0/models" / NOPP).exists(), "so it is not held against it"


@pytest.mark.slow
def test_a_harness_that_leaves_the_device_onroad_is_told_and_nothing_is_touched(iqpilot: Project) -> None:
    wish(iqpilot.device(), stays_onroad=True)
    assert_refused(iqpilot, "validate", "left the device onroad")
    assert (iqpilot.device() / "data/media/0/models" / NOPP).exists()
    (iqpilot.device() / "data/params/d/IsOnroad").write_text("0")
    wish(iqpilot.device())
    iqpilot.doit("validate:nopp").ok()


@pytest.mark.slow
def test_a_harness_that_will_not_end_is_killed_and_told(iqpilot: Project) -> None:
    wish(iqpilot.device(), ignores_the_end=True)
    assert_refused(iqpilot, "validate", "was killed")


def test_an_older_file_still_held_is_no_pass(iqpilot: Project) -> None:
    """The stale artifact of guide 11: the path has the new bytes, the process those of a removed file."""
    active = iqpilot.device() / "data/media/0/models" / NOPP
    iqpilot.doit("install:nopp").ok()
    before = origin(iqpilot)
    daemon = iqpilot.device() / "data/openpilot/iqpilot/selfdrive/iqmodeld/daemon.py"
    text = daemon.read_text()
    # It opens a copy of the former file, which is gone when the harness has run for a moment.
    stale = active.with_name("driving_supercombo_nopp.old.pkl")
    shutil.copy(active, stale)
    daemon.write_text(
        text.replace('file = path.open("rb")', f'path = Path({str(stale)!r})\n    file = path.open("rb")')
    )
    run = iqpilot.doit("publish:nopp")
    assert run.status == 1
    assert "another model ran" in run.text
    assert origin(iqpilot) == before


def test_two_models_on_one_device_at_once_are_proven_each_by_its_own_bytes(iqpilot: Project) -> None:
    iqpilot.doit("-n", "2", "validate").ok()
    receipts = [json.loads(path.read_text()) for path in iqpilot.receipts() if path.parent.name == "validate"]
    held = {
        receipt["model"]: [Path(path).name for model in proof["models"] for path in model["holds"]]
        for receipt in receipts
        for proof in [receipt["result"]["verdicts"]["supercombo"]["proof"]]
    }
    assert held == {"nopp": [NOPP], "drl3": [DRL3]}
    wish(iqpilot.device(), runs=DRL3)
    run = iqpilot.doit("-n", "2", "-a", "validate:nopp", "validate:drl3")
    assert run.status == 1
    assert "nopp validate failed" in run.text
    assert "another model ran" in run.text
    assert "drl3 validate failed" not in run.text


# Really loaded and driven by tinygrad: what the runtime itself says


def drive_for_real(project: Project, artifact: Path) -> Any:
    """Validates bytes that verify would have stopped, as a device that got them another way does."""
    compiles_to(project, artifact)
    project.settings |= {"validate_seconds": 4, "timeouts": {"validate": 200}}
    project.declare()
    put_real_tinygrad(project)
    models = project.device() / "data/media/0/models"
    project.doit("compile:nopp").ok()
    shutil.copy(models / NOPP.replace(".pkl", ".recompiled.pkl"), models / NOPP)
    wish(project.device(), real=True)
    return project.doit("-s", "validate:nopp")


@pytest.mark.slow
@pytest.mark.compile
def test_a_good_artifact_is_driven_and_passes(iqpilot: Project, sample_artifact: Path) -> None:
    run = drive_for_real(iqpilot, sample_artifact)
    assert run.status == 0, run.text


@pytest.mark.compile
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"frame_skip": 2, "cameras": ("1344x760", "1928x1208")}, ("another frame_skip", "--frame-skip, 4 on IQPilot")),
        pytest.param(
            {"cameras": ("1928x1208",)},
            ("the runtime looks for what is not in it", "all its cameras"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_the_runtime_says_of_a_wrong_artifact_is_understood(
    iqpilot: Project, compiled: Callable[..., Path], changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    run = drive_for_real(iqpilot, compiled(**changes))
    assert run.status == 1
    for word in words:
        assert word in run.text, run.text


@pytest.mark.slow
@pytest.mark.compile
def test_a_cut_off_artifact_is_understood_when_it_is_loaded(
    iqpilot: Project, sample_artifact: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.pkl"
    cut.write_bytes(sample_artifact.read_bytes()[:-1000])
    run = drive_for_real(iqpilot, cut)
    assert run.status == 1
    assert "the artifact is incomplete" in run.text


@pytest.mark.compile
def test_an_artifact_of_another_tinygrad_is_understood(iqpilot: Project, tmp_path: Path) -> None:
    unpack("0.13.0", tmp_path)
    run = drive_for_real(iqpilot, tmp_path / "good.pkl")
    assert run.status == 1
    assert "the tinygrad that runs is not the one that compiled the artifact" in run.text


# And the accepted twin of them all


@pytest.mark.compile
def test_a_good_one_goes_all_the_way_and_a_reason_for_no_drive_is_written_down(iqpilot: Project) -> None:
    iqpilot.head["targets"]["box"]["policy"] = ["harness", "onroad"]
    iqpilot.declare()
    before = origin(iqpilot)
    assert "onroad attestation" in iqpilot.doit("publish:nopp").text
    assert origin(iqpilot) == before
    iqpilot.doit("run", "--without-onroad", "the car is in the shop", "publish:nopp").ok()
    place = iqpilot.root / ".build/sandbox/origin.git"
    subject = subprocess.run(
        ["git", "log", "-1", "--format=%s", "main"], cwd=place, check=True, capture_output=True, text=True
    ).stdout
    assert "without an onroad drive: the car is in the shop" in subject
    report = iqpilot.doit("report", "nopp").ok().out
    assert "published without a drive: the car is in the shop" in report
    assert "IQPilot's harness: model alive" in report
    assert "not seen: iqPlan" in report
