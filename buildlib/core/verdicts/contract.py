"""What a runtime asks of an artifact, as data: which jits under which keys, called with what.

A contract is chosen by name (`CONTRACTS`); `verdict` compares an Inspection with it. Sources: facts, section 1,
and each runtime's own calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from buildlib.core.verdicts.inspection import Form

ShapeRule = Literal[
    "warped", "image_queue", "feature_queue", "desire_queue", "packed", "packed_with_frames", "matrix", "frame", "image"
]
"""Shapes that follow from frame skip, model size, camera and the model's own inputs; see `core.verdicts.shapes`."""


class InputRule(msgspec.Struct, frozen=True, kw_only=True):
    """One argument. place: "device" for a buffer there, "host" for a numpy array (device "NPY")."""

    name: str
    place: Literal["device", "host"]
    dtype: str
    shape: ShapeRule


class JitRule(msgspec.Struct, frozen=True, kw_only=True):
    """One captured jit, or one a camera.

    key: its root key; for `per_camera` the key that a camera's jits lie under, "" for the root itself.
    inputs: in the order in which the runtime passes them, by keyword; None for whatever the ONNX has.
    warp: runs on the warp's device.
    """

    key: str
    per_camera: bool = False
    inputs: tuple[InputRule, ...] | None
    warp: bool = False


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """runtime: who loads it, in words. keys: root keys that must be there. metadata: keys in `metadata`, likewise."""

    name: str
    runtime: str
    form: Form
    keys: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    jits: tuple[JitRule, ...]


def accepted_orders(rule: JitRule) -> tuple[tuple[str, ...], ...]:
    """The `expected_names` that the runtime's call matches.

    tinygrad 0.12 to 0.14 sorts keywords; one that keeps the call's order would record that.
    """
    if rule.inputs is None:
        return ()
    called = tuple(one.name for one in rule.inputs)
    ordered = tuple(sorted(called))
    return (ordered,) if ordered == called else (ordered, called)


_QUEUES: Final = (
    InputRule(name="img_q", place="device", dtype="uint8", shape="image_queue"),
    InputRule(name="big_img_q", place="device", dtype="uint8", shape="image_queue"),
    InputRule(name="feat_q", place="device", dtype="float32", shape="feature_queue"),
    InputRule(name="desire_q", place="device", dtype="float32", shape="desire_queue"),
)
_WARP: Final = (
    InputRule(name="tfm", place="host", dtype="float32", shape="matrix"),
    InputRule(name="big_tfm", place="host", dtype="float32", shape="matrix"),
    InputRule(name="frame", place="device", dtype="uint8", shape="frame"),
    InputRule(name="big_frame", place="device", dtype="uint8", shape="frame"),
)
_IMAGES: Final = (
    InputRule(name="img", place="device", dtype="uint8", shape="image"),
    InputRule(name="big_img", place="device", dtype="uint8", shape="image"),
)

SUPERCOMBO: Final = Contract(
    name="supercombo",
    runtime="IQPilot's iqmodeld",
    form="dict",
    keys=("metadata", "frame_skip", "run_policy"),
    metadata=("output_slices", "input_shapes"),
    jits=(
        JitRule(
            key="run_policy",
            inputs=(
                InputRule(name="warped", place="device", dtype="uint8", shape="warped"),
                *_QUEUES,
                InputRule(name="packed_npy_inputs", place="host", dtype="float32", shape="packed"),
            ),
        ),
        JitRule(key="", per_camera=True, inputs=_WARP, warp=True),
    ),
)
RUN_MODEL: Final = Contract(
    name="run_model",
    runtime="stock openpilot's modeld",
    form="dict",
    keys=("metadata", "input_devices", "run_model"),
    metadata=("output_slices", "input_shapes"),
    jits=(
        JitRule(
            key="run_model",
            per_camera=True,
            inputs=(
                *_QUEUES,
                InputRule(name="packed_npy_inputs", place="host", dtype="uint8", shape="packed_with_frames"),
            ),
        ),
    ),
)
COMPILE3: Final = Contract(
    name="compile3",
    runtime="a runtime that loads tinygrad's compile3 output",
    form="bare",
    jits=(JitRule(key="", inputs=None),),
)
SPLIT_VISION: Final = Contract(
    name="split_vision",
    runtime="a runtime with separate vision and policy",
    form="bare",
    jits=(JitRule(key="", inputs=_IMAGES),),
)
SPLIT_POLICY: Final = Contract(
    name="split_policy",
    runtime="a runtime with separate vision and policy",
    form="bare",
    jits=(JitRule(key="", inputs=None),),
)


def _combined(kind: str, roles: tuple[str, ...]) -> Contract:
    """All parts of a split model in one artifact, each jit and its metadata under its role."""
    return Contract(
        name=kind,
        runtime="a runtime with separate vision and policy",
        form="dict",
        keys=("metadata", *roles),
        metadata=roles,
        jits=tuple(JitRule(key=role, inputs=_IMAGES if role == "vision" else None) for role in roles),
    )


VISION_POLICY: Final = _combined("vision_policy", ("vision", "policy"))
VISION_MULTI_POLICY: Final = _combined("vision_multi_policy", ("vision", "on_policy", "off_policy"))

CONTRACTS: Final[Mapping[str, Contract]] = {
    one.name: one
    for one in (SUPERCOMBO, RUN_MODEL, COMPILE3, SPLIT_VISION, SPLIT_POLICY, VISION_POLICY, VISION_MULTI_POLICY)
}

_TINYGRAD: Final = (
    "codegen.opt.Opt", "codegen.opt.OptOps", "device.Buffer", "device.BufferSpec", "device.MultiBuffer",
    "dtype.AddrSpace", "dtype.ConstFloat", "dtype.DType", "dtype.ImageDType", "dtype.InvalidType", "dtype.PtrDType",
    "engine.jit.CapturedJit", "engine.jit.TinyJit", "engine.jit._TinyJit",
    "engine.realize.BufferCopy", "engine.realize.BufferXfer", "engine.realize.CompiledRunner",
    "engine.realize.ExecItem", "engine.realize.ViewOp",
    "helpers.Metadata", "helpers.Target", "renderer.Estimates", "renderer.ProgramSpec", "tensor.Tensor",
    "uop.Ops", "uop.ops.AxisType", "uop.ops.CallInfo", "uop.ops.KernelInfo", "uop.ops.ParamArg",
    "uop.ops.ProgramInfo", "uop.ops.UOp",
)  # fmt: skip
_PYTHON: Final = (
    "builtins.bytearray", "builtins.slice", "collections.OrderedDict", "numpy.dtype", "numpy.ndarray",
    "numpy.core.multiarray._reconstruct", "numpy.core.multiarray.scalar", "numpy.core.numeric._frombuffer",
    "numpy._core.multiarray._reconstruct", "numpy._core.multiarray.scalar", "numpy._core.numeric._frombuffer",
)  # fmt: skip
CAPTURED_CLASSES: Final = frozenset(name.rpartition(".")[2] for name in _TINYGRAD)
"""What a capture may name of tinygrad, without the modules."""
KNOWN_GLOBALS: Final = frozenset((*_PYTHON, *(f"tinygrad.{name}" for name in _TINYGRAD)))
"""Globals of genuine captures of tinygrad 0.12 to 0.14 (facts, section 2). Being known makes none of them harmless."""
