"""What a supercombo's ONNX must look like: its inputs, and the slices of its output."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .shared import BAD_INPUTS, BAD_METADATA, Failure, say

MODEL_INPUTS = ("img", "big_img", "features_buffer", "desire_pulse", "traffic_convention", "action_t")


def check_inputs(specs: dict[str, Any], model_size: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    """Shapes by name, or a Failure that names every missing, misshapen or mistyped input."""
    height, width = model_size[1] // 2, model_size[0] // 2
    like: dict[str, tuple[int | None, ...]] = {
        "img": (1, None, height, width),
        "big_img": (1, None, height, width),
        "desire_pulse": (1, None, None),
        "traffic_convention": (1, None),
        "action_t": (1, None),
    }
    problems = [f"input {name} is missing" for name in MODEL_INPUTS if name not in specs]
    shapes = {}
    for name, spec in specs.items():
        shape, kind = tuple(spec.shape), str(spec.dtype).removeprefix("dtypes.")
        fits = ("uchar", "uint8") if name in ("img", "big_img") else ("half", "float16", "float", "float32")
        if kind not in fits:
            extra = "" if name in MODEL_INPUTS else "extra "
            problems.append(f"{extra}input {name}: expected dtype {' or '.join(fits[1::2])}, got {kind}")
        if not all(isinstance(size, int) and size > 0 for size in shape):
            problems.append(f"input {name}: expected fixed sizes, got {shape}")
            continue
        shapes[name] = shape
        want = like.get(name)
        if want and (len(want) != len(shape) or any(w not in (None, s) for w, s in zip(want, shape, strict=True))):
            text = ", ".join("any" if size is None else str(size) for size in want)
            problems.append(f"input {name}: expected shape ({text}) for --model-size, got {shape}")
        elif name == "features_buffer" and (len(shape) < 3 or shape[0] != 1):
            problems.append(f"input {name}: expected shape (1, steps, features), got {shape}")
        elif name in ("img", "big_img") and shape[1] % 6:
            problems.append(f"input {name}: expected a multiple of 6 planes, got {shape[1]}")
    if problems:
        raise Failure(BAD_INPUTS, *problems)
    for name in shapes:
        if name not in MODEL_INPUTS:
            say(f"extra input {name} {shapes[name]} goes to the end of the packed vector")
    return shapes


def check_slices(slices: dict[str, slice], shapes: dict[str, tuple[int, ...]], flat: np.ndarray[Any, Any]) -> None:
    end = max((part.stop for part in slices.values()), default=0)
    if not 0 < end <= flat.size:
        raise Failure(
            BAD_METADATA, f"output_slices reach to {end}: expected at most the output's size, got {flat.size}"
        )
    features, state = math.prod(shapes["features_buffer"][2:]), slices.get("hidden_state")
    if state is None or state.stop - state.start != features:
        got = "no such slice" if state is None else str(state.stop - state.start)
        raise Failure(BAD_METADATA, f"output_slices: expected hidden_state of {features} numbers, got {got}")
