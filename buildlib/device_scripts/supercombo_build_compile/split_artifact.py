"""The artifact of one part or of all, and the same of it in a fresh process."""

from __future__ import annotations

import argparse
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .checks import (
    ODOMETRY,
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
from .onnx_file import read_properties, read_slices
from .shared import BAD_ONNX, NOT_WRITTEN, Failure, beside, say, write
from .split_inputs import Shape, check_inputs, check_slices
from .split_parts import check_each_input, drive, make_run


def compile_role(role: str, path: Path, options: argparse.Namespace) -> tuple[Any, dict[str, Any], Outcome]:
    """(captured jit, metadata, what it gives for the seed), all checks passed."""
    from tinygrad import Device, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    properties = read_properties(path)
    slices = read_slices(properties.get("output_slices"))
    say(f"compiling {role} {path} on {Device.DEFAULT}")
    try:
        model = OnnxRunner(path)
    except Exception as error:
        raise Failure(BAD_ONNX, f"{path} cannot be read: {type(error).__name__}: {error}") from error
    shapes = check_inputs(role, dict(model.graph_inputs), options.model_size)
    output = next(iter(model.graph_outputs))
    # The direct run has a runner of its own: a runner remembers shapes and indices that it computed from its inputs.
    direct = drive(shapes, make_run(OnnxRunner(path)), SEED)
    check_slices(role, slices, direct["out0"])
    check_finite(f"{role} run directly", direct)
    jit = TinyJit(make_run(model), prune=True)
    outcome = capture(role, jit, partial(drive, shapes))
    check_close(direct, outcome, role)
    check_each_input(role, shapes, jit)
    rest = drive(shapes, jit, None)
    check_finite(f"{role} at rest", rest)
    if any(name in slices for name in ODOMETRY):
        check_odometry(rest["out0"].reshape(-1), slices)
    check_device(role, jit, options.expected_device)
    metadata = {
        "model_checkpoint": properties.get("model_checkpoint"),
        "output_slices": slices,
        "input_shapes": shapes,
        "output_shapes": {output: tuple(direct["out0"].shape)},
    }
    return jit, metadata, outcome


def compile_all(options: argparse.Namespace, part: Path) -> None:
    from tinygrad import Device

    open_device(Device.DEFAULT)
    made = {role: compile_role(role, path, options) for role, path in options.onnx.items()}
    metadata = {role: about for role, (_, about, _) in made.items()}
    if len(made) == 1:
        ((root, about, _),) = made.values()
    else:
        about = metadata
        root = {"metadata": metadata, **{role: jit for role, (jit, _, _) in made.items()}}
    arrays = {f"{role}/{key}": value for role, (_, _, out) in made.items() for key, value in out.items()}
    try:
        write(part, root)
        if options.metadata_output:
            write(beside(options.metadata_output), about)
        # Shapes too: a bare jit does not tell them.
        shapes = str({role: one["input_shapes"] for role, one in metadata.items()})
        with beside(part, ".outcomes").open("wb") as file:
            np.savez(file, shapes=np.array([shapes]), **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise Failure(NOT_WRITTEN, f"{options.output} cannot be written: {error.strerror or error}") from None


def replay(options: argparse.Namespace, part: Path) -> None:
    """In a fresh process: what was pickled loads, and gives the same bits."""
    import ast

    with np.load(beside(part, ".outcomes")) as saved:
        shapes: dict[str, dict[str, Shape]] = ast.literal_eval(str(saved["shapes"][0]))
        outcomes: dict[str, Outcome] = {role: {} for role in shapes}
        for key in saved.files:
            if key != "shapes":
                role, _, what = key.partition("/")
                outcomes[role][what] = saved[key]
    with part.open("rb") as file:
        root = pickle.load(file)  # noqa: S301 - written by the parent process a moment ago
    for role, expected in outcomes.items():
        jit = root[role] if isinstance(root, dict) else root
        again = drive(shapes[role], jit, SEED)
        check_same(role, expected, again, "after a pickle round trip")
        check_other(role, again, drive(shapes[role], jit, OTHER_SEED))
