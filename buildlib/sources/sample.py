"""A synthetic model of the right form, for machines without a real one.

The recipe (seed, width, role) names bytes, not luck: weights come from SHAKE-256, whose stream no numpy or Python
release can change, and the protobuf is written with fixed versions. What it makes drives nothing; it has the inputs,
the outputs and the metadata of a real supercombo, or of one part of a split model (facts, section 1;
`core/sources/model_form`), finite outputs and positive standard deviations.
"""

from __future__ import annotations

import base64
import hashlib
import io
import math
import pickle
from pathlib import Path
from typing import Any

from buildlib.core.catalog import SampleSource
from buildlib.errors import SourceError
from buildlib.ports.source import Fetched, Observed, SourceContext
from buildlib.store import files

RECIPE = 1
"""Raised whenever the same (seed, width) gives other bytes."""

SMALLEST, LARGEST = 8, 4096

INPUTS: dict[str, tuple[str, tuple[int, ...]]] = {
    "img": ("uint8", (1, 12, 128, 256)),
    "big_img": ("uint8", (1, 12, 128, 256)),
    "features_buffer": ("float16", (1, 24, 512)),
    "desire_pulse": ("float16", (1, 25, 8)),
    "traffic_convention": ("float16", (1, 2)),
    "action_t": ("float16", (1, 2)),
}

# Heads of the network in the order of the flat output. A distribution's slice holds means, then log deviations.
HEADS = {
    "plan": 4955,
    "lane_lines": 528,
    "lane_lines_prob": 8,
    "road_edges": 264,
    "lead": 102,
    "lead_prob": 3,
    "desire_state": 8,
    "meta": 55,
    "pose": 12,
    "wide_from_device_euler": 6,
    "road_transform": 12,
    "hidden_state": 512,
}
DISTRIBUTIONS = ("pose", "wide_from_device_euler", "road_transform")
_MEMORY: dict[str, tuple[str, tuple[int, ...]]] = {
    "desire_pulse": ("float16", (1, 25, 8)),
    "traffic_convention": ("float16", (1, 2)),
    "features_buffer": ("float16", (1, 25, 512)),
}
_POLICY_HEADS = ("plan", "desire_state")

# Inputs and heads by role. What one part of a split model does not have is another part's.
ROLE_INPUTS: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
    "supercombo": INPUTS,
    "vision": {name: INPUTS[name] for name in ("img", "big_img")},
    "policy": _MEMORY,
    "on_policy": _MEMORY,
    "off_policy": _MEMORY,
}
ROLE_HEADS: dict[str, dict[str, int]] = {
    "supercombo": HEADS,
    "vision": {name: size for name, size in HEADS.items() if name not in _POLICY_HEADS},
    **{role: {name: HEADS[name] for name in _POLICY_HEADS} for role in ("policy", "on_policy", "off_policy")},
}


class Reader:
    """Reads a SampleSource. Its identity is the recipe: what bytes it gives is known once they were made."""

    def __init__(self, spec: SampleSource, context: SourceContext) -> None:
        self.spec = spec
        self.context = context

    def observe(self) -> Observed:
        """The recipe, seed and width, and the role where there are several."""
        recipe = {"recipe": str(RECIPE), "seed": str(self.spec.seed), "width": str(self.spec.width)}
        if self.context.role != "supercombo":
            recipe["role"] = self.context.role
        return Observed(identity={"kind": "sample", **recipe}, sha256=None, detail=recipe)

    def fetch(self, into: Path) -> Fetched:
        """Makes the ONNX."""
        self.context.check_cancelled()
        write_sample(into, self.spec.seed, self.spec.width, self.context.role)
        detail = self.observe().detail
        return Fetched(path=into, sha256=files.hash_file(into), size=into.stat().st_size, detail=detail)


def output_slices(role: str = "supercombo") -> dict[str, slice]:
    """Name -> slice of the flat output, heads first, then `NAME_stds` (positive) for the odometry outputs."""
    heads = ROLE_HEADS[role]
    sizes = heads | {f"{name}_stds": heads[name] // 2 for name in DISTRIBUTIONS if name in heads}
    slices, at = {}, 0
    for name, size in sizes.items():
        slices[name] = slice(at, at + size)
        at += size
    return slices


def write_sample(path: Path, seed: int, width: int, role: str = "supercombo") -> None:
    """Writes the sample ONNX of this recipe to `path`, whole or not at all.

    width: size of the hidden layers; 64 gives about 3 MB, 1800 about 100 MB. role: which part of a model.
    Raises SourceError for a width out of range, StoreError where the disk refuses.
    """
    if not SMALLEST <= width <= LARGEST:
        raise SourceError("a sample of this width cannot be made", expected=f"{SMALLEST} to {LARGEST}", got=str(width))
    if role not in ROLE_INPUTS:
        raise SourceError("there is no sample for this role", expected=", ".join(ROLE_INPUTS), got=role)
    files.write(path, _model(seed, width, role).SerializeToString(deterministic=True))


def _model(seed: int, width: int, role: str) -> Any:
    from onnx import checker, helper

    given = ROLE_INPUTS[role]
    net = _Network(seed if role == "supercombo" else f"{seed} {role}")
    features, fan_in = [], 0
    # The order of the supercombo's recipe, which its weights' names and so its bytes hang on.
    for name in ("img", "big_img", "features_buffer", "desire_pulse", "traffic_convention", "action_t"):
        if name not in given:
            continue
        shape = given[name][1]
        if given[name][0] == "uint8":
            features.append(net.vision(name))
            fan_in += 512
        else:
            features.append(name if len(shape) == 2 else net.node("Flatten", [name], f"{name}.flat", axis=1))
            fan_in += math.prod(shape)
    trunk = net.node("Concat", features, "features", axis=1)
    trunk = net.linear(trunk, fan_in, width, "trunk", relu=True)
    for block in ("block0", "block1"):
        inner = net.linear(trunk, width, width, f"{block}.a", relu=True)
        trunk = net.node("Add", [trunk, net.linear(inner, width, width, f"{block}.b")], f"{block}.sum")

    heads = {name: net.linear(trunk, width, size, f"head.{name}") for name, size in ROLE_HEADS[role].items()}
    flat = {name: net.node("Cast", [head], f"{name}.float", to=1) for name, head in heads.items()}
    for name in (name for name in DISTRIBUTIONS if name in heads):
        flat[f"{name}_stds"] = net.node("Exp", [net.second_half(flat[name], HEADS[name])], f"{name}.stds")
    net.node("Concat", list(flat.values()), "outputs", axis=1)

    total = max(part.stop for part in output_slices(role).values())
    checkpoint = f"sample/{RECIPE}" if role == "supercombo" else f"sample/{RECIPE}/{role}"
    kinds = {"uint8": 2, "float16": 10}
    graph = helper.make_graph(
        net.nodes,
        role,
        [helper.make_tensor_value_info(name, kinds[kind], shape) for name, (kind, shape) in given.items()],
        [helper.make_tensor_value_info("outputs", 1, [1, total])],
        net.weights,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="supercombo-build sample"
    )
    helper.set_model_props(
        model,
        {"output_slices": _encoded(output_slices(role)), "model_checkpoint": f"{checkpoint}/{seed}/{width}"},
    )
    checker.check_model(model)
    return model


def _encoded(slices: dict[str, slice]) -> str:
    """The published form: base64 of a pickle. The pure-Python pickler's bytes do not depend on string interning."""
    buffer = io.BytesIO()
    pickle._Pickler(buffer, protocol=4).dump(slices)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


class _Network:
    """Collects nodes and float16 weights; every method returns the name of the tensor it made."""

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def weight(self, name: str, shape: tuple[int, ...], scale: float) -> str:
        """Uniform in [-scale, scale)."""
        import numpy as np
        from onnx import numpy_helper

        stream = hashlib.shake_256(f"sample {RECIPE} {self.seed} {name}".encode()).digest(2 * math.prod(shape))
        values = np.frombuffer(stream, dtype="<i2").astype(np.float32) * np.float32(scale / 32768)
        self.weights.append(numpy_helper.from_array(values.astype(np.float16).reshape(shape), name))
        return name

    def constant(self, name: str, values: Any) -> str:
        from onnx import numpy_helper

        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def vision(self, image: str) -> str:
        """(1, 12, 128, 256) uint8 -> (1, 512)."""
        import numpy as np

        pixels = self.node("Cast", [image], f"{image}.half", to=10)
        scale = self.constant(f"{image}.scale", np.asarray(1 / 255, dtype=np.float16))
        out = self.node("Mul", [pixels, scale], f"{image}.scaled")
        for index, (fan_in, fan_out, step) in enumerate(((12, 16, 4), (16, 32, 2), (32, 64, 2))):
            name = f"{image}.conv{index}"
            kernel = self.weight(f"{name}.weight", (fan_out, fan_in, step, step), math.sqrt(6 / (step * step * fan_in)))
            bias = self.weight(f"{name}.bias", (fan_out,), 0.1)
            # No padding and no overlap: a third of the compile time of 3x3 kernels.
            out = self.node("Conv", [out, kernel, bias], name, kernel_shape=[step, step], strides=[step, step])
            out = self.node("Elu", [out], f"{name}.elu")
        out = self.node("AveragePool", [out], f"{image}.pool", kernel_shape=[4, 4], strides=[4, 4])
        return self.node("Flatten", [out], f"{image}.flat", axis=1)

    def linear(self, source: str, fan_in: int, fan_out: int, name: str, *, relu: bool = False) -> str:
        weight = self.weight(f"{name}.weight", (fan_out, fan_in), math.sqrt(3 / fan_in))
        out = self.node("Gemm", [source, weight, self.weight(f"{name}.bias", (fan_out,), 0.1)], name, transB=1)
        return self.node("Relu", [out], f"{name}.relu") if relu else out

    def second_half(self, source: str, size: int) -> str:
        import numpy as np

        bounds = [
            self.constant(f"{source}.{edge}", np.asarray([value], dtype=np.int64))
            for edge, value in (("from", size // 2), ("to", size), ("axis", 1))
        ]
        return self.node("Slice", [source, *bounds], f"{source}.log_stds")
