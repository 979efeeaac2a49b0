#!/usr/bin/env python3
"""Compiles a supercombo ONNX into the tinygrad artifact that the device's runtime loads.

Runs on the device, as one file, on the standard library, numpy and tinygrad. The command line and the last line of
output are the compile guide's (sections 5 and 6). The artifact is one pickle of a dict:

  metadata         output_slices {name: slice}, input_shapes, output_shapes, model_checkpoint
  frame_skip       int
  run_policy       captured TinyJit(warped, img_q, big_img_q, feat_q, desire_q, packed_npy_inputs) -> (outputs,)
  (width, height)  captured TinyJit(tfm, big_tfm, frame, big_frame) -> (2, 6, H/2, W/2) uint8, one for each camera

What is renamed to --output was loaded by a fresh process before and gave the same bits there. On any failure there is
no output, the last line of stderr is `error: WHAT: expected X, got Y`, and the exit status is one of the constants
below.
"""

from __future__ import annotations

import argparse
import base64
import gc
import io
import math
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

# tinygrad 0.14 compiles kernels in a pool whose order leaks into the pickle. Read when tinygrad is imported.
os.environ.setdefault("PARALLEL", "0")

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float32]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

# Exit statuses.
BAD_ONNX = 10  # unreadable, truncated, or no ONNX at all
BAD_INPUTS = 11  # the model's inputs are not a supercombo's
BAD_METADATA = 12  # output_slices missing, unsafe or not fitting the output
NOT_COMPILED = 13  # tinygrad raised
NOT_FINITE = 20  # NaN or infinity in the output
BAD_ODOMETRY = 21  # pose, road transform or wide camera angles missing or senseless
DIVERGES = 22  # the captured jit and a direct run of the ONNX disagree
INDIFFERENT = 23  # other inputs give the same output
NO_REPLAY = 24  # the pickled jit does not give the same bits
WRONG_DEVICE = 25  # captured on another device than expected
BAD_WARP = 26  # a camera's warp is not the projection it should be
NOT_WRITTEN = 30  # the output could not be written

POLICY_INPUTS = ("warped", "img_q", "big_img_q", "feat_q", "desire_q", "packed_npy_inputs")
WARP_INPUTS = ("tfm", "big_tfm", "frame", "big_frame")
MODEL_INPUTS = ("img", "big_img", "features_buffer", "desire_pulse", "traffic_convention", "action_t")
ODOMETRY = ("pose", "wide_from_device_euler", "road_transform")
SEED, OTHER_SEED, WARM_SEED = 42, 43, 7
STEPS = 2
TOLERANCE = 1e-4
# What the localizer refuses: deviations at or below 1e-5, speeds over 200 m/s, rates over 10 rad/s.
LEAST_STD, MOST_SPEED, MOST_RATE = 1e-5, 200.0, 10.0


class Failure(Exception):
    """A check that failed: its exit status and its text, one problem a line."""

    def __init__(self, status: int, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.status = status


def say(text: str) -> None:
    print(text, flush=True)


# --- camera frames ---------------------------------------------------------------------------------------------------


class Frame:
    """A padded NV12 frame as the device's video core lays it out. Sizes in bytes and rows."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.stride = _up(width, 128)
        self.y_rows = _up(height, 32)
        self.uv_rows = _up(height // 2, 16)
        self.uv_start = self.stride * self.y_rows
        planes = self.stride * (self.y_rows + self.uv_rows)
        self.size = _up(planes + 4096 + max(16384, 8 * self.stride), 4096) + _up(_up(width, 512) * 512, 4096)

    def smooth(self, turn: int = 0) -> Bytes:
        """Slopes below one grey level a pixel, so that a projection one pixel off is one level off; padding is 255."""
        frame = np.full(self.size, 255, dtype=np.uint8)
        rows = frame[: self.uv_start + self.stride * self.uv_rows].reshape(-1, self.stride)
        x, y = np.arange(self.width), np.arange(self.height)[:, None]
        rows[: self.height, : self.width] = (16 + turn + 90 * x / self.width + 90 * y / self.height).astype(np.uint8)
        x, y = np.arange(self.width // 2), np.arange(self.height // 2)[:, None]
        uv = rows[self.y_rows : self.y_rows + self.height // 2, : self.width]
        uv[:, 0::2] = (40 + turn + 120 * x / self.width + 0 * y).astype(np.uint8)
        uv[:, 1::2] = (60 + turn + 120 * y / self.height + 0 * x).astype(np.uint8)
        return frame


def _up(value: int, to: int) -> int:
    return -(-value // to) * to


def view_matrix(frame: Frame, model_size: tuple[int, int], seed: int) -> Floats:
    """A plausible 3x3 projection, model pixel -> camera pixel: the lower middle of the picture, a little turned."""
    random = np.random.default_rng(seed)
    zoom = 0.9 * frame.width / model_size[0]
    turn = random.uniform(-0.03, 0.03)
    return np.array(
        [
            [zoom, -turn, 0.05 * frame.width],
            [turn, 0.8 * zoom, 0.15 * frame.height],
            [random.uniform(-2e-5, 2e-5), 1e-5, 1.0],
        ],
        dtype=np.float32,
    )


def make_warp(frame: Frame, model_size: tuple[int, int], device: str | None) -> Callable[..., Any]:
    """warp(tfm, big_tfm, frame, big_frame): both cameras' frames -> (2, 6, H/2, W/2) uint8, nearest pixel, clipped.

    tfm, big_tfm: (3, 3) float32 on the host. frame, big_frame: flat padded NV12 on the warp's device.
    Planes: luma at (even row, even column), (odd, even), (even, odd), (odd, odd), then U, then V.
    """
    from tinygrad import Tensor
    from tinygrad.helpers import Context

    width, height = model_size[0] // 2, model_size[1] // 2

    def count(to: int) -> Any:
        try:
            return Tensor.arange(to, device=device)
        except TypeError:  # from 0.14 on a constant has no device
            return Tensor.arange(to)

    def plane(pixels: Any, m: Any, x: Any, y: Any, *, scale: int, start: int, step: int) -> Any:
        # scale 2 is the chroma plane: the same projection between two grids of half the size.
        # The 3x3 product is written out so that it fuses with the gather.
        depth = (m[2, 0] * x + m[2, 1] * y) * scale + m[2, 2]
        source_x = (m[0, 0] * x + m[0, 1] * y + m[0, 2] / scale) / depth
        source_y = (m[1, 0] * x + m[1, 1] * y + m[1, 2] / scale) / depth
        column = source_x.round().clip(0, frame.width // scale - 1).cast("int32")
        row = source_y.round().clip(0, frame.height // scale - 1).cast("int32")
        return pixels[(row * frame.stride + column * step + start).flatten()].reshape(-1, height, width)

    def prepare(pixels: Any, m: Any) -> Any:
        i = count(height).reshape(1, 1, height, 1).expand(2, 2, height, width)
        j = count(width).reshape(1, 1, 1, width).expand(2, 2, height, width)
        phase = count(2)
        odd_row = phase.reshape(1, 2, 1, 1).expand(2, 2, height, width)
        odd_column = phase.reshape(2, 1, 1, 1).expand(2, 2, height, width)
        chroma = {"x": j[0, 0], "y": i[0, 0], "scale": 2, "step": 2}
        with Context(SPLIT_REDUCEOP=0):
            luma = plane(pixels, m, j * 2 + odd_column, i * 2 + odd_row, scale=1, start=0, step=1).realize()
            u = plane(pixels, m, start=frame.uv_start, **chroma).realize()
            v = plane(pixels, m, start=frame.uv_start + 1, **chroma).realize()
        return luma.cat(u, v).unsqueeze(0)

    def warp(tfm: Any, big_tfm: Any, frame: Any, big_frame: Any) -> Any:
        tfm, big_tfm = tfm.to(device), big_tfm.to(device)
        Tensor.realize(tfm, big_tfm)
        return prepare(frame, tfm).cat(prepare(big_frame, big_tfm)).contiguous()

    return warp


def reference_warp(frame: Frame, model_size: tuple[int, int], pixels: Bytes, matrix: Floats) -> Bytes:
    """The same projection in numpy: (6, H/2, W/2) uint8."""
    width, height = model_size

    def plane(m: Floats, columns: int, rows: int, scale: int, start: int, step: int) -> Bytes:
        y, x = np.mgrid[0:rows, 0:columns].astype(np.float32)
        shrink = np.diag([1 / scale, 1 / scale, 1]).astype(np.float32)
        m = shrink @ m @ np.linalg.inv(shrink)
        sx, sy, depth = (m @ np.stack([x, y, np.ones_like(x)]).reshape(3, -1)).reshape(3, rows, columns)
        column = np.clip(np.round(sx / depth), 0, frame.width // scale - 1).astype(np.int64)
        row = np.clip(np.round(sy / depth), 0, frame.height // scale - 1).astype(np.int64)
        picked: Bytes = pixels[row * frame.stride + column * step + start]
        return picked

    luma = plane(matrix, width, height, 1, 0, 1)
    chroma = [plane(matrix, width // 2, height // 2, 2, frame.uv_start + channel, 2) for channel in (0, 1)]
    return np.stack([luma[0::2, 0::2], luma[1::2, 0::2], luma[0::2, 1::2], luma[1::2, 1::2], *chroma])


# --- the ONNX --------------------------------------------------------------------------------------------------------


def read_properties(path: Path) -> dict[str, str]:
    """metadata_props of an ONNX file, read from the top level of its protobuf (field 14: key 1, value 2)."""
    properties = {}
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(64)
            if head.startswith(b"version https://git-lfs"):
                raise Failure(BAD_ONNX, f"{path} is a git-lfs pointer, not the model: run `git lfs pull` beside it")
            if head.lstrip()[:1] == b"<":
                raise Failure(BAD_ONNX, f"{path} is a web page, not a model")
            file.seek(0)
            fields = []
            for number, value in _fields(file, size, keep={14}):
                fields.append(number)
                if number == 14:
                    pair = dict(_fields(io.BytesIO(value), len(value), keep={1, 2}))
                    properties[pair.get(1, b"").decode()] = pair.get(2, b"").decode()
    except OSError as error:
        raise Failure(BAD_ONNX, f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Failure(BAD_ONNX, f"{path} is no ONNX model, or is truncated: {error}") from None
    if 7 not in fields:
        raise Failure(BAD_ONNX, f"{path} is no ONNX model: it holds no graph")
    return properties


def _fields(file: BinaryIO, size: int, keep: set[int]) -> Iterator[tuple[int, bytes]]:
    """(number, content) of each field of a protobuf message; the content of fields not in `keep` is skipped."""

    def varint() -> int:
        value = 0
        for shift in range(0, 70, 7):
            if not (byte := file.read(1)):
                raise ValueError("it ends in mid-field")
            value |= (byte[0] & 127) << shift
            if byte[0] < 128:
                return value
        raise ValueError("a number is too long")

    while file.tell() < size:
        tag = varint()
        kind = tag & 7
        if kind == 0:
            varint()
            yield tag >> 3, b""
            continue
        if kind not in (1, 2, 5) or not tag >> 3:
            raise ValueError(f"byte {file.tell()} starts no field")
        length = varint() if kind == 2 else {1: 8, 5: 4}[kind]
        if file.tell() + length > size:
            raise ValueError(f"a field of {length} bytes at {file.tell()} passes its end at {size}")
        if tag >> 3 in keep:
            yield tag >> 3, file.read(length)
        else:
            file.seek(length, os.SEEK_CUR)
            yield tag >> 3, b""


class _SlicesOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module in ("builtins", "__builtin__") and name in ("slice", "dict"):
            return {"slice": slice, "dict": dict}[name]
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def read_slices(encoded: str | None) -> dict[str, slice]:
    """Decodes metadata_props["output_slices"] without running what it names."""
    if encoded is None:
        raise Failure(BAD_METADATA, "the ONNX has no metadata property output_slices: not a driving model's export")
    try:
        slices = _SlicesOnly(io.BytesIO(base64.b64decode(encoded))).load()
    except Exception as error:  # noqa: BLE001 - a hostile or broken pickle raises whatever it likes
        raise Failure(BAD_METADATA, f"output_slices cannot be read safely: {error}") from None
    good = isinstance(slices, dict) and all(
        isinstance(name, str)
        and isinstance(part, slice)
        and all(isinstance(edge, int) for edge in (part.start, part.stop))
        and part.step in (None, 1)
        and 0 <= part.start <= part.stop
        for name, part in slices.items()
    )
    if not good:
        raise Failure(BAD_METADATA, "output_slices: expected a dict of name -> slice(start, stop)")
    return dict(slices)


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


# --- the policy ------------------------------------------------------------------------------------------------------


def packed_layout(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Parts of packed_npy_inputs (float32), in order: desire, traffic_convention, action_t, prev_feat, extras."""
    layout = {
        "desire": shapes["desire_pulse"][2:],
        "traffic_convention": shapes["traffic_convention"],
        "action_t": shapes["action_t"],
        "prev_feat": (1, math.prod(shapes["features_buffer"][2:])),
    }
    return layout | {name: shape for name, shape in shapes.items() if name not in MODEL_INPUTS}


def queue_shapes(shapes: dict[str, tuple[int, ...]], frame_skip: int) -> dict[str, tuple[tuple[int, ...], type]]:
    """The state that run_policy keeps between frames: name -> (shape, dtype)."""
    features, desire = shapes["features_buffer"], shapes["desire_pulse"]
    queues: dict[str, tuple[tuple[int, ...], type]] = {}
    for queue, image in (("img_q", shapes["img"]), ("big_img_q", shapes["big_img"])):
        queues[queue] = ((frame_skip * (image[1] // 6 - 1) + 1, 6, *image[2:]), np.uint8)
    queues["feat_q"] = ((frame_skip * features[1], 1, math.prod(features[2:])), np.float32)
    queues["desire_q"] = ((frame_skip * desire[1], 1, *desire[2:]), np.float32)
    return queues


def make_policy(model: Any, shapes: dict[str, tuple[int, ...]], frame_skip: int) -> Callable[..., Any]:
    """run_policy: moves every queue on by one frame, samples it every frame_skip, runs the model.

    Returns a tuple of one (1, N) float32 tensor. A desire pulse counts if it was set in any of its skipped frames.
    """
    from tinygrad import Device, Tensor

    layout = packed_layout(shapes)

    def push(queue: Any, new: Any) -> Any:
        queue.assign(queue[1:].cat(new).contiguous())
        return queue

    def run_policy(warped: Any, img_q: Any, big_img_q: Any, feat_q: Any, desire_q: Any, packed_npy_inputs: Any) -> Any:
        packed = packed_npy_inputs.to(Device.DEFAULT)
        warped = warped.to(Device.DEFAULT)
        Tensor.realize(packed, warped)
        parts = packed.split([math.prod(shape) for shape in layout.values()])
        inputs = {name: part.reshape(shape) for (name, shape), part in zip(layout.items(), parts, strict=True)}
        desires = push(desire_q, inputs.pop("desire").reshape(1, *desire_q.shape[1:]))
        features = push(feat_q, inputs.pop("prev_feat").reshape(1, *feat_q.shape[1:]))
        inputs["img"] = push(img_q, warped[0:1])[::frame_skip].contiguous().reshape(shapes["img"])
        inputs["big_img"] = push(big_img_q, warped[1:2])[::frame_skip].contiguous().reshape(shapes["big_img"])
        inputs["features_buffer"] = features[::frame_skip].contiguous().reshape(shapes["features_buffer"])
        inputs["desire_pulse"] = desires.reshape(-1, frame_skip, *shapes["desire_pulse"][2:]).max(1).unsqueeze(0)
        return (next(iter(model(inputs).values())).cast("float32"),)

    return run_policy


Outcome = dict[str, np.ndarray[Any, Any]]
"""What a run left: "out0", "out1", ... and, for a policy, every queue afterwards."""


def drive_policy(
    run: Callable[..., Any], shapes: dict[str, tuple[int, ...]], frame_skip: int, seed: int | None, steps: int = STEPS
) -> Outcome:
    """Runs `steps` frames; inputs and what the queues hold before are made from the seed, all zero for None."""
    from tinygrad import Device, Tensor

    random = np.random.default_rng(seed)

    def made(shape: tuple[int, ...], kind: type) -> np.ndarray[Any, Any]:
        if seed is None:
            return np.zeros(shape, kind)
        if kind is np.uint8:
            return random.integers(0, 256, shape, dtype=np.uint8)
        return random.standard_normal(shape, dtype=np.float32)

    queues = {
        name: Tensor(made(shape, kind), device=Device.DEFAULT).contiguous().realize()
        for name, (shape, kind) in queue_shapes(shapes, frame_skip).items()
    }
    # The runtime writes into this array in place, frame by frame; so do we.
    packed = np.zeros(sum(math.prod(shape) for shape in packed_layout(shapes).values()), dtype=np.float32)
    packed_tensor = Tensor(packed, device="NPY").realize()
    outcome: Outcome = {}
    for step in range(steps):
        packed[:] = made(packed.shape, np.float32)
        warped = made((2, *queues["img_q"].shape[1:]), np.uint8)
        picture = Tensor(warped, device=os.environ.get("WARP_DEV")).contiguous().realize()
        (out,) = run(warped=picture, packed_npy_inputs=packed_tensor, **queues)
        outcome[f"out{step}"] = np.array(out.numpy())
    return outcome | {name: np.array(queue.numpy()) for name, queue in queues.items()}


def drive_warp(
    frame: Frame, model_size: tuple[int, int], run: Callable[..., Any], seed: int, *, smooth: bool = False
) -> Outcome:
    """One warp of random (or smooth) frames through two different projections."""
    from tinygrad import Tensor

    device = os.environ.get("WARP_DEV")
    random = np.random.default_rng(seed)
    pictures = [
        frame.smooth(turn) if smooth else random.integers(0, 256, frame.size, dtype=np.uint8) for turn in (0, 20)
    ]
    matrices = [view_matrix(frame, model_size, seed), view_matrix(frame, model_size, seed + 1)]
    tensors = [Tensor(matrix, device="NPY").realize() for matrix in matrices]
    tensors += [Tensor(picture, device=device).contiguous().realize() for picture in pictures]
    out = np.array(run(**dict(zip(WARP_INPUTS, tensors, strict=True))).numpy())
    outcome = {"out0": out}
    if smooth:
        both = zip(pictures, matrices, strict=True)
        outcome["reference"] = np.stack([reference_warp(frame, model_size, *pair) for pair in both])
    return outcome


# --- checks ----------------------------------------------------------------------------------------------------------


def check_same(name: str, expected: Outcome, got: Outcome, when: str) -> None:
    for part, values in expected.items():
        if got[part].shape != values.shape or not np.array_equal(got[part], values, equal_nan=True):
            raise Failure(
                NO_REPLAY, f"{name}: {part} differs {when}: expected the same bits, got {_gap(values, got[part])}"
            )


def check_other(name: str, one: Outcome, other: Outcome) -> None:
    for part, values in one.items():
        if np.array_equal(values, other[part]):
            raise Failure(INDIFFERENT, f"{name}: {part} is the same for other inputs: expected it to depend on them")


def check_finite(name: str, outcome: Outcome) -> None:
    for part, values in outcome.items():
        if bad := int(np.count_nonzero(~np.isfinite(values.astype(np.float32)))):
            raise Failure(
                NOT_FINITE, f"{name}: {part}: expected finite numbers, got {bad} NaN or infinite ones of {values.size}"
            )


def check_close(direct: Outcome, jit: Outcome, name: str = "run_policy") -> None:
    for part, values in direct.items():
        if not np.allclose(values, jit[part], rtol=TOLERANCE, atol=TOLERANCE):
            raise Failure(
                DIVERGES,
                f"{name}: {part} of the captured jit differs from a direct run of the ONNX: "
                f"expected within {TOLERANCE}, got {_gap(values, jit[part])}",
            )


def check_odometry(flat: Floats, slices: dict[str, slice]) -> None:
    """Pose, wide camera angles and road transform of one output: there, finite, deviations positive and sane.

    A slice holds means, then log deviations, unless the model gives `NAME_stds` itself.
    """
    problems = [f"output {name} is missing from output_slices" for name in ODOMETRY if name not in slices]
    if problems:
        raise Failure(BAD_ODOMETRY, *problems)
    means: dict[str, Floats] = {}
    stds: dict[str, Floats] = {}
    for name in ODOMETRY:
        values = flat[slices[name]]
        means[name] = values[: values.size // 2]
        if f"{name}_stds" in slices:
            stds[name] = flat[slices[f"{name}_stds"]]
        else:
            stds[name] = np.exp(np.minimum(values[values.size // 2 :], 11))
        if not stds[name].size:
            problems.append(f"output {name}: expected means and deviations, got {values.size} numbers")
        elif stds[name].min() <= LEAST_STD:
            problems.append(f"output {name}_stds: expected more than {LEAST_STD}, got {stds[name].min():.3g}")
    for name, values in (("pose", means["pose"]), ("pose_stds", stds["pose"] / np.float32(10))):
        for what, part, most in (("translation", values[:3], MOST_SPEED), ("rotation", values[3:], MOST_RATE)):
            if np.linalg.norm(part) > most:
                problems.append(
                    f"output {name}: expected a {what} norm of at most {most}, got {np.linalg.norm(part):.3g}"
                )
    if problems:
        raise Failure(BAD_ODOMETRY, *problems)


def _gap(expected: np.ndarray[Any, Any], got: np.ndarray[Any, Any]) -> str:
    if expected.shape != got.shape:
        return f"shape {got.shape} for {expected.shape}"
    gap = np.abs(expected.astype(np.float64) - got.astype(np.float64))
    return f"{int(np.count_nonzero(gap))} of {gap.size} numbers off, at most by {np.nanmax(gap):.3g}"


class _Devices(pickle.Pickler):
    """Walks whatever a captured jit holds, in any tinygrad, and notes the devices of its buffers and programs."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=4)
        self.found: set[str] = set()

    def reducer_override(self, thing: Any) -> Any:
        kind = type(thing).__name__
        if kind in ("Buffer", "ProgramSpec", "Target") and thing.device:
            self.found.add(str(thing.device).partition(":")[0])
        return NotImplemented


class _Nowhere:
    def write(self, block: Any) -> int:
        return len(block)


def check_device(name: str, jit: Any, expected: str) -> None:
    walk = _Devices()
    walk.dump(jit)
    # NPY is the host array that the runtime fills; no kernel runs there.
    found = sorted(walk.found - {"NPY"})
    if found != [expected.upper()]:
        raise Failure(
            WRONG_DEVICE,
            f"{name} was captured on {', '.join(found) or 'no device'}: expected {expected.upper()}; "
            "check DEV and WARP_DEV",
        )


# --- compile ---------------------------------------------------------------------------------------------------------


def capture(name: str, jit: Any, drive: Callable[[Any, int], Outcome]) -> Outcome:
    """Captures the jit on other inputs than those it is judged by, and returns what it gives for SEED."""
    started = time.monotonic()
    for _ in range(3):
        drive(jit, WARM_SEED)
    first = drive(jit, SEED)
    check_finite(name, first)
    check_same(name, first, drive(jit, SEED), "when run twice")
    check_other(name, first, drive(jit, OTHER_SEED))
    say(f"captured {name} in {time.monotonic() - started:.1f} s")
    return first


def compile_artifact(options: argparse.Namespace, part: Path) -> None:
    properties = read_properties(options.onnx)
    slices = read_slices(properties.get("output_slices"))
    from tinygrad import Device, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    say(f"compiling {options.onnx} on {Device.DEFAULT}, warp on {os.environ.get('WARP_DEV') or Device.DEFAULT}")
    for device in dict.fromkeys((Device.DEFAULT, os.environ.get("WARP_DEV") or Device.DEFAULT)):
        try:
            Device[device]
        except Exception as error:
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            raise Failure(NOT_COMPILED, f"device {device} cannot be opened here: {what}") from error
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
        with part.open("wb") as file:
            pickle.dump(artifact, file, protocol=4)
            file.flush()
            os.fsync(file.fileno())
        with part.with_name(part.name + ".outcomes").open("wb") as file:
            arrays = {f"{name}/{key}": value for name, out in outcomes.items() for key, value in out.items()}
            np.savez(file, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise Failure(NOT_WRITTEN, f"{options.output} cannot be written: {error.strerror or error}") from None


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


def replay(options: argparse.Namespace, part: Path) -> None:
    """In a fresh process: what was pickled loads, gives the same bits, and warps as numpy does."""
    with np.load(part.with_name(part.name + ".outcomes")) as saved:
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


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    part = options.output.with_name(options.output.name + ".part")
    scratch = (part, part.with_name(part.name + ".outcomes"))
    if options.replay:
        replay(options, part)
        return 0
    if options.output.resolve() == options.onnx.resolve():
        raise Failure(NOT_WRITTEN, f"--output is the ONNX itself: {options.onnx}")
    try:
        # An older output must not be taken for the one that this run failed to make.
        for path in (options.output, *scratch):
            path.unlink(missing_ok=True)
        part.open("wb").close()
    except OSError as error:
        raise Failure(NOT_WRITTEN, f"{options.output} cannot be written: {error.strerror}") from None
    try:
        compile_artifact(options, part)
        gc.collect()
        again = subprocess.run([sys.executable, str(Path(__file__).resolve()), *arguments, "--replay"], check=False)
        if again.returncode:
            return again.returncode if again.returncode > 0 else NO_REPLAY
        part.replace(options.output)
        sync_directory(options.output.parent)
    finally:
        for path in scratch:
            path.unlink(missing_ok=True)
    say("replayed in a fresh process: outputs and queues equal bit by bit, warps as numpy's")
    say(f"Saved JITs to {options.output} ({options.output.stat().st_size / 1e6:.2f} MB)")
    return 0


def sync_directory(path: Path) -> None:
    """Makes a rename last. Not every system lets a directory be opened; there the rename is all there is."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_size(text: str) -> tuple[int, int]:
    """WIDTHxHEIGHT in pixels."""
    width, _, height = text.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise argparse.ArgumentTypeError(f"expected WIDTHxHEIGHT, got {text!r}")
    if int(width) % 2 or int(height) % 2:
        raise argparse.ArgumentTypeError(f"expected even sizes (NV12), got {text!r}")
    return int(width), int(height)


def parse(arguments: list[str]) -> argparse.Namespace:
    def positive(text: str) -> int:
        if not text.isdecimal() or not int(text):
            raise argparse.ArgumentTypeError(f"expected a number of frames from 1, got {text!r}")
        return int(text)

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-size", type=read_size, required=True, help="picture that the model sees, 512x256")
    parser.add_argument("--camera-resolutions", type=read_size, nargs="+", required=True, help="1344x760 1928x1208")
    parser.add_argument("--onnx", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--frame-skip", type=positive, required=True, help="camera frames for each model step")
    parser.add_argument("--expected-device", default="QCOM", help="the device that must come out: QCOM, CPU")
    parser.add_argument("--expected-warp-device", help="where it is not the same (external GPU)")
    parser.add_argument("--replay", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def stop(number: int, _frame: Any) -> NoReturn:
    raise SystemExit(128 + number)


def ending(work: Callable[[], int]) -> int:
    """The exit status of `work`; whatever it raises is said on stderr."""
    try:
        return work()
    except Failure as failure:
        for line in str(failure).splitlines():
            print(f"error: {line}", file=sys.stderr, flush=True)
        return failure.status
    except Exception as error:  # noqa: BLE001 - whatever tinygrad raises ends here, with its traceback in the log
        traceback.print_exc()
        first = (str(error).strip() or "no message").splitlines()[0]
        print(f"error: the compile failed: {type(error).__name__}: {first}", file=sys.stderr, flush=True)
        return NOT_COMPILED


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    sys.exit(ending(partial(main, sys.argv[1:])))
