"""Shapes that a runtime will pass, from frame skip, model size, camera and the model's own inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from buildlib.core.verdicts.camera import frame_bytes, frame_layout
from buildlib.core.verdicts.contract import ShapeRule

USUAL_INPUTS: Final[Mapping[str, tuple[int, ...]]] = {
    "img": (1, 12, 128, 256),
    "big_img": (1, 12, 128, 256),
    "desire_pulse": (1, 25, 8),
    "traffic_convention": (1, 2),
    "features_buffer": (1, 24, 512),
    "action_t": (1, 2),
}
"""Inputs of today's supercombo ONNX (facts, section 1), for what an artifact's metadata does not tell."""

_QUEUED: Final = ("img", "big_img", "desire_pulse", "features_buffer")
_MATRICES: Final = 18


def image_frames(inputs: Mapping[str, tuple[int, ...]]) -> int:
    """Camera frames in one image input: channels / 6."""
    return max(1, _input(inputs, "img")[1] // 6)


def queue_depth(frame_skip: int, inputs: Mapping[str, tuple[int, ...]]) -> int:
    """First dimension of an image queue: 5 for frame skip 4."""
    return frame_skip * (image_frames(inputs) - 1) + 1


def frame_skip_of(depth: int, inputs: Mapping[str, tuple[int, ...]]) -> int | None:
    """The frame skip that gives an image queue of that depth; None if none does."""
    steps = image_frames(inputs) - 1
    return (depth - 1) // steps if steps and depth > 1 and (depth - 1) % steps == 0 else None


def expected_shape(
    rule: ShapeRule,
    *,
    frame_skip: int,
    model_size: tuple[int, int],
    camera: tuple[int, int] | None,
    inputs: Mapping[str, tuple[int, ...]],
) -> tuple[int, ...]:
    """The shape that the runtime's argument will have.

    model_size, camera: (width, height) in pixels. inputs: the ONNX inputs' shapes by name.
    """
    width, height = model_size
    features, desire = _input(inputs, "features_buffer"), _input(inputs, "desire_pulse")
    match rule:
        case "warped":
            return (2, 6, height // 2, width // 2)
        case "image":
            return (1, 6 * image_frames(inputs), height // 2, width // 2)
        case "image_queue":
            return (queue_depth(frame_skip, inputs), 6, height // 2, width // 2)
        case "feature_queue":
            return (frame_skip * features[1], features[0], math.prod(features[2:]))
        case "desire_queue":
            return (frame_skip * desire[1], desire[0], desire[2])
        case "matrix":
            return (3, 3)
        case "packed":
            return (packed_floats(inputs),)
        case "frame":
            return (frame_bytes(*(camera or (0, 0))),)
        case "packed_with_frames":
            return (4 * (_MATRICES + packed_floats(inputs)) + 2 * frame_layout(*(camera or (0, 0))).planes,)


def packed_floats(inputs: Mapping[str, tuple[int, ...]]) -> int:
    """Length of the packed vector: desire, traffic_convention, action_t, prev_feat, then inputs of a model's own."""
    features, desire = _input(inputs, "features_buffer"), _input(inputs, "desire_pulse")
    rest = sum(math.prod(shape) for name, shape in inputs.items() if name not in _QUEUED)
    missing = sum(math.prod(USUAL_INPUTS[name]) for name in ("traffic_convention", "action_t") if not inputs.get(name))
    return desire[2] + features[0] * math.prod(features[2:]) + rest + missing


def _input(inputs: Mapping[str, tuple[int, ...]], name: str) -> tuple[int, ...]:
    """The shape of an input; the usual one where it is missing or of another rank."""
    usual = USUAL_INPUTS[name]
    found = inputs.get(name, usual)
    return found if len(found) >= len(usual) else usual
