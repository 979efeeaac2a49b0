"""A part of a split model as the runtime calls it, driven with inputs made from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from .checks import STEPS, Outcome
from .shared import INDIFFERENT, Failure
from .split_inputs import Shape


def make_run(model: Any) -> Any:
    """run(**inputs of the ONNX) -> (1, N) float32."""
    from tinygrad import Device

    def run(**inputs: Any) -> Any:
        moved = {name: tensor.to(Device.DEFAULT) for name, tensor in inputs.items()}
        return next(iter(model(moved).values())).cast("float32")

    return run


def drive(shapes: dict[str, Shape], run: Any, seed: int | None) -> Outcome:
    """Two calls with inputs made from the seed, all zero for None."""
    from tinygrad import Device, Tensor

    random = np.random.default_rng(seed)
    images = [name for name in shapes if name in ("img", "big_img")]
    # The runtime writes into these arrays in place, frame by frame; so do we.
    hosts = {name: np.zeros(shape, np.float32) for name, shape in shapes.items() if name not in images}
    tensors = {name: Tensor(host, device="NPY").realize() for name, host in hosts.items()}
    outcome: Outcome = {}
    for step in range(STEPS):
        for host in hosts.values():
            host[:] = 0 if seed is None else random.standard_normal(host.shape, dtype=np.float32)
        for name in images:
            shape = shapes[name]
            picture = np.zeros(shape, np.uint8) if seed is None else random.integers(0, 256, shape, dtype=np.uint8)
            tensors[name] = Tensor(picture, device=Device.DEFAULT).contiguous().realize()
        outcome[f"out{step}"] = np.array(run(**tensors).numpy())
    return outcome


def check_each_input(role: str, shapes: dict[str, Shape], jit: Any) -> None:
    """Every input counts: one that a capture froze would keep the values that it had there."""
    from tinygrad import Device, Tensor

    def answer(changed: str | None) -> np.ndarray[Any, Any]:
        inputs = {}
        for name, shape in shapes.items():
            random = np.random.default_rng([len(name), *name.encode(), int(name == changed)])
            if name in ("img", "big_img"):
                value = random.integers(0, 256, shape, dtype=np.uint8)
                inputs[name] = Tensor(value, device=Device.DEFAULT).contiguous().realize()
            else:
                inputs[name] = Tensor(random.standard_normal(shape, dtype=np.float32), device="NPY").realize()
        return np.array(jit(**inputs).numpy())

    plain = answer(None)
    for name in shapes:
        if np.array_equal(plain, answer(name)):
            raise Failure(
                INDIFFERENT, f"{role}: the output is the same for another {name}: expected it to depend on it"
            )
