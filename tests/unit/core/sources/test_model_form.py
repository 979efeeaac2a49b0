"""Which ONNX is a driving model, and what is wrong with those that are not quite."""

from __future__ import annotations

import msgspec
import pytest

from buildlib.core.sources.model_form import check_source, expected_artifact_bytes, guess_role
from buildlib.core.sources.onnx_inspection import Dim, OnnxInspection, TensorSpec

IMAGES: dict[str, tuple[str, tuple[Dim, ...]]] = {
    "img": ("uint8", (1, 12, 128, 256)),
    "big_img": ("uint8", (1, 12, 128, 256)),
}
MEMORY: dict[str, tuple[str, tuple[Dim, ...]]] = {
    "desire_pulse": ("float16", (1, 25, 8)),
    "traffic_convention": ("float16", (1, 2)),
    "features_buffer": ("float16", (1, 24, 512)),
}
SUPERCOMBO = {**IMAGES, **MEMORY, "action_t": ("float16", (1, 2))}
SLICES = dict.fromkeys(("hidden_state", "pose", "wide_from_device_euler", "road_transform"), (0, 6))


def inspection(inputs: dict[str, tuple[str, tuple[Dim, ...]]], **more: object) -> OnnxInspection:
    fields: dict[str, object] = {
        "file_bytes": 1,
        "producer": "",
        "graph": "",
        "ir_version": 9,
        "opsets": {"": 17},
        "inputs": tuple(TensorSpec(name=name, dtype=kind, shape=shape) for name, (kind, shape) in inputs.items()),
        "outputs": (),
        "operators": {},
        "weight_bytes": 1,
        "weight_count": 1,
        "weight_dtypes": {},
        "output_slices": SLICES,
        **more,
    }
    return msgspec.convert(msgspec.to_builtins(fields), OnnxInspection)


def lines(seen: OnnxInspection, kind: str = "supercombo", role: str = "supercombo") -> list[str]:
    return [f"{problem.severity}: {problem.text()}" for problem in check_source(seen, kind, role)]


def test_a_supercombo_is_fine() -> None:
    assert lines(inspection(SUPERCOMBO)) == []


@pytest.mark.parametrize("name", SUPERCOMBO)
def test_each_missing_input_is_named(name: str) -> None:
    found = lines(inspection({key: value for key, value in SUPERCOMBO.items() if key != name}))
    assert len(found) == 1
    assert f"input {name} is missing" in found[0]


@pytest.mark.parametrize("name", SUPERCOMBO)
def test_each_other_dtype_and_shape_is_named(name: str) -> None:
    kind, shape = SUPERCOMBO[name]
    found = lines(inspection({**SUPERCOMBO, name: ("int64", shape)}))
    assert found[0].startswith(f"error: input {name} has another dtype: expected {kind}")
    assert "got int64" in found[0]
    found = lines(inspection({**SUPERCOMBO, name: (kind, (*shape[:-1], 7))}))
    assert found[0].startswith(f"error: input {name} has another shape: expected {kind}")
    assert ", 7)" in found[0]


def test_a_free_size_is_another_shape() -> None:
    found = lines(inspection({**SUPERCOMBO, "action_t": ("float16", ("batch", 2))}))
    assert "got float16 (batch, 2)" in found[0]


def test_float32_vectors_are_a_note() -> None:
    found = lines(inspection({**SUPERCOMBO, "action_t": ("float32", (1, 2))}))
    assert found == ["note: input action_t is float32: expected float16 as in published models"]


def test_an_extra_vector_is_a_note_and_others_are_errors() -> None:
    assert lines(inspection({**SUPERCOMBO, "nav": ("float16", (1, 64))})) == [
        "note: extra input nav, float16 (1, 64), is packed behind the others"
    ]
    for bad in (("int64", (1,)), ("float16", ("n",)), ("float16", (1, 0))):
        assert lines(inspection({**SUPERCOMBO, "nav": bad}))[0].startswith("error: extra input nav cannot be fed")
    found = lines(inspection({**IMAGES, "nav": ("float16", (1, 2))}), "vision_policy", "vision")
    assert found[0].startswith("error: extra input nav")


def test_another_model_size_wants_other_images() -> None:
    seen = inspection({**SUPERCOMBO, "img": ("uint8", (1, 12, 256, 512)), "big_img": ("uint8", (1, 12, 256, 512))})
    assert check_source(seen, "supercombo", "supercombo", (1024, 512)) == []
    assert len(check_source(seen, "supercombo", "supercombo")) == 2


def test_odometry_outputs_are_wanted() -> None:
    found = lines(inspection(SUPERCOMBO, output_slices={"hidden_state": (0, 1), "pose": (1, 13)}))
    assert "wide_from_device_euler, road_transform missing" in found[0]
    found = lines(inspection(SUPERCOMBO, output_slices=None))
    assert "output_slices is missing" in found[0]


@pytest.mark.parametrize(
    ("inputs", "more", "name"),
    [
        ({"input": ("float32", (None, None)), "state": ("float32", (2, None, 128)), "sr": ("int64", ())}, {}, "silero"),
        ({"input": ("float32", ()), "h": ("float32", ()), "c": ("float32", ())}, {}, "silero-vad"),
        ({"bytes": ("int32", ("n", 2048))}, {}, "magika"),
        ({"x": ("float32", (None, 3, None, None))}, {"producer": "PaddlePaddle"}, "rapidocr"),
        ({"x": ("float32", (None, 3, None, None))}, {"metadata": {"character": "abc"}}, "rapidocr"),
        ({"input_imgs": ("float32", ()), "features_buffer": ("float32", ())}, {}, "older openpilot"),
        ({"input_img": ("float32", ()), "calib": ("float32", ())}, {}, "driver monitoring"),
        ({"data": ("float32", (1, 3, 224, 224))}, {}, "no driving model"),
        ({}, {}, "no driving model"),
    ],
)
def test_a_foreign_model_gives_one_line_with_its_name(
    inputs: dict[str, tuple[str, tuple[Dim, ...]]], more: dict[str, object], name: str
) -> None:
    problems = check_source(inspection(inputs, **more), "supercombo", "supercombo")
    assert len(problems) == 1
    assert name in problems[0].text()
    assert problems[0].remedy


def test_split_models_by_role() -> None:
    vision, policy = inspection(IMAGES), inspection(MEMORY)
    assert lines(vision, "vision_policy", "vision") == []
    assert lines(policy, "vision_policy", "policy") == []
    for role in ("on_policy", "off_policy"):
        assert lines(policy, "vision_multi_policy", role) == []
    longer = inspection({**MEMORY, "features_buffer": ("float16", (1, 25, 512))})
    assert lines(longer, "vision_policy", "policy") == []


def test_a_part_in_the_wrong_role_is_named_with_the_kind_to_set() -> None:
    found = check_source(inspection(IMAGES), "supercombo", "supercombo")
    assert "vision part of a split model" in found[0].text()
    assert "vision_policy" in found[0].remedy
    assert "policy part" in lines(inspection(MEMORY), "vision_policy", "vision")[0]
    exchanged = check_source(inspection(MEMORY), "vision_policy", "vision")[0]
    assert "exchanged" in exchanged.remedy
    assert "set kind" not in exchanged.remedy
    assert "whole supercombo" in lines(inspection(SUPERCOMBO), "vision_policy", "vision")[0]
    assert "no ONNX of the role 'policy'" in lines(inspection(MEMORY), "supercombo", "policy")[0]


def test_roles_are_guessed_from_inputs() -> None:
    assert guess_role(inspection(SUPERCOMBO)) == "supercombo"
    assert guess_role(inspection(IMAGES)) == "vision"
    assert guess_role(inspection(MEMORY)) == "policy"
    assert guess_role(inspection({"x": ("float32", ())})) is None


def test_expected_size_follows_the_weights() -> None:
    assert expected_artifact_bytes(5_500_000, 2, "CPU") == pytest.approx(15.9e6, rel=0.01)
    assert expected_artifact_bytes(117_800_000, 2, "QCOM") == pytest.approx(119e6, rel=0.01)
