"""The command line of compile_split.py."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from .shared import NOT_WRITTEN, Failure, beside, proven, read_size, say
from .split_artifact import compile_all, replay
from .split_inputs import ROLE_SETS, ROLES


def main(arguments: list[str], script: str, about: str | None) -> int:
    """The exit status. script: the program, which is started anew for the replay; about: what its help says."""
    options = parse(arguments, about)
    part = beside(options.output)
    if options.replay:
        replay(options, part)
        return 0
    # Metadata first: the artifact is what others wait for.
    outputs = [path for path in (options.metadata_output, options.output) if path]
    sources = {path.resolve() for path in options.onnx.values()}
    if overwritten := [path for path in outputs if path.resolve() in sources]:
        raise Failure(NOT_WRITTEN, f"an output is an ONNX itself: {overwritten[0]}")
    status = proven(script, arguments, outputs, partial(compile_all, options, part))
    if status:
        return status
    say("replayed in a fresh process: outputs equal bit by bit")
    say(f"Saved JITs to {options.output} ({options.output.stat().st_size / 1e6:.2f} MB)")
    return 0


def parse(arguments: list[str], about: str | None) -> argparse.Namespace:
    def source(text: str) -> tuple[str, Path]:
        role, equals, path = text.partition("=")
        if role not in ROLES or not equals or not path:
            raise argparse.ArgumentTypeError(f"expected ROLE=PATH with a role of {', '.join(ROLES)}, got {text!r}")
        return role, Path(path)

    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onnx", type=source, nargs="+", required=True, help="ROLE=PATH, one or all of a model")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--metadata-output", type=Path, help="output_slices and shapes, as a pickled dict")
    parser.add_argument("--model-size", type=read_size, default=(512, 256), help="picture that the model sees")
    parser.add_argument("--expected-device", default="QCOM", help="the device that must come out: QCOM, CPU")
    parser.add_argument("--replay", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    roles = [role for role, _ in options.onnx]
    whole = [set(roles) == set(one) and len(roles) == len(one) for one in ROLE_SETS]
    if len(roles) > 1 and not any(whole):
        sets = " or ".join(", ".join(one) for one in ROLE_SETS)
        parser.error(f"--onnx: expected one role, or {sets}, got {', '.join(roles)}")
    options.onnx = dict(sorted(options.onnx, key=lambda one: ROLES.index(one[0])))
    return options
