#!/usr/bin/env python3
"""Compiles a supercombo ONNX into the tinygrad artifact that the device's runtime loads.

Runs on the device, from a directory that holds `supercombo_build_compile` too, on the standard library, numpy and
tinygrad. The command line and the last line of output are the compile guide's (sections 5 and 6). The artifact is one
pickle of a dict:

  metadata         output_slices {name: slice}, input_shapes, output_shapes, model_checkpoint
  frame_skip       int
  run_policy       captured TinyJit(warped, img_q, big_img_q, feat_q, desire_q, packed_npy_inputs) -> (outputs,)
  (width, height)  captured TinyJit(tfm, big_tfm, frame, big_frame) -> (2, 6, H/2, W/2) uint8, one for each camera

What is renamed to --output was loaded by a fresh process before and gave the same bits there. On any failure there is
no output, the last line of stderr is `error: WHAT: expected X, got Y`, and the exit status is one of
`supercombo_build_compile/shared.py`.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy  # noqa: F401 - first, so that its bytecode is kept

# What it is made of is taken from beside it alone. Its bytecode is not kept: nobody compares that with what was sent.
sys.path.insert(0, str(Path(__file__).resolve().parent))
kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
if TYPE_CHECKING:
    from buildlib.device_scripts.supercombo_build_compile import command, shared
else:
    from supercombo_build_compile import command, shared
del sys.path[0]
sys.dont_write_bytecode = kept

if __name__ == "__main__":
    sys.exit(shared.ending(partial(command.main, sys.argv[1:], __file__, __doc__)))
