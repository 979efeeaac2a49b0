"""The drive: rehearsal, frames at the rate, rehearsal."""

from __future__ import annotations

import argparse
import time
from typing import Any

from .checks import answer, check_policy, check_warp
from .child import report_failure
from .findings import Failure, Tell, found, gap, indifferent
from .frame import check_output, frame_message
from .pictures import Camera
from .runtime import Runtime


def use(root: Any, options: argparse.Namespace, tell: Tell) -> None:
    """Rehearsal, drive, rehearsal: the answers after the drive must be those from before it."""
    import numpy as np

    runtime = Runtime(root, options, tell)
    started = time.monotonic()
    before: dict[Camera, Any] = {}
    for camera in list(runtime.cameras):
        try:
            for finding in check_warp(runtime, camera):
                tell({"finding": finding})
            for finding in check_policy(runtime, camera) if not before else ():
                tell({"finding": finding})
            before[camera] = answer(runtime, camera)
        except Failure as failure:
            # The other cameras show whether it is this camera's warp alone.
            if failure.finding["code"] != "warp_failed":
                raise
            report_failure(failure, tell)
            runtime.cameras.remove(camera)
    tell({"facts": {"rehearsal_s": round(time.monotonic() - started, 3)}})
    if not runtime.cameras:
        return
    runtime.phase = "run"
    print(f"rehearsed on {', '.join(one.name for one in runtime.cameras)}; {options.frames} frames to go", flush=True)
    drive(runtime, options, tell)
    for camera in runtime.cameras:
        after = answer(runtime, camera)
        if not np.array_equal(before[camera], after, equal_nan=True):
            what = f"on camera {camera.name} it answers otherwise after the run"
            tell({"finding": found("not_repeatable", what, "the same bits", gap(before[camera], after))})


def drive(runtime: Runtime, options: argparse.Namespace, tell: Tell) -> None:
    """Feeds the frames at the rate. The cameras take turns of up to a second, so that all see the whole run."""
    import numpy as np

    runtime.reset()
    cameras = list(runtime.cameras)
    turn = max(1, min(round(options.rate), options.frames // (8 * len(cameras)) or 1))
    features = np.zeros(runtime.layout["prev_feat"], dtype=np.float32)
    pulses = np.eye(runtime.layout["desire"])
    period, last, still = 1 / options.rate, None, 0
    due = time.perf_counter()
    for number in range(options.frames):
        camera = cameras[number // turn % len(cameras)]
        runtime.pack(
            desire=pulses[number // 40 % len(pulses)] if number % 40 == 20 else 0,
            traffic_convention=(1, 0),
            action_t=(0.2, 0.3),
            prev_feat=features,
        )
        frames = runtime.on_device([camera.picture(view, number) for view in (0, 1)])
        matrices = [camera.matrix(view, number) for view in (0, 1)]
        time.sleep(max(0.0, due - time.perf_counter()))
        started = time.perf_counter()
        # A run that cannot keep up does not race to catch up: frames that are missed are missed.
        due = max(due, started) + period
        try:
            out = runtime.policy(runtime.warp(camera.name, matrices, frames))
        except Failure as failure:
            if failure.finding["code"] != "warp_failed" or len(cameras) == 1:
                raise
            report_failure(failure, tell)
            cameras.remove(camera)
            continue
        tell(frame_message(number, camera.name, started))
        for finding in check_output(out, runtime.slices):
            tell({"finding": finding | {"frame": number}})
        still = still + 1 if last is not None and np.array_equal(out, last) else 0
        if still == 2:
            tell({"finding": indifferent("the output stands still: another frame") | {"frame": number}})
        last, features = out, out[runtime.slices["hidden_state"]]
