"""Jits with one fault each, around a genuine one. Imported by the process that runs the artifact, so stdlib first."""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any


class Faulty:
    """Calls the genuine jit after its fault."""

    def __init__(self, jit: Any) -> None:
        self.jit = jit
        self.calls = 0

    def __call__(self, **inputs: Any) -> Any:
        self.calls += 1
        self.fault()
        return self.after(self.jit(**inputs))

    @property
    def captured(self) -> Any:
        return self.jit.captured

    def fault(self) -> None:
        pass

    def after(self, answer: Any) -> Any:
        return answer


class DiesAtSecond3(Faulty):
    """Three seconds of the drive, which comes after some fifty calls of the rehearsal."""

    def fault(self) -> None:
        self.started = getattr(self, "started", None)
        if self.calls > 50:
            self.started = self.started or time.monotonic()
        if self.started and time.monotonic() - self.started > 3:
            ctypes.string_at(0)


class Exits(Faulty):
    """As a runtime's own panic does: the exit status of a good end."""

    def fault(self) -> None:
        if self.calls > 50:
            os._exit(0)


class Freezes(Faulty):
    """In native code, with the interpreter's lock held: no Python of this process runs any more."""

    def fault(self) -> None:
        if self.calls > 50:
            ctypes.PyDLL(None).sleep(3600)


class FreezesAtOnce(Faulty):
    def fault(self) -> None:
        if self.calls > 3:
            ctypes.PyDLL(None).sleep(3600)


class Leaks(Faulty):
    def fault(self) -> None:
        self.kept = [*getattr(self, "kept", ()), os.urandom(300_000)]


class LeaksOnDevice(Faulty):
    def fault(self) -> None:
        import numpy as np
        from tinygrad import Device, Tensor

        kept = Tensor(np.zeros(30_000, dtype=np.uint8), device=Device.DEFAULT).contiguous().realize()
        self.kept = [*getattr(self, "kept", ()), kept]


class Slow(Faulty):
    """Slower than twenty frames a second."""

    def fault(self) -> None:
        if self.calls > 50:
            time.sleep(0.1)


class Drifts(Faulty):
    """Gives other answers after a while: state of its own between the frames."""

    def after(self, answer: Any) -> Any:
        return (answer[0] + (1 if self.calls > 50 else 0),)


class StandsStill(Faulty):
    def after(self, answer: Any) -> Any:
        if self.calls == 51:
            self.first = answer[0].clone().realize()
        return (self.first if self.calls > 50 else answer[0],)


class Mirrors(Faulty):
    def after(self, answer: Any) -> Any:
        return answer.flip(3).contiguous().realize()


class SwapsViews(Faulty):
    def after(self, answer: Any) -> Any:
        return answer.flip(0).contiguous().realize()


class Wild(Faulty):
    """A pose of hundreds of metres a second."""

    def after(self, answer: Any) -> Any:
        return (answer[0] + 300,)


class Poisons(Faulty):
    """NaN in all of the output from a call on; for a jit that gives one tensor."""

    def after(self, answer: Any) -> Any:
        return answer * float("nan") if self.calls > 50 else answer


class Raises(Faulty):
    def fault(self) -> None:
        if self.calls > 50:
            raise RuntimeError("kernel launch failed")


def main(source: str, output: str, *faults: str) -> None:
    """faults: `KEY=CLASS` puts a class around a jit; `KEY=KEY` puts another jit in its place; `KEY=` takes it away.

    A key is `run_policy`, or a camera as `64x48`.
    """

    def key(name: str) -> Any:
        width, _, height = name.partition("x")
        return (int(width), int(height)) if width.isdecimal() else name

    with Path(source).open("rb") as file:
        artifact = pickle.load(file)
    whole = dict(artifact)
    for fault in faults:
        name, _, what = fault.partition("=")
        if not what:
            del artifact[key(name)]
        elif what in globals():
            artifact[key(name)] = globals()[what](whole[key(name)])
        else:
            artifact[key(name)] = whole[key(what)]
    with Path(output).open("wb") as file:
        pickle.dump(artifact, file, protocol=4)


if __name__ == "__main__":
    # What is pickled must name this module, not __main__.
    import faulty

    faulty.main(*sys.argv[1:])
