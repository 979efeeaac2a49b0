#!/usr/bin/env python3
"""Compiles the ONNX of a split driving model (kinds vision_policy, vision_multi_policy) with tinygrad.

    compile_split.py --onnx ROLE=PATH [ROLE=PATH ...] --output PATH [--metadata-output PATH]
                     [--model-size 512x256] [--expected-device QCOM]

Roles: vision with policy, or vision with on_policy and off_policy. Runs on the device, from a directory that holds
`supercombo_build_compile` too; checks and exit statuses are those of `compile_supercombo.py`.

One role gives what stock's compile3 gives: one pickle of a captured TinyJit, called with the ONNX's own inputs by
keyword -> (1, N) float32. Images are uint8 on the device, all else float32 on the host. Such a pickle holds no
metadata; --metadata-output writes it beside, as a plain dict. All roles of a model at once give one pickle of a dict:

  metadata   {role: {output_slices, input_shapes, output_shapes, model_checkpoint}}
  ROLE       the captured TinyJit of that role, for each

What is renamed to --output was loaded by a fresh process before and gave the same bits there. On any failure there is
no output, and the last line of stderr is `error: WHAT: expected X, got Y`.
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
    from buildlib.device_scripts.supercombo_build_compile import shared, split_command
else:
    from supercombo_build_compile import shared, split_command
del sys.path[0]
sys.dont_write_bytecode = kept

if __name__ == "__main__":
    sys.exit(shared.ending(partial(split_command.main, sys.argv[1:], __file__, __doc__)))
