#!/usr/bin/env python3
"""Drives an installed supercombo artifact as the runtime does, and says whether it is good enough to drive with.

    validate_supercombo.py ARTIFACT (--seconds N | --frames N) [--rate 20] --report PATH [--require-realtime]
                           [--sha256 HEX] [--cameras 1344x760 1928x1208] [--frame-skip 4]

Runs on the device, from a directory that holds `supercombo_build_validate` too, on the standard library, numpy and
tinygrad (DEV and WARP_DEV as for the compile). A child process loads the artifact and feeds both views of each camera
with moving padded NV12 frames at the rate; this process watches it, so a child that dies or freezes gets its verdict
too. The runtime here knows the contract by itself and nothing of the compile script. The child's findings come through
a pipe, one JSON line each.

The report is written whatever happened, by rename:
  verdict    "good", or the code of the leading finding
  findings   [{code, what, expected, got, frame, count}], the leading one first
  numbers    frames, times in ms for each camera, memory in bytes, load time in s, backend
  proof      which bytes ran: path, sha256 of what the unpickler read, inode, size and times before and after
  asked      frames, rate, realtime, cameras, frame_skip

The exit status is 0, or that of the leading finding (`STATUS` in `supercombo_build_validate/findings.py`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

# What it is made of is taken from beside it alone. Its bytecode is not kept: nobody compares that with what was sent.
sys.path.insert(0, str(Path(__file__).resolve().parent))
kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
if TYPE_CHECKING:
    from buildlib.device_scripts.supercombo_build_validate import command, drive
else:
    from supercombo_build_validate import command, drive
del sys.path[0]
sys.dont_write_bytecode = kept

if __name__ == "__main__":
    sys.exit(command.main(sys.argv[1:], command.parse(sys.argv[1:], __doc__), drive.use, __file__))
