#!/usr/bin/env python3
"""Runs IQPilot's own harness (guide, section 9.1) and writes down what really ran.

    validate_iqpilot.py HARNESS --speed 15.0 --artifact PATH SHA256 --models DIR --params DIR --shared DIR
                        --seconds 10 --start-limit 90 --report PATH

Runs on the device, from a directory that holds `supercombo_build_iqpilot` too, on the standard library alone (Python
3.9 or newer). HARNESS fakes onroad and starts the model process itself; this process watches both from outside, through
/proc, the parameters and the message queues. It judges nothing: the report holds observations, and the workstation says
what they mean.

The report is written whatever happened, by rename:
  harness    path, sha256, exit, ended: "by itself", "stopped" (on time, by Ctrl-C), "told" (from outside), or
             "killed"; seconds
  artifacts  path, asked, before and after: {sha256, inode, size, times}; moved: seconds after which it was another file
  models     each model process: pid, name, older (than this run), holds {path: "open" or "mapped"}, others (artifacts
             that are not asked for), first, last, ended, state, cpu [(seconds, seconds of processor)]
  selection  [(seconds, file names, sha256)] of the active bundle: at the start and after each change
  services   {name: {first, began, last, moves}}: message queues, in seconds: found, first and last message; null where
             there is no queue
  onroad     [(seconds, text)] of IsOnroad: at the start, after each change, and at the end
  asked      seconds, start_limit

The exit status is 0 once a report is written.
"""

from __future__ import annotations

import sys
from pathlib import Path

TYPE_CHECKING = False

# What it is made of is taken from beside it alone. Its bytecode is not kept: nobody compares that with what was sent.
sys.path.insert(0, str(Path(__file__).resolve().parent))
kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
if TYPE_CHECKING:
    from buildlib.device_scripts.supercombo_build_iqpilot import command
else:
    from supercombo_build_iqpilot import command
del sys.path[0]
sys.dont_write_bytecode = kept

if __name__ == "__main__":
    sys.exit(command.main(sys.argv[1:], __doc__))
