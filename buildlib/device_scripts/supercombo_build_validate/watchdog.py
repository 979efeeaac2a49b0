"""The watchdog: starts the child, listens to it, and says how it ended."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from .findings import found
from .frame import resident
from .record import Watch, judge_run


class Stopped(Exception):
    """SIGTERM or SIGINT."""


def watch(options: argparse.Namespace, arguments: list[str], script: str) -> Watch:
    """Runs the child, the same script, to its end, whichever it is."""
    seen = Watch(options)
    reader, writer = os.pipe()
    command = [sys.executable, str(Path(script).resolve()), *arguments, "--child", str(writer)]
    child = subprocess.Popen(command, pass_fds=(writer,), stdin=subprocess.DEVNULL)
    os.close(writer)
    try:
        listen(seen, child.pid, reader)
    except Stopped as stop:
        seen.add(found("stopped", f"ended from outside by {stop}", "to run to its end", seen.where()))
    finally:
        os.close(reader)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5 if seen.ended else 0.2)
        if child.returncode is None:
            child.kill()
        child.wait()
    if not seen.ended and not any(one["code"] in ("frozen", "stopped") for one in seen.findings):
        got = f"{how(child.returncode)} in {seen.where()}"
        seen.add(found("died", "the process died", "to live as long as it is fed", got))
    elif seen.ended and child.returncode:
        seen.add(found("died", "the process died while it ended", "exit status 0", how(child.returncode)))
    judge_run(seen)
    return seen


def listen(seen: Watch, pid: int, reader: int) -> None:
    """Until the child closes the pipe, or is silent for too long: then it is asked where it hangs, and ended."""
    pending = b""
    limits = {"load": seen.options.load_limit, "run": seen.options.stall_limit}
    heard = looked = time.monotonic()
    while True:
        now = time.monotonic()
        silence = limits[seen.phase] - (now - heard)
        if silence <= 0:
            seen.add(
                found("frozen", "no sign of life", f"one within {limits[seen.phase]:g} s", f"none in {seen.where()}")
            )
            # The child writes the stacks of all its threads into the log, even from inside a kernel.
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1)
            return
        ready, _, _ = select.select([reader], [], [], min(silence, 0.5))
        if ready:
            block = os.read(reader, 65536)
            if not block:
                return
            heard = time.monotonic()
            *lines, pending = (pending + block).split(b"\n")
            for line in lines:
                seen.hear(json.loads(line))
        if sys.platform != "linux" and now - looked >= 1:
            looked = now
            if (size := resident(pid)) and seen.frames:
                seen.memory.append((len(seen.frames), size))


def how(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    with contextlib.suppress(ValueError):
        return f"signal {-code} ({signal.Signals(-code).name})"
    return f"signal {-code}"
