"""What a model's declaration asks of its artifact."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from buildlib.core.catalog import Model, PathSource
from buildlib.core.verdicts.verdict import expectations_of

MODEL = Model(
    name="nopp",
    display_name="No PP",
    folder="No PP-165",
    sources={"supercombo": PathSource(path="a.onnx")},
    artifacts={"supercombo": "a.pkl"},
    profile="qcom",
    frame_skip=2,
    camera_resolutions=((1344, 760),),
    model_size=(256, 128),
)


def test_frame_skip_cameras_and_size_come_from_the_model() -> None:
    found = expectations_of(MODEL, expected_device="QCOM", flags={"DEV": "QCOM", "WARP_DEV": "QCOM"}, onnx_bytes=7)
    assert (found.contract, found.frame_skip, found.model_size, found.onnx_bytes) == ("supercombo", 2, (256, 128), 7)
    assert found.cameras == ((1344, 760),)
    assert (found.expected_device, found.warp_device) == ("QCOM", "QCOM")


@pytest.mark.parametrize(
    ("flag", "device"), [("QCOM", "QCOM"), ("USB+AMD:LLVM", "AMD"), ("CPU:LLVM", "CPU"), ("", None)]
)
def test_the_warps_device_comes_from_the_flags(flag: str, device: str | None) -> None:
    assert expectations_of(MODEL, expected_device="AMD", flags={"WARP_DEV": flag}).warp_device == device


@pytest.mark.parametrize(
    ("role", "contract"),
    [("vision", "split_vision"), ("policy", "split_policy"), ("off_policy", "split_policy")],
)
def test_the_contract_comes_from_the_role(role: str, contract: str) -> None:
    assert expectations_of(MODEL, expected_device="CPU", flags={}, role=role).contract == contract


def test_an_artifact_that_combines_all_parts_has_the_contract_of_its_kind() -> None:
    split = replace(MODEL, kind="vision_multi_policy")
    found = expectations_of(split, expected_device="CPU", flags={}, role="combined")
    assert found.contract == "vision_multi_policy"
