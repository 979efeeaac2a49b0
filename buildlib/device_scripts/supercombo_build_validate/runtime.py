"""The runtime: what the device's model process does with an artifact."""

from __future__ import annotations

import argparse
import math
import os
from typing import Any, NoReturn

from .findings import Failure, Tell, name_of, said
from .frame import ODOMETRY
from .pictures import Camera

MODEL_INPUTS = ("img", "big_img", "features_buffer", "desire_pulse", "traffic_convention", "action_t")


class Runtime:
    """What the device's model process does with an artifact: keeps queues and the packed vector, calls both jits."""

    def __init__(self, root: Any, options: argparse.Namespace, tell: Tell) -> None:
        import numpy as np

        self.tell, self.phase = tell, "load"
        self.frame_skip, sizes = check_root(root, options)
        self.run_policy = root["run_policy"]
        self.warps = {name_of(size): root[size] for size in sizes}
        self.slices: dict[str, slice] = root["metadata"]["output_slices"]
        shapes: dict[str, tuple[int, ...]] = root["metadata"]["input_shapes"]
        self.cameras = [Camera(size, (2 * shapes["img"][3], 2 * shapes["img"][2])) for size in sizes]
        features, desire = shapes["features_buffer"], shapes["desire_pulse"]
        self.layout = {
            "desire": math.prod(desire[2:]),
            "traffic_convention": math.prod(shapes["traffic_convention"]),
            "action_t": math.prod(shapes["action_t"]),
            "prev_feat": math.prod(features[2:]),
        }
        self.layout |= {name: math.prod(shape) for name, shape in shapes.items() if name not in MODEL_INPUTS}
        skip = self.frame_skip
        self.queue_shapes: dict[str, tuple[tuple[int, ...], type]] = {
            "img_q": ((skip * (shapes["img"][1] // 6 - 1) + 1, 6, *shapes["img"][2:]), np.uint8),
            "big_img_q": ((skip * (shapes["big_img"][1] // 6 - 1) + 1, 6, *shapes["big_img"][2:]), np.uint8),
            "feat_q": ((skip * features[1], 1, math.prod(features[2:])), np.float32),
            "desire_q": ((skip * desire[1], 1, *desire[2:]), np.float32),
        }
        self.reset()

    def reset(self) -> None:
        """As at the start of a drive: empty queues, no features."""
        import numpy as np
        from tinygrad import Device, Tensor

        self.queues = {
            name: Tensor(np.zeros(shape, kind), device=Device.DEFAULT).contiguous().realize()
            for name, (shape, kind) in self.queue_shapes.items()
        }
        # Written in place, frame by frame, as the device's runtime does.
        self.packed = np.zeros(sum(self.layout.values()), dtype=np.float32)
        self.packed_tensor = Tensor(self.packed, device="NPY").realize()

    def pack(self, **parts: Any) -> None:
        """Fills the packed vector; parts that are not named are 0."""
        at = 0
        for name, size in self.layout.items():
            self.packed[at : at + size] = parts.get(name, 0)
            at += size

    def on_device(self, pictures: list[Any]) -> list[Any]:
        from tinygrad import Tensor

        device = os.environ.get("WARP_DEV") or None
        return [Tensor(picture, device=device).contiguous().realize() for picture in pictures]

    def warp(self, camera: str, matrices: list[Any], frames: list[Any]) -> Any:
        """Both views' frames (tensors) -> (2, 6, H/2, W/2) uint8."""
        from tinygrad import Tensor

        self.tell({"doing": f"the warp of {camera}", "phase": self.phase})
        tfm, big_tfm = (Tensor(matrix, device="NPY").realize() for matrix in matrices)
        try:
            return self.warps[camera](tfm=tfm, big_tfm=big_tfm, frame=frames[0], big_frame=frames[1])
        except Exception as error:
            raise Failure(
                "warp_failed", f"the warp of camera {camera} fails", "a picture for the model", said(error)
            ) from error

    def policy(self, warped: Any) -> Any:
        """One frame on: the flat output, float32."""
        import numpy as np

        self.tell({"doing": "run_policy", "phase": self.phase})
        try:
            outputs = self.run_policy(warped=warped, packed_npy_inputs=self.packed_tensor, **self.queues)
            return np.array(outputs[0].numpy()).reshape(-1)
        except Exception as error:
            raise Failure("policy_failed", "run_policy fails", "an output for each frame", said(error)) from error


def check_root(root: Any, options: argparse.Namespace) -> tuple[int, list[tuple[int, int]]]:
    """(frame skip, cameras) to run with, or a Failure that says what the runtime misses."""

    def miss(what: str, expected: str, got: str) -> NoReturn:
        raise Failure("contract", what, expected, got)

    if not isinstance(root, dict):
        miss("it is no dict of captured jits", "a dict", type(root).__name__)
    for key in ("metadata", "frame_skip", "run_policy"):
        if key not in root:
            miss(f"root key {key} is missing", "metadata, frame_skip, run_policy", ", ".join(map(str, root)))
    metadata = root["metadata"]
    slices, shapes = metadata.get("output_slices"), metadata.get("input_shapes")
    if not isinstance(slices, dict) or not isinstance(shapes, dict):
        miss("metadata is incomplete", "output_slices and input_shapes", ", ".join(map(str, metadata)))
    absent = [name for name in (*ODOMETRY, "hidden_state") if name not in slices]
    absent += [name for name in MODEL_INPUTS if name not in shapes]
    if absent:
        miss("metadata lacks what the runtime reads", "all of it", f"no {', '.join(absent)}")
    skip = options.frame_skip or root["frame_skip"]
    if root["frame_skip"] != skip:
        miss("frame skip is not the runtime's", str(skip), str(root["frame_skip"]))
    there = [key for key in root if isinstance(key, tuple)]
    wanted = options.cameras or there
    if missing := [name_of(size) for size in wanted if size not in there]:
        miss(f"camera {', '.join(missing)} is missing", "a warp for each", ", ".join(map(name_of, there)) or "none")
    if not wanted:
        miss("it has no camera", "one at least", "none")
    return skip, wanted
