"""Captured jits against a contract: which are there, and whether the runtime's call will match what was captured.

tinygrad compares names, shapes, dtypes and devices of the arguments at every call and dies with "args mismatch in JIT"
(guide, section 11); this finds the same differences before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from buildlib.core.verdicts.contract import Contract, InputRule, JitRule, accepted_orders
from buildlib.core.verdicts.findings import REBUILD_SAME, Finding, refuse, warn
from buildlib.core.verdicts.inspection import CapturedJit, Inspection, camera_name
from buildlib.core.verdicts.shapes import expected_shape, frame_skip_of, queue_depth

_QUEUES: Final = ("image_queue", "feature_queue", "desire_queue")


def judge_jits(
    inspection: Inspection,
    contract: Contract,
    *,
    frame_skip: int,
    cameras: tuple[tuple[int, int], ...],
    model_size: tuple[int, int],
    device: str,
    warp_device: str,
    onnx_inputs: tuple[str, ...] | None,
) -> Iterator[Finding]:
    """Everything in which the runtime's calls would differ from the captured ones."""
    inputs = (inspection.metadata.input_shapes if inspection.metadata else None) or {}
    if inspection.frame_skip is not None and inspection.frame_skip != frame_skip:
        yield refuse(
            "frame_skip",
            "was compiled with another frame skip",
            expected=f"frame_skip {frame_skip}",
            found=f"frame_skip {inspection.frame_skip}",
            guide="11",
            remedy=f"compile with --frame-skip {frame_skip}, or correct frame_skip in models.yaml",
        )
    for rule in contract.jits:
        found = _jits_of(inspection, rule)
        if rule.per_camera:
            yield from _judge_cameras(found, rule, contract, cameras)
            found = tuple(one for one in found if one.camera in cameras)
        elif not found:
            yield refuse(
                "jit_missing",
                f"has no {rule.key or 'captured jit'}",
                expected=f"a captured jit under {rule.key!r}",
                found=", ".join(one.key for one in inspection.jits) or "none",
                guide="11",
                remedy=REBUILD_SAME,
            )
        for jit in found:
            call = _Call(
                frame_skip=frame_skip,
                model_size=model_size,
                device=warp_device if rule.warp else device,
                inputs=inputs,
                contract=contract,
            )
            yield from call.judge(jit, rule, onnx_inputs)


def _jits_of(inspection: Inspection, rule: JitRule) -> tuple[CapturedJit, ...]:
    if not rule.per_camera:
        return tuple(one for one in inspection.jits if one.key == rule.key)
    prefix = f"{rule.key}/" if rule.key else ""
    return tuple(one for one in inspection.jits if one.camera and one.key == prefix + camera_name(one.camera))


def _judge_cameras(
    jits: tuple[CapturedJit, ...], rule: JitRule, contract: Contract, cameras: tuple[tuple[int, int], ...]
) -> Iterator[Finding]:
    have = {one.camera for one in jits}
    missing = [camera_name(one) for one in cameras if one not in have]
    extra = sorted(camera_name(one) for one in have if one and one not in cameras)
    if missing:
        yield refuse(
            "camera_missing",
            f"has no jit for camera {', '.join(missing)}",
            expected=", ".join(camera_name(one) for one in cameras),
            found=", ".join(sorted(camera_name(one) for one in have if one)) or "none",
            guide="5",
            remedy="compile with --camera-resolutions " + " ".join(camera_name(one) for one in cameras),
        )
    if extra:
        yield warn(
            "camera_extra",
            "was compiled for cameras that the model does not declare",
            expected=", ".join(camera_name(one) for one in cameras),
            found=", ".join(extra),
            guide="5",
            remedy="harmless but large; correct camera_resolutions in models.yaml if they are wanted",
        )


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    """The call that the runtime will make."""

    frame_skip: int
    model_size: tuple[int, int]
    device: str
    inputs: Mapping[str, tuple[int, ...]]
    contract: Contract

    def judge(self, jit: CapturedJit, rule: JitRule, onnx_inputs: tuple[str, ...] | None) -> Iterator[Finding]:
        orders = accepted_orders(rule)
        if rule.inputs is None and onnx_inputs is not None:
            orders = (tuple(sorted(onnx_inputs)), onnx_inputs)
        if orders and jit.names not in orders:
            yield self._names(jit, orders)
            return
        yield from self._places(jit, rule)
        shapes_differ = []
        for one in rule.inputs or ():
            captured = jit.input(one.name)
            if captured is None:
                continue
            shape = expected_shape(
                one.shape,
                frame_skip=self.frame_skip,
                model_size=self.model_size,
                camera=jit.camera,
                inputs=self.inputs,
            )
            if captured.shape is None:
                yield warn(
                    "shape_unknown",
                    f"{_of(jit)}: the capture does not tell the shape of {one.name}",
                    expected=str(shape),
                    found="a view",
                    remedy="validate on the device",
                )
            elif captured.shape != shape:
                shapes_differ.append((one, captured.shape, shape))
        yield from self._shapes(jit, shapes_differ)

    def _names(self, jit: CapturedJit, orders: tuple[tuple[str, ...], ...]) -> Finding:
        if any(isinstance(one, int) for one in jit.names):
            what = "was captured with positional arguments, the runtime passes keywords"
        elif sorted(str(one) for one in jit.names) == sorted(orders[0]):
            what = "was captured with its arguments in another order"
        else:
            what = "was captured with other arguments"
        return refuse(
            "names",
            f"{_of(jit)} {what} (args mismatch in JIT)",
            expected=", ".join(orders[0]),
            found=", ".join(str(one) for one in jit.names) or "none",
            guide="11",
            remedy=f"compile it with the script that belongs to {self.contract.runtime}",
        )

    def _places(self, jit: CapturedJit, rule: JitRule) -> Iterator[Finding]:
        """Inputs on another device or of another dtype, one finding for all alike."""
        devices: dict[tuple[str, str], list[str]] = {}
        dtypes: dict[tuple[str, str], list[str]] = {}
        for one in rule.inputs or ():
            captured = jit.input(one.name)
            if captured is None:
                continue
            wanted = self.device if one.place == "device" else "NPY"
            if captured.device.partition(":")[0] != wanted:
                devices.setdefault((wanted, captured.device), []).append(one.name)
            if captured.dtype != one.dtype:
                dtypes.setdefault((one.dtype, captured.dtype), []).append(one.name)
        for (wanted, found), names in devices.items():
            yield refuse(
                "input_device",
                f"{_of(jit)}: {', '.join(names)} captured on another device (args mismatch in JIT)",
                expected=wanted,
                found=found,
                guide="10",
                remedy=f"compile on the device with DEV={self.device}",
            )
        for (wanted, found), names in dtypes.items():
            yield refuse(
                "input_dtype",
                f"{_of(jit)}: {', '.join(names)} captured with another dtype (args mismatch in JIT)",
                expected=wanted,
                found=found,
                guide="11",
                remedy=f"compile it with the script that belongs to {self.contract.runtime}",
            )

    def _shapes(
        self, jit: CapturedJit, differ: list[tuple[InputRule, tuple[int, ...], tuple[int, ...]]]
    ) -> Iterator[Finding]:
        queues = [one for one in differ if one[0].shape in _QUEUES]
        if queues and all(found[1:] == wanted[1:] for _, found, wanted in queues):
            yield self._frame_skip(jit, queues)
        else:
            differ = [one for one in differ if one not in queues] + queues
            queues = []
        for rule, found, wanted in differ:
            if any(rule is one[0] for one in queues):
                continue
            is_frame = rule.shape in ("frame", "packed_with_frames")
            yield refuse(
                "frame_size" if is_frame else "input_shape",
                f"{_of(jit)}: {rule.name} was captured with another "
                + ("frame size" if is_frame else "shape")
                + " (args mismatch in JIT)",
                expected=_shape(wanted),
                found=_shape(found),
                guide="10",
                remedy="compile for this camera's padded NV12 layout (openpilot's get_nv12_info)"
                if is_frame
                else "compile with this model's --model-size, from this ONNX",
            )

    def _frame_skip(
        self, jit: CapturedJit, queues: list[tuple[InputRule, tuple[int, ...], tuple[int, ...]]]
    ) -> Finding:
        rule, found, wanted = queues[0]
        captured = frame_skip_of(found[0], self.inputs) if rule.shape == "image_queue" else None
        return refuse(
            "frame_skip",
            f"{_of(jit)}: queues were captured with another frame skip (arg={found[0]} vs arg={wanted[0]})",
            expected=f"{rule.name} of depth {wanted[0]} (frame skip {self.frame_skip}: image queues of depth "
            f"{queue_depth(self.frame_skip, self.inputs)})",
            found=", ".join(f"{one.name} {shape[0]}" for one, shape, _ in queues)
            + (f" (frame skip {captured})" if captured else ""),
            guide="11",
            remedy=f"compile with --frame-skip {self.frame_skip}, or correct frame_skip in models.yaml",
        )


def _of(jit: CapturedJit) -> str:
    return jit.key or "the jit"


def _shape(shape: tuple[int, ...]) -> str:
    return f"{shape[0]:,} bytes" if len(shape) == 1 else str(shape)
