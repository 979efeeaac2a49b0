"""A device that stands still in the middle of an install, so that a test can do in that moment what the world might."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Runs before the agent, in its process: the copy waits at its flush, with its bytes written and its name not yet taken.
HOOK = """
import os, time
def held(handle, flush=os.fsync, reached={reached!r}, go={go!r}, folder={folder!r}):
    name = os.readlink("/proc/self/fd/" + str(handle))
    if name.startswith(folder) and name.endswith(".installing"):
        os.close(os.open(reached, os.O_CREAT))
        for _ in range(3000):
            if os.path.exists(go):
                break
            time.sleep(0.02)
    flush(handle)
os.fsync = held
"""


@dataclass(frozen=True)
class HeldCopy:
    """reached: exists once a copy to the models waits. go: let it exist, and the copy goes on."""

    reached: Path
    go: Path
    copy: Path

    def wait(self) -> None:
        """Until a copy waits."""
        deadline = time.monotonic() + 60
        while not self.reached.exists():
            assert time.monotonic() < deadline, "no copy began"
            time.sleep(0.02)

    def release(self) -> None:
        """Lets the copy go on."""
        self.go.touch()


@contextlib.contextmanager
def held_copy(root: Path, name: str) -> Iterator[HeldCopy]:
    """Until the end, copies to a device's models wait. root: the device's. name: the artifact's."""
    python = root / "usr/local/venv/bin/python"
    kept = python.read_text()
    interpreter = kept.splitlines()[1].removeprefix("exec ").removesuffix(' "$@"')
    models = root / "data/media/0/models"
    signs = root.parent / "held copy"
    signs.mkdir()
    held = HeldCopy(signs / "reached", signs / "go", models / f".{name}.installing")
    hook = signs / "hook.py"
    hook.write_text(HOOK.format(reached=str(held.reached), go=str(held.go), folder=f"{models}/"))
    python.write_text(
        f'#!/bin/sh\n[ "$4" = -c ] || exec {interpreter} "$@"\ncode="$(cat "{hook}")\n$5"; shift 5\n'
        f'exec {interpreter} -I -S -B -c "$code" "$@"\n'
    )
    try:
        yield held
    finally:
        held.release()
        python.write_text(kept)
        for sign in signs.iterdir():
            sign.unlink()
        signs.rmdir()
