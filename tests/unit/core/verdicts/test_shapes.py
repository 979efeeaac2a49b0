"""Shapes that the runtime passes, against those of a real supercombo (facts, section 1)."""

from __future__ import annotations

import pytest

from buildlib.core.verdicts.contract import ShapeRule
from buildlib.core.verdicts.shapes import USUAL_INPUTS, expected_shape, frame_skip_of, packed_floats, queue_depth


@pytest.mark.parametrize(
    ("rule", "shape"),
    [
        ("warped", (2, 6, 128, 256)),
        ("image_queue", (5, 6, 128, 256)),
        ("feature_queue", (96, 1, 512)),
        ("desire_queue", (100, 1, 8)),
        ("packed", (524,)),
        ("matrix", (3, 3)),
        ("frame", (2_428_928,)),
        ("image", (1, 12, 128, 256)),
    ],
)
def test_shapes_of_todays_supercombo(rule: ShapeRule, shape: tuple[int, ...]) -> None:
    found = expected_shape(rule, frame_skip=4, model_size=(512, 256), camera=(1344, 760), inputs=USUAL_INPUTS)
    assert found == shape


def test_metadata_that_tells_nothing_means_the_usual_inputs() -> None:
    assert packed_floats({}) == packed_floats(USUAL_INPUTS) == 524


def test_extra_inputs_lengthen_the_packed_vector() -> None:
    assert packed_floats({**USUAL_INPUTS, "lateral_control_params": (1, 2)}) == 526


def test_spatial_features_lengthen_queue_and_packed_vector() -> None:
    inputs = {**USUAL_INPUTS, "features_buffer": (1, 24, 32, 512)}
    assert packed_floats(inputs) == 12 + 32 * 512
    shape = expected_shape("feature_queue", frame_skip=4, model_size=(512, 256), camera=None, inputs=inputs)
    assert shape == (96, 1, 32 * 512)


@pytest.mark.parametrize("frame_skip", range(1, 9))
def test_frame_skip_can_be_told_from_the_depth(frame_skip: int) -> None:
    assert frame_skip_of(queue_depth(frame_skip, USUAL_INPUTS), USUAL_INPUTS) == frame_skip


def test_a_depth_of_no_frame_skip_tells_none() -> None:
    assert frame_skip_of(1, USUAL_INPUTS) is None
    assert frame_skip_of(4, {"img": (1, 18, 128, 256)}) is None


def test_inputs_of_a_strange_rank_do_no_harm() -> None:
    odd = {"img": (1,), "features_buffer": (), "desire_pulse": (3, 4)}
    assert expected_shape("image_queue", frame_skip=4, model_size=(512, 256), camera=None, inputs=odd)
