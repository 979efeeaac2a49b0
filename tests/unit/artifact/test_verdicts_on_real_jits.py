"""Every refusal on artifacts that have the fault, made by really capturing or by rewriting inside a real pickle.

Each refused artifact has an accepted twin: the same file judged by expectations that it meets, or the file before the
fault was put in.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from buildlib.artifact.examine import examine
from buildlib.artifact.inspect_file import inspect_artifact
from buildlib.core.verdicts.inspection import Weight
from buildlib.core.verdicts.verdict import Expectations, Verdict, judge
from tests.support.rewriting import mentions_of_cpu, rename, rewrite, to_device

pytestmark = pytest.mark.compile

CPU = Expectations(expected_device="CPU")
QCOM = Expectations(expected_device="QCOM")


def verdict_on(path: Path, expectations: Expectations) -> Verdict:
    return judge(inspect_artifact(path), expectations)


def codes(verdict: Verdict) -> set[str]:
    return {one.code for one in verdict.refusals}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return tmp_path / "rewritten.pkl"


@pytest.fixture(scope="session")
def qcom(jits: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The good artifact as if captured on a device."""
    path = tmp_path_factory.mktemp("qcom") / "qcom.pkl"
    path.write_bytes(to_device(jits["good"].read_bytes(), "QCOM"))
    return path


@pytest.mark.parametrize("name", ["good", "out_of_band"])
def test_a_good_artifact_is_good(jits: dict[str, Path], name: str) -> None:
    verdict = verdict_on(jits[name], CPU)
    assert verdict.good, verdict.findings
    assert verdict.findings == ()


def test_a_good_qcom_artifact_is_good(qcom: Path) -> None:
    verdict = verdict_on(qcom, QCOM)
    assert verdict.good, verdict.findings


def test_a_real_supercombo_is_good_for_its_onnx(sample_artifact: Path, sample_onnx: Path) -> None:
    weights = sample_onnx.stat().st_size
    verdict = verdict_on(sample_artifact, Expectations(expected_device="CPU", onnx_bytes=weights))
    assert verdict.good, verdict.findings


def test_a_real_supercombo_is_judged_by_its_device(sample_artifact: Path, written: Path) -> None:
    data = sample_artifact.read_bytes()
    written.write_bytes(to_device(data, "QCOM"))
    assert verdict_on(written, QCOM).good
    assert codes(verdict_on(written, CPU)) == {"wrong_device", "input_device"}
    written.write_bytes(to_device(data, "QCOM", leave=mentions_of_cpu(data) // 2))
    assert not verdict_on(written, QCOM).good


def test_a_cpu_artifact_is_refused_for_qcom(jits: dict[str, Path]) -> None:
    verdict = verdict_on(jits["good"], QCOM)
    assert {"wrong_device", "input_device"} <= codes(verdict)
    finding = next(one for one in verdict.refusals if one.code == "wrong_device")
    assert finding.guide == "11"
    assert "QCOM" in finding.expected
    assert "CPU" in finding.found
    assert "DEV=QCOM" in finding.remedy


def test_one_cpu_buffer_program_or_copy_inside_a_qcom_artifact_is_refused(jits: dict[str, Path], written: Path) -> None:
    data = jits["good"].read_bytes()
    seen = set()
    for leave in range(mentions_of_cpu(data)):
        written.write_bytes(to_device(data, "QCOM", leave=leave))
        found = inspect_artifact(written)
        verdict = judge(found, QCOM)
        assert not verdict.good, f"mention {leave} of the CPU went unseen"
        if "mixed_devices" in codes(verdict):
            assert any("CPU inside a QCOM artifact" in one.what for one in verdict.refusals)
        seen |= {"buffer"} if "CPU" in found.devices else set()
        seen |= {"program"} if any(one.startswith("CPU") for one in found.targets) else set()
        seen |= {"input"} if "input_device" in codes(verdict) else set()
    assert seen == {"buffer", "program", "input"}


def test_a_warp_on_another_device_is_refused_unless_it_is_asked_for(jits: dict[str, Path]) -> None:
    assert verdict_on(jits["good"], Expectations(expected_device="CPU", warp_device="CPU")).good
    assert "mixed_devices" in codes(verdict_on(jits["good"], Expectations(expected_device="CPU", warp_device="QCOM")))


def test_a_null_artifact_is_refused(jits: dict[str, Path], written: Path) -> None:
    written.write_bytes(to_device(jits["good"].read_bytes(), "NULL"))
    assert "null_device" in codes(verdict_on(written, QCOM))
    assert "null_device" in codes(verdict_on(written, Expectations(expected_device="NULL")))


def test_weights_of_zeros_are_refused(jits: dict[str, Path]) -> None:
    assert "zero_weights" in codes(verdict_on(jits["zero"], CPU))


def test_another_frame_skip_is_refused_with_both_depths(jits: dict[str, Path]) -> None:
    assert verdict_on(jits["frame_skip_2"], Expectations(expected_device="CPU", frame_skip=2)).good
    verdict = verdict_on(jits["frame_skip_2"], CPU)
    assert codes(verdict) == {"frame_skip"}
    assert any("arg=3 vs arg=5" in one.what for one in verdict.refusals)
    assert all("--frame-skip 4" in one.remedy for one in verdict.refusals)


def test_queues_of_another_frame_skip_than_the_artifact_says_are_refused(jits: dict[str, Path], written: Path) -> None:
    after = False

    def edit(name: str, argument: object, raw: bytes) -> bytes | None:
        nonlocal after
        if argument == "frame_skip":
            after = True
        elif after and name == "BININT1":
            after = False
            return b"K\x04"
        return None

    written.write_bytes(rewrite(jits["frame_skip_2"].read_bytes(), edit))
    assert inspect_artifact(written).frame_skip == 4
    assert codes(verdict_on(written, CPU)) == {"frame_skip"}


def test_a_missing_camera_is_refused_and_named(jits: dict[str, Path]) -> None:
    assert verdict_on(jits["one_camera"], Expectations(expected_device="CPU", cameras=((1344, 760),))).good
    verdict = verdict_on(jits["one_camera"], CPU)
    assert codes(verdict) == {"camera_missing"}
    assert "1928x1208" in verdict.refusals[0].what


def test_a_camera_too_many_is_a_warning(jits: dict[str, Path]) -> None:
    verdict = verdict_on(jits["good"], Expectations(expected_device="CPU", cameras=((1344, 760),)))
    assert verdict.good
    assert {one.code for one in verdict.findings} == {"camera_extra"}


def test_a_frame_buffer_of_the_wrong_size_is_refused(jits: dict[str, Path]) -> None:
    verdict = verdict_on(jits["wrong_frame"], CPU)
    assert codes(verdict) == {"frame_size"}
    finding = verdict.refusals[0]
    assert (finding.expected, finding.found) == ("2,428,928 bytes", "1,532,160 bytes")
    assert "1344x760" in finding.what


def test_another_model_size_is_refused(jits: dict[str, Path]) -> None:
    found = inspect_artifact(jits["other_size"])
    assert codes(judge(found, CPU)) == {"input_shape"}


def test_another_dtype_is_refused(jits: dict[str, Path]) -> None:
    verdict = verdict_on(jits["half_features"], CPU)
    assert codes(verdict) == {"input_dtype"}
    assert (verdict.refusals[0].expected, verdict.refusals[0].found) == ("float32", "float16")


def test_positional_arguments_are_refused(jits: dict[str, Path]) -> None:
    verdict = verdict_on(jits["positional"], CPU)
    assert codes(verdict) == {"names"}
    assert "positional" in verdict.refusals[0].what


def test_other_names_are_refused(jits: dict[str, Path], written: Path) -> None:
    written.write_bytes(rename(jits["good"].read_bytes(), {"feat_q": "features_q"}))
    verdict = verdict_on(written, CPU)
    assert codes(verdict) == {"names"}
    assert "features_q" in verdict.refusals[0].found


def test_another_order_of_the_same_names_is_refused(jits: dict[str, Path], written: Path) -> None:
    written.write_bytes(rename(jits["good"].read_bytes(), {"feat_q": "img_q", "img_q": "feat_q"}))
    verdict = verdict_on(written, CPU)
    assert "names" in codes(verdict)
    assert "another order" in verdict.refusals[0].what


def test_a_root_without_a_key_that_the_runtime_reads_is_refused(jits: dict[str, Path], written: Path) -> None:
    stock = Expectations(expected_device="CPU", contract="run_model")
    assert verdict_on(jits["run_model"], stock).good
    written.write_bytes(rename(jits["run_model"].read_bytes(), {"input_devices": "input_device"}))
    verdict = verdict_on(written, stock)
    assert codes(verdict) == {"root_key_missing"}
    assert "KeyError: 'input_devices'" in verdict.refusals[0].what


def test_metadata_without_output_slices_is_refused(jits: dict[str, Path], written: Path) -> None:
    written.write_bytes(rename(jits["good"].read_bytes(), {"output_slices": "slices"}))
    assert codes(verdict_on(written, CPU)) == {"metadata_missing"}


def test_one_runtimes_artifact_is_refused_by_anothers_contract(jits: dict[str, Path]) -> None:
    bare = Expectations(expected_device="CPU", contract="compile3", onnx_bytes=800_000)
    assert verdict_on(jits["compile3"], bare).good
    assert "wrong_form" in codes(verdict_on(jits["compile3"], CPU))
    assert "wrong_form" in codes(verdict_on(jits["good"], bare))
    assert {"root_key_missing", "camera_missing", "jit_missing"} <= codes(verdict_on(jits["run_model"], CPU))


def test_a_bare_jit_is_held_against_the_onnx_inputs(jits: dict[str, Path]) -> None:
    names = ("warped", "img_q", "big_img_q", "feat_q", "desire_q", "packed_npy_inputs")
    fits = Expectations(expected_device="CPU", contract="split_policy", onnx_bytes=800_000, onnx_inputs=names)
    assert verdict_on(jits["compile3"], fits).good
    other = Expectations(expected_device="CPU", contract="split_policy", onnx_bytes=800_000, onnx_inputs=names[1:])
    assert codes(verdict_on(jits["compile3"], other)) == {"names"}


def test_a_file_too_small_or_too_big_for_its_onnx_is_refused(jits: dict[str, Path]) -> None:
    def verdict(onnx_bytes: int) -> set[str]:
        return codes(verdict_on(jits["good"], Expectations(expected_device="CPU", onnx_bytes=onnx_bytes, cameras=())))

    size = jits["good"].stat().st_size
    assert verdict(size) == set()
    assert verdict(size * 2) == {"too_small"}
    assert verdict(size * 60) == {"tiny"}
    whole = jits["run_model"].stat().st_size
    for weights, found in ((whole, set()), (whole // 10, {"too_big"})):
        stock = Expectations(expected_device="CPU", contract="run_model", onnx_bytes=weights, cameras=())
        assert codes(verdict_on(jits["run_model"], stock)) == found


def test_a_capture_without_a_program_is_refused(jits: dict[str, Path]) -> None:
    found = inspect_artifact(jits["good"])
    assert codes(judge(msgspec.structs.replace(found, programs=0), CPU)) == {"no_kernels"}
    assert judge(found, CPU).good


def test_a_buffer_of_zeros_among_weights_is_a_warning(jits: dict[str, Path]) -> None:
    found = inspect_artifact(jits["good"])
    hollow = Weight(device="CPU", dtype="float16", elements=65_536, payload=131_072, zeros=1.0)
    verdict = judge(msgspec.structs.replace(found, weights=(*found.weights, hollow)), CPU)
    assert verdict.good
    assert [one.code for one in verdict.findings] == ["zero_buffer"]


def test_a_tiny_file_is_refused_without_knowing_the_onnx(jits: dict[str, Path]) -> None:
    assert "tiny" in codes(verdict_on(jits["compile3"], Expectations(expected_device="CPU", contract="compile3")))


def test_trailing_bytes_are_refused(jits: dict[str, Path], written: Path) -> None:
    written.write_bytes(jits["good"].read_bytes() + b"\0")
    assert codes(verdict_on(written, CPU)) == {"trailing_bytes"}


def test_a_truncated_copy_gets_a_verdict_and_no_exception(jits: dict[str, Path], written: Path) -> None:
    written.write_bytes(jits["good"].read_bytes()[:-1000])
    found, verdict = examine(written, CPU)
    assert found is None
    assert codes(verdict) == {"truncated"}
    assert verdict.refusals[0].guide == "11"


def test_a_global_of_a_stranger_is_refused(jits: dict[str, Path], written: Path) -> None:
    written.write_bytes(rename(jits["good"].read_bytes(), {"tinygrad.renderer": "posix", "Estimates": "system"}))
    verdict = verdict_on(written, CPU)
    assert codes(verdict) == {"unknown_global"}
    assert "posix.system" in verdict.refusals[0].found


def test_a_buffer_whose_content_does_not_fit_is_refused(jits: dict[str, Path], written: Path) -> None:
    def edit(name: str, argument: object, raw: bytes) -> bytes | None:
        return (393_216 // 2).to_bytes(4, "little").join((b"J", b"")) if argument == 393_216 else None

    written.write_bytes(rewrite(jits["good"].read_bytes(), edit))
    assert "odd" in codes(verdict_on(written, CPU))


def test_every_finding_says_all_there_is_to_say(jits: dict[str, Path]) -> None:
    for name, path in jits.items():
        for expectations in (CPU, QCOM, Expectations(expected_device="CPU", contract="run_model")):
            for one in verdict_on(path, expectations).findings:
                assert one.what, name
                assert one.expected, (name, one.code)
                assert one.found, (name, one.code)
                assert one.remedy, (name, one.code)
