"""What a file system says of a file, and whether a later change could leave the same said. Imports next to nothing."""

from __future__ import annotations

import os
from pathlib import Path

Signature = tuple[int, int, int, int, int]
"""(device, inode, size in bytes, mtime_ns, ctime_ns)."""

TICK_NS = 50_000_000
"""Longer than any kernel's file-time granularity on a local disk."""
COARSE_NS = 2_100_000_000
"""The same for file systems that keep whole seconds (or FAT's two)."""


def signature(path: str | Path) -> Signature | None:
    """What the file system says of a regular file, or None where there is none."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - a Path costs as much as the call on the hot path
    except (OSError, ValueError):
        return None
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def settled(seen: Signature, at_ns: int) -> bool:
    """True when a change after at_ns (wall clock, ns) cannot leave this same signature behind."""
    _, _, _, mtime, ctime = seen
    tick = COARSE_NS if mtime % 1_000_000_000 == 0 and ctime % 1_000_000_000 == 0 else TICK_NS
    return max(mtime, ctime) + tick < at_ns
