"""How much memory this process held at most."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def peak() -> int:
    """Bytes. Linux counts in ru_maxrss what the parent held at the fork, so its own high-water mark is asked there."""
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
