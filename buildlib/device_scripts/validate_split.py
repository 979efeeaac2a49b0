#!/usr/bin/env python3
"""Drives an installed artifact of a split model, and says whether it is good enough to drive with.

    validate_split.py ARTIFACT (--seconds N | --frames N) [--rate 20] --report PATH [--require-realtime]
                      [--sha256 HEX] [--role ROLE]

Runs on the device, from a directory that holds `supercombo_build_validate` too. The watchdog, the report and the exit
statuses are those of `validate_supercombo.py`. An artifact of all parts (a dict of jits by role, with metadata) is
driven as a runtime does: the vision sees two pictures that move, its hidden state goes into the features that the
policies remember. One part alone (a bare jit; --role says which) is fed with inputs of its own that change with every
frame. Warps are not part of these.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

# What it is made of is taken from beside it alone. Its bytecode is not kept: nobody compares that with what was sent.
sys.path.insert(0, str(Path(__file__).resolve().parent))
kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
if TYPE_CHECKING:
    from buildlib.device_scripts.supercombo_build_validate import command, split_drive, split_parts
else:
    from supercombo_build_validate import command, split_drive, split_parts
del sys.path[0]
sys.dont_write_bytecode = kept

if __name__ == "__main__":
    options = command.parse(sys.argv[1:], __doc__, split_parts.ROLES)
    sys.exit(command.main(sys.argv[1:], options, split_drive.use, __file__))
