"""What the compile scripts share: exit statuses, sizes, files that are whole, and how a run ends."""

from __future__ import annotations

import argparse
import gc
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

# Exit statuses.
BAD_ONNX = 10  # unreadable, truncated, or no ONNX at all
BAD_INPUTS = 11  # the model's inputs are not a supercombo's
BAD_METADATA = 12  # output_slices missing, unsafe or not fitting the output
NOT_COMPILED = 13  # tinygrad raised
NOT_FINITE = 20  # NaN or infinity in the output
BAD_ODOMETRY = 21  # pose, road transform or wide camera angles missing or senseless
DIVERGES = 22  # the captured jit and a direct run of the ONNX disagree
INDIFFERENT = 23  # other inputs give the same output
NO_REPLAY = 24  # the pickled jit does not give the same bits
WRONG_DEVICE = 25  # captured on another device than expected
BAD_WARP = 26  # a camera's warp is not the projection it should be
NOT_WRITTEN = 30  # the output could not be written


class Failure(Exception):
    """A check that failed: its exit status and its text, one problem a line."""

    def __init__(self, status: int, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.status = status


def say(text: str) -> None:
    print(text, flush=True)


def read_size(text: str) -> tuple[int, int]:
    """WIDTHxHEIGHT in pixels."""
    width, _, height = text.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise argparse.ArgumentTypeError(f"expected WIDTHxHEIGHT, got {text!r}")
    if int(width) % 2 or int(height) % 2:
        raise argparse.ArgumentTypeError(f"expected even sizes (NV12), got {text!r}")
    return int(width), int(height)


def write(path: Path, value: Any) -> None:
    with path.open("wb") as file:
        pickle.dump(value, file, protocol=4)
        file.flush()
        os.fsync(file.fileno())


def beside(path: Path, ending: str = ".part") -> Path:
    return path.with_name(path.name + ending)


def sync_directory(path: Path) -> None:
    """Makes a rename last. Not every system lets a directory be opened; there the rename is all there is."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def proven(script: str, arguments: list[str], outputs: list[Path], make: Callable[[], None]) -> int:
    """Makes outputs that exist only once a fresh process has replayed them: 0, or the exit status of the replay.

    make: writes each output beside its place, and what the replay compares, beside the last one. They take their
    places in the order given.
    """
    last = beside(outputs[-1])
    scratch = [*map(beside, outputs), beside(last, ".outcomes")]
    try:
        # An older output must not be taken for the one that this run failed to make.
        for path in (*outputs, *scratch):
            path.unlink(missing_ok=True)
        last.open("wb").close()
    except OSError as error:
        raise Failure(NOT_WRITTEN, f"{outputs[-1]} cannot be written: {error.strerror}") from None
    try:
        make()
        gc.collect()
        again = subprocess.run([sys.executable, str(Path(script).resolve()), *arguments, "--replay"], check=False)
        if again.returncode:
            return again.returncode if again.returncode > 0 else NO_REPLAY
        for path in outputs:
            beside(path).replace(path)
            sync_directory(path.parent)
    finally:
        for path in scratch:
            path.unlink(missing_ok=True)
    return 0


def stop(number: int, _frame: Any) -> NoReturn:
    raise SystemExit(128 + number)


def ending(work: Callable[[], int]) -> int:
    """The exit status of `work`; whatever it raises is said on stderr, and SIGTERM ends it."""
    signal.signal(signal.SIGTERM, stop)
    try:
        return work()
    except Failure as failure:
        for line in str(failure).splitlines():
            print(f"error: {line}", file=sys.stderr, flush=True)
        return failure.status
    except Exception as error:  # noqa: BLE001 - whatever tinygrad raises ends here, with its traceback in the log
        traceback.print_exc()
        first = (str(error).strip() or "no message").splitlines()[0]
        print(f"error: the compile failed: {type(error).__name__}: {first}", file=sys.stderr, flush=True)
        return NOT_COMPILED
