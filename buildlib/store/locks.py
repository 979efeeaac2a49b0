"""One build at a time in a checkout. The kernel frees the lock of a process that died."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from buildlib.errors import BuildLocked, StoreError


@contextlib.contextmanager
def exclusive(
    path: Path,
    purpose: str,
    *,
    wait: float,
    on_wait: Callable[[str], None] = lambda holder: None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[bool]:
    """Holds a lock file; waits up to `wait` seconds for another holder, telling on_wait once who it is.

    purpose: what others are shown ("doit publish:nopp"). stop: asked while waiting; True gives up.
    Yields True when the former holder died with it. Raises BuildLocked when the wait ends without it, StoreError where
    nothing can be written.
    """
    with _opened(path) as file:
        _acquire(file, path, wait, on_wait, stop)
        file.seek(0)
        died = file.read(1) != b""
        holder = {"pid": os.getpid(), "purpose": purpose, "since": time.strftime("%H:%M:%S")}
        try:
            file.truncate(0)
            file.write(json.dumps(holder).encode())
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            yield died
        finally:
            file.truncate(0)
            fcntl.flock(file, fcntl.LOCK_UN)


def _opened(path: Path) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+b", buffering=0)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot be written: {error.strerror or error}",
        where=str(path),
        remedy="builds need a checkout that can be written, and free space; `doit status` and `doit explain` do not",
    )


def _acquire(
    file: IO[bytes], path: Path, wait: float, on_wait: Callable[[str], None], stop: Callable[[], bool]
) -> None:
    deadline = time.monotonic() + wait
    told = False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(path)
            if not told:
                on_wait(holder)
                told = True
            if stop() or time.monotonic() >= deadline:
                raise BuildLocked(
                    f"another build holds this checkout: {holder}",
                    where=str(path),
                    remedy="let it end, or end it by its pid, then run doit again",
                ) from None
            time.sleep(0.1)
        else:
            return


def _holder(path: Path) -> str:
    try:
        told = json.loads(path.read_bytes())
        return f"{told['purpose']} (pid {told['pid']}, since {told['since']})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "a build that just started"
