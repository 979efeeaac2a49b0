"""Small real ONNX files, made with the onnx package."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from pathlib import Path

import numpy as np

INPUTS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "img": ("uint8", (1, 12, 128, 256)),
    "big_img": ("uint8", (1, 12, 128, 256)),
    "desire_pulse": ("float16", (1, 25, 8)),
    "traffic_convention": ("float16", (1, 2)),
    "features_buffer": ("float16", (1, 24, 512)),
    "action_t": ("float16", (1, 2)),
}
HEADS = ("plan", "hidden_state", "pose", "wide_from_device_euler", "road_transform")
SLICES = {name: slice(at * 4, at * 4 + 4) for at, name in enumerate(HEADS)}


def encoded(value: object) -> str:
    return base64.encodebytes(pickle.dumps(value)).decode()


def write_onnx(
    path: Path,
    inputs: Mapping[str, tuple[str, tuple[object, ...]]] = INPUTS,
    slices: str | None = encoded(SLICES),
    weights: int = 1000,
    external: str | None = None,
    extra_nodes: tuple[object, ...] = (),
) -> Path:
    """Writes an ONNX with a supercombo's inputs, or others; its path."""
    from onnx import helper, numpy_helper, save

    length = 4 * len(HEADS)
    weight = numpy_helper.from_array(np.arange(weights, dtype=np.float16), "weight")
    row = numpy_helper.from_array(np.ones((1, length), dtype=np.float32), "row")
    nodes = [*extra_nodes, helper.make_node("Relu", ["row"], ["outputs"])]
    kinds = {"uint8": 2, "float16": 10, "float32": 1, "int64": 7}
    values = [helper.make_tensor_value_info(key, kinds[kind], shape) for key, (kind, shape) in inputs.items()]
    out = helper.make_tensor_value_info("outputs", 1, (1, length))
    graph = helper.make_graph(nodes, "driving", values, [out], [weight, row])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="test")
    model.metadata_props.add(key="model_checkpoint", value="abc/200")
    if slices is not None:
        model.metadata_props.add(key="output_slices", value=slices)
    if external is not None:
        save(model, str(path), save_as_external_data=True, location=external, size_threshold=0)
    else:
        save(model, str(path))
    return path
