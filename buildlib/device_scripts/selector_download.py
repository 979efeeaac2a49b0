"""Has the device's own model selector download a bundle, as its user would, and says what came of it.

Runs on the device as a job that holds its lock, from a directory that holds `supercombo_build_selector` too. What it
changes (the selection, the files) was written down by the agent before and is put back by the agent after: this script
only asks. It speaks through openpilot's own Params class; where that cannot be used, through the parameters' files,
replaced by rename under the parameters' lock.

The report is one JSON object, format 1: outcome ("downloaded" or why not, see `OUTCOMES` in the package's `download`),
through ("Params" or why the files were used), refreshed (bool), listed (file name -> sha256 in the device's list),
asked (the parameter and value that start the download), files (file name -> sha256 or null on the disk), active (file
name -> {sha256, url} of the active bundle), active_name (its short name), seconds (visible, downloaded). Exit status 0
for "downloaded" only.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

# What it is made of is taken from beside it alone. Its bytecode is not kept: nobody compares that with what was sent.
sys.path.insert(0, str(Path(__file__).resolve().parent))
kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
if TYPE_CHECKING:
    from buildlib.device_scripts.supercombo_build_selector import command
else:
    from supercombo_build_selector import command
del sys.path[0]
sys.dont_write_bytecode = kept

if __name__ == "__main__":
    sys.exit(command.main(sys.argv[1:], __doc__))
