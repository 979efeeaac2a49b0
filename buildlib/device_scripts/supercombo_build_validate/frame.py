"""One frame: how long it took, how much memory there was then, and whether its output can be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .findings import Message, found

ODOMETRY = ("pose", "wide_from_device_euler", "road_transform")
# What the localizer refuses: deviations at or below 1e-5, speeds over 200 m/s, rates over 10 rad/s. Angles over 10 rad
# and a camera over 100 m from the road are no angles and no camera.
LEAST_STD, MOST_SPEED, MOST_RATE, MOST_ANGLE, MOST_HEIGHT = 1e-5, 200.0, 10.0, 10.0, 100.0


def frame_message(number: int, camera: str, started: float) -> Message:
    """A frame driven since `started` (perf_counter). Memory in bytes; only on Linux can the child say its own."""
    from tinygrad.helpers import GlobalCounters

    took = (time.perf_counter() - started) * 1000
    rss = resident("self") if sys.platform == "linux" else 0
    return {"frame": number, "camera": camera, "ms": took, "at": started, "mem": GlobalCounters.mem_used, "rss": rss}


def resident(pid: int | str) -> int:
    """Bytes of memory that a process has now; 0 when nobody can say."""
    if sys.platform == "linux":
        try:
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0
    asked = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return int(asked.stdout) * 1024 if asked.stdout.strip().isdecimal() else 0


def check_output(flat: Any, slices: dict[str, slice]) -> Iterator[Message]:
    """One frame's output: finite, then pose, deviations, angles and road transform within what can be."""
    import numpy as np

    bad = ~np.isfinite(flat)
    if bad.any():
        names = [name for name, part in slices.items() if bad[part].any()] or ["no slice"]
        got = f"{int(bad.sum())} NaN or infinite ones of {flat.size}, in {', '.join(names[:6])}"
        yield found("not_finite", "an output is not a number", "finite numbers", got)
        return
    for name in (name for name in ODOMETRY if name in slices):
        values = flat[slices[name]]
        means, log_stds = values[: values.size // 2], values[values.size // 2 :]
        # A slice holds means, then log deviations, unless the model gives NAME_stds itself.
        given = slices.get(f"{name}_stds")
        stds = flat[given] if given else np.exp(np.minimum(log_stds, 11))
        if not stds.size or stds.min() <= LEAST_STD:
            got = f"{stds.min():.3g}" if stds.size else "none"
            yield found("bad_odometry", f"{name}_stds", f"each above {LEAST_STD}", got)
        limits = {"pose": (MOST_SPEED, MOST_RATE), "road_transform": (MOST_HEIGHT, MOST_ANGLE)}.get(name)
        parts = zip((means[:3], means[3:6]), limits, strict=True) if limits else ((means, MOST_ANGLE),)
        for part, most in parts:
            if np.linalg.norm(part) > most:
                got = f"{np.linalg.norm(part):.3g}"
                yield found("bad_odometry", f"{name} is out of this world", f"a norm of at most {most:.4g}", got)
