"""The command line of compile_supercombo.py."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from .artifact import compile_artifact, replay
from .shared import NOT_WRITTEN, Failure, beside, proven, read_size, say


def main(arguments: list[str], script: str, about: str | None) -> int:
    """The exit status. script: the program, which is started anew for the replay; about: what its help says."""
    options = parse(arguments, about)
    part = beside(options.output)
    if options.replay:
        replay(options, part)
        return 0
    if options.output.resolve() == options.onnx.resolve():
        raise Failure(NOT_WRITTEN, f"--output is the ONNX itself: {options.onnx}")
    status = proven(script, arguments, [options.output], partial(compile_artifact, options, part))
    if status:
        return status
    say("replayed in a fresh process: outputs and queues equal bit by bit, warps as numpy's")
    say(f"Saved JITs to {options.output} ({options.output.stat().st_size / 1e6:.2f} MB)")
    return 0


def parse(arguments: list[str], about: str | None) -> argparse.Namespace:
    def positive(text: str) -> int:
        if not text.isdecimal() or not int(text):
            raise argparse.ArgumentTypeError(f"expected a number of frames from 1, got {text!r}")
        return int(text)

    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-size", type=read_size, required=True, help="picture that the model sees, 512x256")
    parser.add_argument("--camera-resolutions", type=read_size, nargs="+", required=True, help="1344x760 1928x1208")
    parser.add_argument("--onnx", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--frame-skip", type=positive, required=True, help="camera frames for each model step")
    parser.add_argument("--expected-device", default="QCOM", help="the device that must come out: QCOM, CPU")
    parser.add_argument("--expected-warp-device", help="where it is not the same (external GPU)")
    parser.add_argument("--replay", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)
