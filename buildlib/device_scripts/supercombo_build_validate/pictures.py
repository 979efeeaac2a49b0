"""What the cameras see: moving scenes in padded frames, and the projection that the model looks through."""

from __future__ import annotations

import math
from typing import Any

from .findings import name_of


class Camera:
    """A sensor size (pixels) and its frames: padded NV12 as the device's video core lays it out (bytes, rows)."""

    SCENE, ROOM = 64, 255

    def __init__(self, size: tuple[int, int], model_size: tuple[int, int]) -> None:
        import numpy as np

        self.model_size = model_size
        self.size = width, height = size
        self.name = name_of(size)
        self.stride, self.y_rows = up(width, 128), up(height, 32)
        self.uv_rows = up((height + 1) // 2, 16)
        planes = self.stride * (self.y_rows + self.uv_rows)
        self.bytes = up(planes + 4096 + max(16384, 8 * self.stride), 4096) + up(up(width, 512) * 512, 4096)
        # Scenes larger than the picture, through which it moves: slopes below a grey level a pixel, and grain on them.
        rows, columns = height + self.SCENE, width + 2 * self.SCENE
        down, right = np.linspace(0, 1, rows)[:, None], np.linspace(0, 1, columns)
        random = np.random.default_rng(width)
        self.scenes = {}
        for view in (0, 1):
            luma = 20 + 40 * view + 70 * down + 70 * right
            chroma = np.empty((rows // 2, columns))
            chroma[:, 0::2] = 60 + 20 * view + 80 * right[0::2]
            chroma[:, 1::2] = 140 - 20 * view - 80 * down[::2][: rows // 2]
            self.scenes["smooth", view] = (luma.astype(np.uint8), chroma.astype(np.uint8))
            self.scenes["grain", view] = (
                (luma + random.integers(0, 50, luma.shape)).astype(np.uint8),
                (chroma + random.integers(0, 50, chroma.shape)).astype(np.uint8),
            )

    def picture(self, view: int, turn: int, padding: int = ROOM, scene: str = "grain") -> Any:
        """The frame (flat uint8) of the road (view 0) or wide (1) camera at a moment; no two of 32 are alike."""
        import numpy as np

        width, height = self.size
        luma, chroma = self.scenes[scene, view]
        down, right = turn * 2 % self.SCENE, turn * 6 % (2 * self.SCENE)
        frame = np.full(self.bytes, padding, dtype=np.uint8)
        rows = frame[: self.stride * (self.y_rows + self.uv_rows)].reshape(-1, self.stride)
        rows[:height, :width] = luma[down : down + height, right : right + width]
        rows[self.y_rows : self.y_rows + height // 2, :width] = chroma[
            down // 2 : down // 2 + height // 2, right : right + width
        ]
        return frame

    def matrix(self, view: int, turn: int) -> Any:
        """A plausible 3x3 float32 projection, model pixel -> camera pixel, that sways a little."""
        import numpy as np

        width, height = self.size
        zoom = (0.9, 0.7)[view] * width / self.model_size[0]
        sway = 0.01 * math.sin(turn / 7)
        return np.array(
            [[zoom, -sway, 0.05 * width], [sway, 0.8 * zoom, (0.15 + sway) * height], [1e-5, 1e-5, 1.0]],
            dtype=np.float32,
        )


def up(value: int, to: int) -> int:
    return -(-value // to) * to


def projected(camera: Camera, view: int) -> Any:
    """The smooth moment as it should be seen, nearest pixel: 4 luma phases, U, V of half the model's size, (6, ...)."""
    import numpy as np

    frame, matrix = camera.picture(view, 0, scene="smooth"), camera.matrix(view, 0)
    columns, rows = camera.model_size[0] // 2, camera.model_size[1] // 2
    uv_start = camera.stride * camera.y_rows

    def plane(right: int, down: int, scale: int, start: int, step: int) -> Any:
        y, x = np.mgrid[0:rows, 0:columns] * 2 + np.array([down, right]).reshape(2, 1, 1)
        sx, sy, depth = np.einsum("ij,jrc->irc", matrix.astype(np.float64), np.stack([x, y, np.ones_like(x)]))
        column = np.clip(np.rint(sx / depth / scale), 0, camera.size[0] // scale - 1).astype(int)
        row = np.clip(np.rint(sy / depth / scale), 0, camera.size[1] // scale - 1).astype(int)
        return frame[start + row * camera.stride + column * step]

    luma = [plane(right, down, 1, 0, 1) for right, down in ((0, 0), (0, 1), (1, 0), (1, 1))]
    return np.stack([*luma, plane(0, 0, 2, uv_start, 2), plane(0, 0, 2, uv_start + 1, 2)])
