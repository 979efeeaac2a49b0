"""run_policy: the queues that it keeps between frames, and the model behind them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from .checks import STEPS, Outcome
from .inputs import MODEL_INPUTS


def packed_layout(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Parts of packed_npy_inputs (float32), in order: desire, traffic_convention, action_t, prev_feat, extras."""
    layout = {
        "desire": shapes["desire_pulse"][2:],
        "traffic_convention": shapes["traffic_convention"],
        "action_t": shapes["action_t"],
        "prev_feat": (1, math.prod(shapes["features_buffer"][2:])),
    }
    return layout | {name: shape for name, shape in shapes.items() if name not in MODEL_INPUTS}


def queue_shapes(shapes: dict[str, tuple[int, ...]], frame_skip: int) -> dict[str, tuple[tuple[int, ...], type]]:
    """The state that run_policy keeps between frames: name -> (shape, dtype)."""
    features, desire = shapes["features_buffer"], shapes["desire_pulse"]
    queues: dict[str, tuple[tuple[int, ...], type]] = {}
    for queue, image in (("img_q", shapes["img"]), ("big_img_q", shapes["big_img"])):
        queues[queue] = ((frame_skip * (image[1] // 6 - 1) + 1, 6, *image[2:]), np.uint8)
    queues["feat_q"] = ((frame_skip * features[1], 1, math.prod(features[2:])), np.float32)
    queues["desire_q"] = ((frame_skip * desire[1], 1, *desire[2:]), np.float32)
    return queues


def make_policy(model: Any, shapes: dict[str, tuple[int, ...]], frame_skip: int) -> Callable[..., Any]:
    """run_policy: moves every queue on by one frame, samples it every frame_skip, runs the model.

    Returns a tuple of one (1, N) float32 tensor. A desire pulse counts if it was set in any of its skipped frames.
    """
    from tinygrad import Device, Tensor

    layout = packed_layout(shapes)

    def push(queue: Any, new: Any) -> Any:
        queue.assign(queue[1:].cat(new).contiguous())
        return queue

    def run_policy(warped: Any, img_q: Any, big_img_q: Any, feat_q: Any, desire_q: Any, packed_npy_inputs: Any) -> Any:
        packed = packed_npy_inputs.to(Device.DEFAULT)
        warped = warped.to(Device.DEFAULT)
        Tensor.realize(packed, warped)
        parts = packed.split([math.prod(shape) for shape in layout.values()])
        inputs = {name: part.reshape(shape) for (name, shape), part in zip(layout.items(), parts, strict=True)}
        desires = push(desire_q, inputs.pop("desire").reshape(1, *desire_q.shape[1:]))
        features = push(feat_q, inputs.pop("prev_feat").reshape(1, *feat_q.shape[1:]))
        inputs["img"] = push(img_q, warped[0:1])[::frame_skip].contiguous().reshape(shapes["img"])
        inputs["big_img"] = push(big_img_q, warped[1:2])[::frame_skip].contiguous().reshape(shapes["big_img"])
        inputs["features_buffer"] = features[::frame_skip].contiguous().reshape(shapes["features_buffer"])
        inputs["desire_pulse"] = desires.reshape(-1, frame_skip, *shapes["desire_pulse"][2:]).max(1).unsqueeze(0)
        return (next(iter(model(inputs).values())).cast("float32"),)

    return run_policy


def drive_policy(
    run: Callable[..., Any], shapes: dict[str, tuple[int, ...]], frame_skip: int, seed: int | None, steps: int = STEPS
) -> Outcome:
    """Runs `steps` frames; inputs and what the queues hold before are made from the seed, all zero for None."""
    from tinygrad import Device, Tensor

    random = np.random.default_rng(seed)

    def made(shape: tuple[int, ...], kind: type) -> np.ndarray[Any, Any]:
        if seed is None:
            return np.zeros(shape, kind)
        if kind is np.uint8:
            return random.integers(0, 256, shape, dtype=np.uint8)
        return random.standard_normal(shape, dtype=np.float32)

    queues = {
        name: Tensor(made(shape, kind), device=Device.DEFAULT).contiguous().realize()
        for name, (shape, kind) in queue_shapes(shapes, frame_skip).items()
    }
    # The runtime writes into this array in place, frame by frame; so do we.
    packed = np.zeros(sum(math.prod(shape) for shape in packed_layout(shapes).values()), dtype=np.float32)
    packed_tensor = Tensor(packed, device="NPY").realize()
    outcome: Outcome = {}
    for step in range(steps):
        packed[:] = made(packed.shape, np.float32)
        warped = made((2, *queues["img_q"].shape[1:]), np.uint8)
        picture = Tensor(warped, device=os.environ.get("WARP_DEV")).contiguous().realize()
        (out,) = run(warped=picture, packed_npy_inputs=packed_tensor, **queues)
        outcome[f"out{step}"] = np.array(out.numpy())
    return outcome | {name: np.array(queue.numpy()) for name, queue in queues.items()}
