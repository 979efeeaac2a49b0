"""A supercombo in small, for faults: compiles in seconds, and every fault is an attribute away from the good one."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path
from typing import Any

import numpy as np

INPUTS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "img": (np.uint8, (1, 12, 8, 16)),
    "big_img": (np.uint8, (1, 12, 8, 16)),
    "features_buffer": (np.float16, (1, 3, 4)),
    "desire_pulse": (np.float16, (1, 4, 8)),
    "traffic_convention": (np.float16, (1, 2)),
    "action_t": (np.float16, (1, 2)),
}
SLICES = {
    "pose": slice(0, 12),
    "wide_from_device_euler": slice(12, 18),
    "road_transform": slice(18, 30),
    "hidden_state": slice(30, 34),
}
SMALL = {"model_size": "32x16", "cameras": ("64x48",)}


class Model:
    """A supercombo in small. Each fault is an attribute away from the good one."""

    def __init__(self) -> None:
        self.inputs = dict(INPUTS)
        self.slices: Any = dict(SLICES)
        self.scale: Any = 0.01
        self.bias = 0.0
        self.op = "Identity"
        self.sliced_by_input = False
        self.growth = 0.0
        """Factor from one hidden state to the one of the next model step."""

    def write(self, path: Path) -> Path:
        from onnx import helper, numpy_helper, save

        nodes, weights, parts = [], [], []
        for name, (kind, shape) in self.inputs.items():
            nodes.append(helper.make_node("Cast", [name], [f"{name}.f"], to=1))
            nodes.append(helper.make_node("Flatten", [f"{name}.f"], [f"{name}.flat"], axis=1))
            parts.append((f"{name}.flat", int(np.prod(shape)), 255.0 if kind == np.uint8 else 1.0))
        nodes.append(helper.make_node("Concat", [part for part, _, _ in parts], ["all"], axis=1))
        random = np.random.default_rng(0)
        matrix = np.concatenate([random.standard_normal((size, 34)) / scale for _, size, scale in parts]) * self.scale
        if self.growth:
            self._grow(matrix, [name for name, _, _ in parts], [size for _, size, _ in parts])
        weights.append(numpy_helper.from_array(matrix.astype(np.float16), "w"))
        weights.append(numpy_helper.from_array(np.asarray([[self.bias]], dtype=np.float32), "b"))
        nodes.append(helper.make_node("Cast", ["w"], ["w.f"], to=1))
        nodes.append(helper.make_node("MatMul", ["all", "w.f"], ["product"]))
        nodes.append(helper.make_node("Add", ["product", "b"], ["sum"]))
        nodes.append(helper.make_node(self.op, ["sum"], ["result"]))
        if self.sliced_by_input:
            self._slice_by_input(nodes, weights)
        kinds = {np.uint8: 2, np.float16: 10, np.int64: 7}
        inputs = [
            helper.make_tensor_value_info(name, kinds[kind], shape) for name, (kind, shape) in self.inputs.items()
        ]
        last = "moved" if self.sliced_by_input else "result"
        outputs = [helper.make_tensor_value_info(last, 1, [1, 34])]
        graph = helper.make_graph(nodes, "small", inputs, outputs, weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        if self.slices is not None:
            content = self.slices if isinstance(self.slices, bytes) else pickle.dumps(self.slices)
            helper.set_model_props(model, {"output_slices": base64.b64encode(content).decode()})
        save(model, str(path))
        return path

    def _grow(self, matrix: np.ndarray[Any, Any], names: list[str], sizes: list[int]) -> None:
        """The hidden state is the newest features times `growth`; no other output sees the features."""
        at = names.index("features_buffer.flat")
        start, size = sum(sizes[:at]), sizes[at]
        hidden = self.slices["hidden_state"]
        width = hidden.stop - hidden.start
        matrix[start : start + size] = 0
        matrix[start + size - width : start + size, hidden] = np.eye(width) * self.growth

    @staticmethod
    def _slice_by_input(nodes: list[Any], weights: list[Any]) -> None:
        """Reads 34 numbers from where the inputs say: a captured jit reads where they said at its capture."""
        from onnx import helper, numpy_helper

        for name, values in (("size", [34]), ("axis", [1]), ("zero", [0]), ("two", [2])):
            weights.append(numpy_helper.from_array(np.asarray(values, dtype=np.int64), name))
        nodes.append(helper.make_node("Concat", ["result", "result"], ["twice"], axis=1))
        nodes.append(helper.make_node("ReduceSum", ["img.flat", "axis"], ["brightness"], keepdims=0))
        nodes.append(helper.make_node("Cast", ["brightness"], ["bright"], to=7))
        nodes.append(helper.make_node("Mod", ["bright", "size"], ["start"]))
        nodes.append(helper.make_node("Add", ["start", "size"], ["end"]))
        nodes.append(helper.make_node("Slice", ["twice", "start", "end", "axis"], ["moved"]))
