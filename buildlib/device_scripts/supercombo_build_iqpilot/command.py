"""The command line of validate_iqpilot.py."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from .files import write_report
from .harness import Stopped, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def parse(arguments: list[str], about: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("harness")
    parser.add_argument("--speed", default="15.0", help="given to the harness")
    parser.add_argument("--artifact", nargs=2, action="append", required=True, metavar=("PATH", "SHA256"))
    parser.add_argument("--models", required=True, help="where artifacts are installed")
    parser.add_argument("--params", required=True, help="one parameter a file")
    parser.add_argument("--shared", default="/dev/shm", help="where message queues are")  # noqa: S108
    parser.add_argument("--directory", help="to run the harness in")
    parser.add_argument("--seconds", type=float, default=10.0, help="that the model shall live with the artifact")
    parser.add_argument("--start-limit", type=float, default=90.0, help="seconds until it must have taken it")
    parser.add_argument("--quiet-start", type=float, default=30.0, help="seconds of a load where no messages tell")
    parser.add_argument("--report", required=True)
    return parser.parse_args(arguments)


def told_to_stop(number: int, _frame: Any) -> NoReturn:
    raise Stopped(signal.Signals(number).name)


def main(arguments: list[str], about: str | None) -> int:
    """The exit status. about: what the help says."""
    options = parse(arguments, about)
    if not os.path.isdir("/proc/self"):
        print("error: this machine has no /proc: nobody could say which bytes ran", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told_to_stop)
    seen = run(options)
    write_report(options.report, seen.report())
    print(f"watched {len(seen.models())} model processes; the harness ended {seen.harness['ended']}", flush=True)
    return 0
