"""The artifact: what it is made of, and the same of it in a fresh process."""

from __future__ import annotations

import argparse
import os
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .checks import (
    OTHER_SEED,
    SEED,
    Outcome,
    capture,
    check_close,
    check_device,
    check_finite,
    check_odometry,
    check_other,
    check_same,
    open_device,
)
from .inputs import check_inputs, check_slices
from .onnx_file import read_properties, read_slices
from .policy import drive_policy, make_policy
from .shared import BAD_ONNX, BAD_WARP, NOT_WRITTEN, Failure, beside, say, write
from .warp import Frame, drive_warp, make_warp


def compile_artifact(options: argparse.Namespace, part: Path) -> None:
    properties = read_properties(options.onnx)
    slices = read_slices(properties.get("output_slices"))
    from tinygrad import Device, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    say(f"compiling {options.onnx} on {Device.DEFAULT}, warp on {os.environ.get('WARP_DEV') or Device.DEFAULT}")
    for device in dict.fromkeys((Device.DEFAULT, os.environ.get("WARP_DEV") or Device.DEFAULT)):
        open_device(device)
    try:
        model = OnnxRunner(options.onnx)
    except Exception as error:
        raise Failure(BAD_ONNX, f"{options.onnx} cannot be read: {type(error).__name__}: {error}") from error
    shapes = check_inputs(dict(model.graph_inputs), options.model_size)
    output = next(iter(model.graph_outputs))

    def drive(run: Any, seed: int | None) -> Outcome:
        return drive_policy(run, shapes, options.frame_skip, seed)

    # The direct run has a runner of its own: a runner remembers shapes and indices that it computed from its inputs.
    direct = drive(make_policy(OnnxRunner(options.onnx), shapes, options.frame_skip), SEED)
    flat = direct["out0"]
    check_slices(slices, shapes, flat)
    check_finite("the ONNX run directly", direct)
    jit = TinyJit(make_policy(model, shapes, options.frame_skip), prune=True)
    outcomes = {"run_policy": capture("run_policy", jit, drive)}
    check_close(direct, outcomes["run_policy"])
    rest = drive(jit, None)
    check_finite("run_policy at rest", rest)
    check_odometry(rest["out0"].reshape(-1), slices)
    check_device("run_policy", jit, options.expected_device)

    metadata = {
        "model_checkpoint": properties.get("model_checkpoint"),
        "output_slices": slices,
        "input_shapes": shapes,
        "output_shapes": {output: tuple(flat.shape)},
    }
    artifact: dict[Any, Any] = {"metadata": metadata, "frame_skip": options.frame_skip, "run_policy": jit}
    for size in options.camera_resolutions:
        frame, name = Frame(*size), f"warp {size[0]}x{size[1]}"
        warp = TinyJit(make_warp(frame, options.model_size, os.environ.get("WARP_DEV")), prune=True)
        outcomes[name] = capture(name, warp, partial(drive_warp, frame, options.model_size))
        check_device(name, warp, options.expected_warp_device or options.expected_device)
        artifact[size] = warp

    try:
        write(part, artifact)
        with beside(part, ".outcomes").open("wb") as file:
            arrays = {f"{name}/{key}": value for name, out in outcomes.items() for key, value in out.items()}
            np.savez(file, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise Failure(NOT_WRITTEN, f"{options.output} cannot be written: {error.strerror or error}") from None


def replay(options: argparse.Namespace, part: Path) -> None:
    """In a fresh process: what was pickled loads, gives the same bits, and warps as numpy does."""
    with np.load(beside(part, ".outcomes")) as saved:
        outcomes: dict[str, Outcome] = {}
        for key in saved.files:
            name, _, what = key.partition("/")
            outcomes.setdefault(name, {})[what] = saved[key]
    with part.open("rb") as file:
        artifact = pickle.load(file)  # noqa: S301 - written by the parent process a moment ago
    when = "after a pickle round trip"
    shapes, skip = artifact["metadata"]["input_shapes"], artifact["frame_skip"]
    again = drive_policy(artifact["run_policy"], shapes, skip, SEED)
    check_same("run_policy", outcomes["run_policy"], again, when)
    check_other("run_policy", again, drive_policy(artifact["run_policy"], shapes, skip, OTHER_SEED))
    for size in options.camera_resolutions:
        frame, name = Frame(*size), f"warp {size[0]}x{size[1]}"
        check_same(name, outcomes[name], drive_warp(frame, options.model_size, artifact[size], SEED), when)
        smooth = drive_warp(frame, options.model_size, artifact[size], SEED, smooth=True)
        off = np.abs(smooth["out0"].astype(int) - smooth["reference"].astype(int)).max()
        if off > 1:
            raise Failure(BAD_WARP, f"{name}: expected within 1 grey level of the same projection in numpy, got {off}")
