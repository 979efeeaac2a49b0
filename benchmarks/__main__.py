"""What the build itself costs, held to its limits: `python -m benchmarks`, exit status 1 where one is missed."""

from __future__ import annotations

import sys

from benchmarks import costs, noop

if __name__ == "__main__":
    sys.exit(max(noop.main(list(noop.LIMITS)), costs.main()))
