#!/usr/bin/env python3
"""Compiles the ONNX of a split driving model (kinds vision_policy, vision_multi_policy) with tinygrad.

    compile_split.py --onnx ROLE=PATH [ROLE=PATH ...] --output PATH [--metadata-output PATH]
                     [--model-size 512x256] [--expected-device QCOM]

Roles: vision with policy, or vision with on_policy and off_policy. Runs on the device beside `compile_supercombo.py`,
whose checks and exit statuses it shares: both lie in one directory under these names.

One role gives what stock's compile3 gives: one pickle of a captured TinyJit, called with the ONNX's own inputs by
keyword -> (1, N) float32. Images are uint8 on the device, all else float32 on the host. Such a pickle holds no
metadata; --metadata-output writes it beside, as a plain dict. All roles of a model at once give one pickle of a dict:

  metadata   {role: {output_slices, input_shapes, output_shapes, model_checkpoint}}
  ROLE       the captured TinyJit of that role, for each

What is renamed to --output was loaded by a fresh process before and gave the same bits there. On any failure there is
no output, and the last line of stderr is `error: WHAT: expected X, got Y`.
"""

from __future__ import annotations

import argparse
import gc
import os
import pickle
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from buildlib.device_scripts import compile_supercombo as shared
    from buildlib.device_scripts.compile_supercombo import Failure, Outcome, say
else:
    import compile_supercombo as shared
    from compile_supercombo import Failure, Outcome, say

import numpy as np

ROLE_SETS = (("vision", "policy"), ("vision", "on_policy", "off_policy"))
ROLES = ("vision", "policy", "on_policy", "off_policy")
IMAGE, FLOAT = ("uchar", "uint8"), ("half", "float16", "float", "float32")
Shape = tuple[int, ...]
Form = dict[str, tuple[tuple[str, ...], tuple[int | None, ...]]]
"""Input name -> (dtypes as some tinygrad calls them, shape; None is any size)."""


def role_form(role: str, model_size: tuple[int, int]) -> Form:
    """What the runtime feeds to a role."""
    if role == "vision":
        image = (1, 12, model_size[1] // 2, model_size[0] // 2)
        return {"img": (IMAGE, image), "big_img": (IMAGE, image)}
    return {
        "desire_pulse": (FLOAT, (1, 25, 8)),
        "features_buffer": (FLOAT, (1, None, 512)),
        "traffic_convention": (FLOAT, (1, 2)),
    }


def check_inputs(role: str, specs: dict[str, Any], model_size: tuple[int, int]) -> dict[str, Shape]:
    """Shapes by name, or a Failure that names every missing, misshapen, mistyped or unknown input."""
    form = role_form(role, model_size)
    problems = [f"{role}: input {name} is missing" for name in form if name not in specs]
    shapes: dict[str, Shape] = {}
    for name, spec in specs.items():
        kind = str(spec.dtype).removeprefix("dtypes.")
        shape = tuple(spec.shape)
        known = name in form
        kinds, want = form.get(name, (FLOAT, (None,) * len(shape)))
        if not known and role == "vision":
            problems.append(f"{role}: extra input {name} cannot be fed: expected only img and big_img")
            continue
        if kind not in kinds:
            extra = "" if known else "extra "
            problems.append(f"{role}: {extra}input {name}: expected dtype {' or '.join(kinds[1::2])}, got {kind}")
        if not all(isinstance(size, int) and size > 0 for size in shape):
            problems.append(f"{role}: input {name}: expected fixed sizes, got {shape}")
        elif len(shape) != len(want) or any(w not in (None, s) for w, s in zip(want, shape, strict=True)):
            text = ", ".join("any" if size is None else str(size) for size in want)
            problems.append(f"{role}: input {name}: expected shape ({text}), got {shape}")
        else:
            shapes[name] = shape
            if not known:
                say(f"{role}: extra input {name} {shape} is fed by its own name")
    if problems:
        raise Failure(shared.BAD_INPUTS, *problems)
    return shapes


def check_slices(role: str, slices: dict[str, slice], flat: np.ndarray[Any, Any]) -> None:
    end = max((part.stop for part in slices.values()), default=0)
    if not 0 < end <= flat.size:
        raise Failure(
            shared.BAD_METADATA,
            f"{role}: output_slices reach to {end}: expected at most the output's size, got {flat.size}",
        )
    if role == "vision":
        state = slices.get("hidden_state")
        if state is None or state.stop - state.start != 512:
            got = "no such slice" if state is None else str(state.stop - state.start)
            raise Failure(
                shared.BAD_METADATA, f"{role}: output_slices: expected hidden_state of 512 numbers, got {got}"
            )


def make_run(model: Any) -> Any:
    """run(**inputs of the ONNX) -> (1, N) float32."""
    from tinygrad import Device

    def run(**inputs: Any) -> Any:
        moved = {name: tensor.to(Device.DEFAULT) for name, tensor in inputs.items()}
        return next(iter(model(moved).values())).cast("float32")

    return run


def drive(shapes: dict[str, Shape], run: Any, seed: int | None) -> Outcome:
    """Two calls with inputs made from the seed, all zero for None."""
    from tinygrad import Device, Tensor

    random = np.random.default_rng(seed)
    images = [name for name in shapes if name in ("img", "big_img")]
    # The runtime writes into these arrays in place, frame by frame; so do we.
    hosts = {name: np.zeros(shape, np.float32) for name, shape in shapes.items() if name not in images}
    tensors = {name: Tensor(host, device="NPY").realize() for name, host in hosts.items()}
    outcome: Outcome = {}
    for step in range(shared.STEPS):
        for host in hosts.values():
            host[:] = 0 if seed is None else random.standard_normal(host.shape, dtype=np.float32)
        for name in images:
            shape = shapes[name]
            picture = np.zeros(shape, np.uint8) if seed is None else random.integers(0, 256, shape, dtype=np.uint8)
            tensors[name] = Tensor(picture, device=Device.DEFAULT).contiguous().realize()
        outcome[f"out{step}"] = np.array(run(**tensors).numpy())
    return outcome


def check_each_input(role: str, shapes: dict[str, Shape], jit: Any) -> None:
    """Every input counts: one that a capture froze would keep the values that it had there."""
    from tinygrad import Device, Tensor

    def answer(changed: str | None) -> np.ndarray[Any, Any]:
        inputs = {}
        for name, shape in shapes.items():
            random = np.random.default_rng([len(name), *name.encode(), int(name == changed)])
            if name in ("img", "big_img"):
                value = random.integers(0, 256, shape, dtype=np.uint8)
                inputs[name] = Tensor(value, device=Device.DEFAULT).contiguous().realize()
            else:
                inputs[name] = Tensor(random.standard_normal(shape, dtype=np.float32), device="NPY").realize()
        return np.array(jit(**inputs).numpy())

    plain = answer(None)
    for name in shapes:
        if np.array_equal(plain, answer(name)):
            raise Failure(
                shared.INDIFFERENT, f"{role}: the output is the same for another {name}: expected it to depend on it"
            )


def compile_role(role: str, path: Path, options: argparse.Namespace) -> tuple[Any, dict[str, Any], Outcome]:
    """(captured jit, metadata, what it gives for the seed), all checks passed."""
    from tinygrad import Device, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    properties = shared.read_properties(path)
    slices = shared.read_slices(properties.get("output_slices"))
    say(f"compiling {role} {path} on {Device.DEFAULT}")
    try:
        model = OnnxRunner(path)
    except Exception as error:
        raise Failure(shared.BAD_ONNX, f"{path} cannot be read: {type(error).__name__}: {error}") from error
    shapes = check_inputs(role, dict(model.graph_inputs), options.model_size)
    output = next(iter(model.graph_outputs))
    # The direct run has a runner of its own: a runner remembers shapes and indices that it computed from its inputs.
    direct = drive(shapes, make_run(OnnxRunner(path)), shared.SEED)
    check_slices(role, slices, direct["out0"])
    shared.check_finite(f"{role} run directly", direct)
    jit = TinyJit(make_run(model), prune=True)
    outcome = shared.capture(role, jit, partial(drive, shapes))
    shared.check_close(direct, outcome, role)
    check_each_input(role, shapes, jit)
    rest = drive(shapes, jit, None)
    shared.check_finite(f"{role} at rest", rest)
    if any(name in slices for name in shared.ODOMETRY):
        shared.check_odometry(rest["out0"].reshape(-1), slices)
    shared.check_device(role, jit, options.expected_device)
    metadata = {
        "model_checkpoint": properties.get("model_checkpoint"),
        "output_slices": slices,
        "input_shapes": shapes,
        "output_shapes": {output: tuple(direct["out0"].shape)},
    }
    return jit, metadata, outcome


def compile_all(options: argparse.Namespace, part: Path) -> None:
    from tinygrad import Device

    try:
        Device[Device.DEFAULT]
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise Failure(shared.NOT_COMPILED, f"device {Device.DEFAULT} cannot be opened here: {what}") from error
    made = {role: compile_role(role, path, options) for role, path in options.onnx.items()}
    metadata = {role: about for role, (_, about, _) in made.items()}
    if len(made) == 1:
        ((root, about, _),) = made.values()
    else:
        about = metadata
        root = {"metadata": metadata, **{role: jit for role, (jit, _, _) in made.items()}}
    arrays = {f"{role}/{key}": value for role, (_, _, out) in made.items() for key, value in out.items()}
    try:
        write(part, root)
        if options.metadata_output:
            write(beside(options.metadata_output), about)
        # Shapes too: a bare jit does not tell them.
        shapes = str({role: one["input_shapes"] for role, one in metadata.items()})
        with beside(part, ".outcomes").open("wb") as file:
            np.savez(file, shapes=np.array([shapes]), **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise Failure(shared.NOT_WRITTEN, f"{options.output} cannot be written: {error.strerror or error}") from None


def write(path: Path, value: Any) -> None:
    with path.open("wb") as file:
        pickle.dump(value, file, protocol=4)
        file.flush()
        os.fsync(file.fileno())


def beside(path: Path, ending: str = ".part") -> Path:
    return path.with_name(path.name + ending)


def replay(options: argparse.Namespace, part: Path) -> None:
    """In a fresh process: what was pickled loads, and gives the same bits."""
    import ast

    with np.load(beside(part, ".outcomes")) as saved:
        shapes: dict[str, dict[str, Shape]] = ast.literal_eval(str(saved["shapes"][0]))
        outcomes: dict[str, Outcome] = {role: {} for role in shapes}
        for key in saved.files:
            if key != "shapes":
                role, _, what = key.partition("/")
                outcomes[role][what] = saved[key]
    with part.open("rb") as file:
        root = pickle.load(file)  # noqa: S301 - written by the parent process a moment ago
    for role, expected in outcomes.items():
        jit = root[role] if isinstance(root, dict) else root
        again = drive(shapes[role], jit, shared.SEED)
        shared.check_same(role, expected, again, "after a pickle round trip")
        shared.check_other(role, again, drive(shapes[role], jit, shared.OTHER_SEED))


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    part = beside(options.output)
    if options.replay:
        replay(options, part)
        return 0
    outputs = [path for path in (options.metadata_output, options.output) if path]
    scratch = [*map(beside, outputs), beside(part, ".outcomes")]
    sources = {path.resolve() for path in options.onnx.values()}
    if overwritten := [path for path in outputs if path.resolve() in sources]:
        raise Failure(shared.NOT_WRITTEN, f"an output is an ONNX itself: {overwritten[0]}")
    try:
        # An older output must not be taken for the one that this run failed to make.
        for path in (*outputs, *scratch):
            path.unlink(missing_ok=True)
        part.open("wb").close()
    except OSError as error:
        raise Failure(shared.NOT_WRITTEN, f"{options.output} cannot be written: {error.strerror}") from None
    try:
        compile_all(options, part)
        gc.collect()
        again = subprocess.run([sys.executable, str(Path(__file__).resolve()), *arguments, "--replay"], check=False)
        if again.returncode:
            return again.returncode if again.returncode > 0 else shared.NO_REPLAY
        for path in outputs:  # metadata first: the artifact is what others wait for
            beside(path).replace(path)
            shared.sync_directory(path.parent)
    finally:
        for path in scratch:
            path.unlink(missing_ok=True)
    say("replayed in a fresh process: outputs equal bit by bit")
    say(f"Saved JITs to {options.output} ({options.output.stat().st_size / 1e6:.2f} MB)")
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    def source(text: str) -> tuple[str, Path]:
        role, equals, path = text.partition("=")
        if role not in ROLES or not equals or not path:
            raise argparse.ArgumentTypeError(f"expected ROLE=PATH with a role of {', '.join(ROLES)}, got {text!r}")
        return role, Path(path)

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onnx", type=source, nargs="+", required=True, help="ROLE=PATH, one or all of a model")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--metadata-output", type=Path, help="output_slices and shapes, as a pickled dict")
    parser.add_argument("--model-size", type=shared.read_size, default=(512, 256), help="picture that the model sees")
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


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, shared.stop)
    sys.exit(shared.ending(partial(main, sys.argv[1:])))
