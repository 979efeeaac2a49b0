"""Padded NV12 sizes against the two that were measured on devices (facts, section 1)."""

from __future__ import annotations

import pytest

from buildlib.core.verdicts.camera import frame_bytes, frame_layout


@pytest.mark.parametrize(
    ("camera", "stride", "y_rows", "uv_rows", "total"),
    [((1344, 760), 1408, 768, 384, 2_428_928), ((1928, 1208), 2048, 1216, 608, 4_804_608)],
)
def test_layout_is_the_devices_own(camera: tuple[int, int], stride: int, y_rows: int, uv_rows: int, total: int) -> None:
    layout = frame_layout(*camera)
    assert (layout.stride, layout.y_rows, layout.uv_rows) == (stride, y_rows, uv_rows)
    assert layout.uv_offset == stride * y_rows
    assert frame_bytes(*camera) == total
