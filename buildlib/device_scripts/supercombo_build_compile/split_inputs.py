"""What the ONNX of each part of a split model must look like."""

from __future__ import annotations

from typing import Any

import numpy as np

from .shared import BAD_INPUTS, BAD_METADATA, Failure, say

ROLE_SETS = (("vision", "policy"), ("vision", "on_policy", "off_policy"))
ROLES = ("vision", "policy", "on_policy", "off_policy")
IMAGE, FLOAT = ("uchar", "uint8"), ("half", "float16", "float", "float32")
Shape = tuple[int, ...]
Form = dict[str, tuple[tuple[str, ...], tuple[int | None, ...]]]
"""Input name -> (dtypes as some tinygrad calls them, shape; None is any size)."""


def role_form(role: str, model_size: tuple[int, int]) -> Form:
    """What the runtime feeds to a role."""
    if role == "vision":
        image = (1, 12, model_size[1] // 2, model_size[0] // 2)
        return {"img": (IMAGE, image), "big_img": (IMAGE, image)}
    return {
        "desire_pulse": (FLOAT, (1, 25, 8)),
        "features_buffer": (FLOAT, (1, None, 512)),
        "traffic_convention": (FLOAT, (1, 2)),
    }


def check_inputs(role: str, specs: dict[str, Any], model_size: tuple[int, int]) -> dict[str, Shape]:
    """Shapes by name, or a Failure that names every missing, misshapen, mistyped or unknown input."""
    form = role_form(role, model_size)
    problems = [f"{role}: input {name} is missing" for name in form if name not in specs]
    shapes: dict[str, Shape] = {}
    for name, spec in specs.items():
        kind = str(spec.dtype).removeprefix("dtypes.")
        shape = tuple(spec.shape)
        known = name in form
        kinds, want = form.get(name, (FLOAT, (None,) * len(shape)))
        if not known and role == "vision":
            problems.append(f"{role}: extra input {name} cannot be fed: expected only img and big_img")
            continue
        if kind not in kinds:
            extra = "" if known else "extra "
            problems.append(f"{role}: {extra}input {name}: expected dtype {' or '.join(kinds[1::2])}, got {kind}")
        if not all(isinstance(size, int) and size > 0 for size in shape):
            problems.append(f"{role}: input {name}: expected fixed sizes, got {shape}")
        elif len(shape) != len(want) or any(w not in (None, s) for w, s in zip(want, shape, strict=True)):
            text = ", ".join("any" if size is None else str(size) for size in want)
            problems.append(f"{role}: input {name}: expected shape ({text}), got {shape}")
        else:
            shapes[name] = shape
            if not known:
                say(f"{role}: extra input {name} {shape} is fed by its own name")
    if problems:
        raise Failure(BAD_INPUTS, *problems)
    return shapes


def check_slices(role: str, slices: dict[str, slice], flat: np.ndarray[Any, Any]) -> None:
    end = max((part.stop for part in slices.values()), default=0)
    if not 0 < end <= flat.size:
        raise Failure(
            BAD_METADATA,
            f"{role}: output_slices reach to {end}: expected at most the output's size, got {flat.size}",
        )
    if role == "vision":
        state = slices.get("hidden_state")
        if state is None or state.stop - state.start != 512:
            got = "no such slice" if state is None else str(state.stop - state.start)
            raise Failure(BAD_METADATA, f"{role}: output_slices: expected hidden_state of 512 numbers, got {got}")
