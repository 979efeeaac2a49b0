"""Padded camera frames and the warp: what the model sees of them, for tinygrad, and in numpy to compare it with."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from .checks import Bytes, Floats, Outcome

WARP_INPUTS = ("tfm", "big_tfm", "frame", "big_frame")


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
