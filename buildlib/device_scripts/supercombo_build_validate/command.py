"""The command line of the harness."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from .child import child_main
from .findings import STATUS, Use
from .record import write_report
from .watchdog import Stopped, watch


def main(arguments: list[str], options: argparse.Namespace, use: Use, script: str) -> int:
    """The exit status. script: this very program, which is started anew as the child."""
    if options.child is not None:
        return child_main(options, use)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    seen = watch(options, arguments, script)
    report = seen.report()
    write_report(options.report, report)
    for finding in report["findings"]:
        print(f"error: {finding['what']}: expected {finding['expected']}, got {finding['got']}", file=sys.stderr)
    if report["findings"]:
        return STATUS[report["verdict"]]
    numbers = report["numbers"]
    print(
        f"validated {options.artifact}: {numbers['frames']} frames, median {numbers['median_ms']:.1f} ms, "
        f"p99 {numbers['p99_ms']:.1f} ms, {numbers['late']} late",
        flush=True,
    )
    return 0


def stop(number: int, _frame: Any) -> NoReturn:
    raise Stopped(signal.Signals(number).name)


def parse(arguments: list[str], about: str | None, roles: tuple[str, ...] = ()) -> argparse.Namespace:
    """The options. roles: that an artifact of one part may have."""

    def size(text: str) -> tuple[int, int]:
        width, _, height = text.lower().partition("x")
        if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
            raise argparse.ArgumentTypeError(f"expected WIDTHxHEIGHT, got {text!r}")
        return int(width), int(height)

    def positive(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < 1e6:
            raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
        return value

    def whole(text: str) -> int:
        if not text.isdecimal() or not int(text):
            raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
        return int(text)

    def digest(text: str) -> str:
        if len(text) != 64 or not set(text.lower()) <= set("0123456789abcdef"):
            raise argparse.ArgumentTypeError(f"expected 64 hex digits, got {text!r}")
        return text.lower()

    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", type=Path)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--seconds", type=positive, help="so many seconds of frames")
    length.add_argument("--frames", type=whole)
    parser.add_argument("--rate", type=positive, default=20.0, help="frames a second")
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--require-realtime", action="store_true", help="slower than the rate is a refusal")
    parser.add_argument("--sha256", type=digest, help="of the artifact that shall be tested")
    parser.add_argument("--cameras", type=size, nargs="+", help="that must be there; all in the artifact by default")
    parser.add_argument("--frame-skip", type=whole, help="the runtime's; the artifact's own by default")
    if roles:
        parser.add_argument("--role", choices=roles, help="of an artifact that holds one part only")
    parser.add_argument("--stall-limit", type=positive, default=10.0, help="seconds of silence while it runs")
    parser.add_argument("--load-limit", type=positive, default=120.0, help="seconds of silence until it runs")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.frames = options.frames or max(1, round(options.seconds * options.rate))
    return options
