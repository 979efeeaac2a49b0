"""Checks of a captured jit: repeatable, not indifferent, finite, as the ONNX run directly, sane, where it should be."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .shared import BAD_ODOMETRY, DIVERGES, INDIFFERENT, NO_REPLAY, NOT_COMPILED, NOT_FINITE, WRONG_DEVICE, Failure, say

Floats = np.ndarray[Any, np.dtype[np.float32]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Outcome = dict[str, np.ndarray[Any, Any]]
"""What a run left: "out0", "out1", ... and, for a policy, every queue afterwards."""

ODOMETRY = ("pose", "wide_from_device_euler", "road_transform")
SEED, OTHER_SEED, WARM_SEED = 42, 43, 7
STEPS = 2
TOLERANCE = 1e-4
# What the localizer refuses: deviations at or below 1e-5, speeds over 200 m/s, rates over 10 rad/s.
LEAST_STD, MOST_SPEED, MOST_RATE = 1e-5, 200.0, 10.0


def capture(name: str, jit: Any, drive: Callable[[Any, int], Outcome]) -> Outcome:
    """Captures the jit on other inputs than those it is judged by, and returns what it gives for SEED."""
    started = time.monotonic()
    for _ in range(3):
        drive(jit, WARM_SEED)
    first = drive(jit, SEED)
    check_finite(name, first)
    check_same(name, first, drive(jit, SEED), "when run twice")
    check_other(name, first, drive(jit, OTHER_SEED))
    say(f"captured {name} in {time.monotonic() - started:.1f} s")
    return first


def check_same(name: str, expected: Outcome, got: Outcome, when: str) -> None:
    for part, values in expected.items():
        if got[part].shape != values.shape or not np.array_equal(got[part], values, equal_nan=True):
            raise Failure(
                NO_REPLAY, f"{name}: {part} differs {when}: expected the same bits, got {_gap(values, got[part])}"
            )


def check_other(name: str, one: Outcome, other: Outcome) -> None:
    for part, values in one.items():
        if np.array_equal(values, other[part]):
            raise Failure(INDIFFERENT, f"{name}: {part} is the same for other inputs: expected it to depend on them")


def check_finite(name: str, outcome: Outcome) -> None:
    for part, values in outcome.items():
        if bad := int(np.count_nonzero(~np.isfinite(values.astype(np.float32)))):
            raise Failure(
                NOT_FINITE, f"{name}: {part}: expected finite numbers, got {bad} NaN or infinite ones of {values.size}"
            )


def check_close(direct: Outcome, jit: Outcome, name: str = "run_policy") -> None:
    for part, values in direct.items():
        if not np.allclose(values, jit[part], rtol=TOLERANCE, atol=TOLERANCE):
            raise Failure(
                DIVERGES,
                f"{name}: {part} of the captured jit differs from a direct run of the ONNX: "
                f"expected within {TOLERANCE}, got {_gap(values, jit[part])}",
            )


def check_odometry(flat: Floats, slices: dict[str, slice]) -> None:
    """Pose, wide camera angles and road transform of one output: there, finite, deviations positive and sane.

    A slice holds means, then log deviations, unless the model gives `NAME_stds` itself.
    """
    problems = [f"output {name} is missing from output_slices" for name in ODOMETRY if name not in slices]
    if problems:
        raise Failure(BAD_ODOMETRY, *problems)
    means: dict[str, Floats] = {}
    stds: dict[str, Floats] = {}
    for name in ODOMETRY:
        values = flat[slices[name]]
        means[name] = values[: values.size // 2]
        if f"{name}_stds" in slices:
            stds[name] = flat[slices[f"{name}_stds"]]
        else:
            stds[name] = np.exp(np.minimum(values[values.size // 2 :], 11))
        if not stds[name].size:
            problems.append(f"output {name}: expected means and deviations, got {values.size} numbers")
        elif stds[name].min() <= LEAST_STD:
            problems.append(f"output {name}_stds: expected more than {LEAST_STD}, got {stds[name].min():.3g}")
    for name, values in (("pose", means["pose"]), ("pose_stds", stds["pose"] / np.float32(10))):
        for what, part, most in (("translation", values[:3], MOST_SPEED), ("rotation", values[3:], MOST_RATE)):
            if np.linalg.norm(part) > most:
                problems.append(
                    f"output {name}: expected a {what} norm of at most {most}, got {np.linalg.norm(part):.3g}"
                )
    if problems:
        raise Failure(BAD_ODOMETRY, *problems)


def _gap(expected: np.ndarray[Any, Any], got: np.ndarray[Any, Any]) -> str:
    if expected.shape != got.shape:
        return f"shape {got.shape} for {expected.shape}"
    gap = np.abs(expected.astype(np.float64) - got.astype(np.float64))
    return f"{int(np.count_nonzero(gap))} of {gap.size} numbers off, at most by {np.nanmax(gap):.3g}"


def open_device(name: str) -> None:
    """A Failure where the device is not here."""
    from tinygrad import Device

    try:
        Device[name]
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise Failure(NOT_COMPILED, f"device {name} cannot be opened here: {what}") from error


def check_device(name: str, jit: Any, expected: str) -> None:
    walk = _Devices()
    walk.dump(jit)
    # NPY is the host array that the runtime fills; no kernel runs there.
    found = sorted(walk.found - {"NPY"})
    if found != [expected.upper()]:
        raise Failure(
            WRONG_DEVICE,
            f"{name} was captured on {', '.join(found) or 'no device'}: expected {expected.upper()}; "
            "check DEV and WARP_DEV",
        )


class _Devices(pickle.Pickler):
    """Walks whatever a captured jit holds, in any tinygrad, and notes the devices of its buffers and programs."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=4)
        self.found: set[str] = set()

    def reducer_override(self, thing: Any) -> Any:
        kind = type(thing).__name__
        if kind in ("Buffer", "ProgramSpec", "Target") and thing.device:
            self.found.add(str(thing.device).partition(":")[0])
        return NotImplemented


class _Nowhere:
    def write(self, block: Any) -> int:
        return len(block)
