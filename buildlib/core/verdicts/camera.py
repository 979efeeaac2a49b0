"""Memory layout of a camera frame: padded NV12 as the device's video core lays it out (facts, section 1)."""

from __future__ import annotations

import msgspec


class FrameLayout(msgspec.Struct, frozen=True, kw_only=True):
    """stride: bytes a row. y_rows, uv_rows: rows of the planes, padded. uv_offset, total: bytes."""

    stride: int
    y_rows: int
    uv_rows: int

    @property
    def uv_offset(self) -> int:
        return self.stride * self.y_rows

    @property
    def planes(self) -> int:
        """Bytes of both planes, without the guard behind them."""
        return self.stride * (self.y_rows + self.uv_rows)


def frame_layout(width: int, height: int) -> FrameLayout:
    """Layout for a sensor size in pixels: 1344x760 has stride 1408, 768 and 384 rows."""
    rows = _up(height, 32)
    return FrameLayout(stride=_up(width, 128), y_rows=rows, uv_rows=_up(height // 2, 16))


def frame_bytes(width: int, height: int) -> int:
    """Bytes of a whole frame buffer: 2,428,928 for 1344x760, 4,804,608 for 1928x1208."""
    layout = frame_layout(width, height)
    guard = 4096 + max(16384, 8 * layout.stride)
    return _up(layout.planes + guard, 4096) + _up(_up(width, 512) * 512, 4096)


def _up(value: int, to: int) -> int:
    return -(-value // to) * to
