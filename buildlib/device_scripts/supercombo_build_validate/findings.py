"""What a harness finds: codes and exit statuses, and how a finding is said."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

# A finding's code -> exit status; the first of these that was found is the verdict.
STATUS = {
    "stopped": 30,  # ended from outside: says nothing about the artifact
    "no_artifact": 10,  # the file is missing or cannot be read
    "other_bytes": 11,  # the file is not the one that shall be tested
    "moved": 12,  # the file under the path changed while it ran
    "not_loaded": 13,  # it cannot be unpickled here
    "contract": 14,  # a key, camera, metadata or frame skip is not what the runtime asks for
    "died": 15,  # the process ended by itself
    "frozen": 16,  # no sign of life for too long
    "warp_failed": 17,  # a camera's warp raised
    "policy_failed": 18,  # run_policy raised
    "not_finite": 20,  # NaN or infinity in an output
    "bad_odometry": 21,  # pose, wide camera angles or road transform senseless
    "not_repeatable": 22,  # same in, other out
    "wrong_picture": 27,  # a warp is another projection than the one asked for
    "reads_padding": 24,  # the padding of a frame shows in the picture
    "indifferent": 23,  # other in, same out
    "leaks": 25,  # memory does not stay steady
    "too_slow": 26,  # slower than real time, where that is asked for
    "broken": 40,  # the harness itself failed
}

Message = dict[str, Any]
Tell = Callable[[Message], None]
Use = Callable[[Any, argparse.Namespace, Tell], None]
"""Drives what was unpickled; findings go to Tell."""


class Failure(Exception):
    """A finding after which nothing more can be tried."""

    def __init__(self, code: str, what: str, expected: str, got: str) -> None:
        super().__init__(what)
        self.finding = {"code": code, "what": what, "expected": expected, "got": got}


def found(code: str, what: str, expected: str, got: str) -> Message:
    return {"code": code, "what": what, "expected": expected, "got": got}


def indifferent(what: str) -> Message:
    return found("indifferent", f"{what} changes nothing", "other in, other out", "the same bits")


def gap(one: Any, other: Any) -> str:
    import numpy as np

    if one.shape != other.shape:
        return f"shape {other.shape} for {one.shape}"
    off = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return f"{int(np.count_nonzero(off))} of {off.size} numbers differ, at most by {np.nanmax(off):.3g}"


def said(error: BaseException) -> str:
    lines = (str(error).strip() or "no message").splitlines()
    return f"{type(error).__name__}: {lines[0]}"


def name_of(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
