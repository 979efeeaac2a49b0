"""The harness: started as the guide does, watched, and ended when the model has lived long enough."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time

from .processes import stat_of
from .watch import LOOK_ROUND, Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOOK = 0.02  # at known processes: while an artifact is read, its file is open
LONGEST_STOP = 8.0
HURRIED_STOP = 2.0
ENOUGH_OF_ANOTHER = 5.0
"""Seconds of a run with another model: time for its signs to be seen, as the verdict stands."""


class Stopped(Exception):
    """SIGTERM or SIGINT."""


def run(options: argparse.Namespace) -> Watch:
    """Starts the harness, watches it, ends it when the model has lived long enough."""
    seen = Watch(options)
    seen.look_at_parameters()
    harness = start(options)
    seen.harness_pid = harness.pid
    began = time.monotonic()
    ended, patience = "stopped", LONGEST_STOP
    try:
        while harness.poll() is None and not long_enough(seen, options):
            seen.look_round()
            until = time.monotonic() + LOOK_ROUND
            while time.monotonic() < until and harness.poll() is None:
                seen.look()
                time.sleep(LOOK)
        if harness.poll() is not None:
            ended = "by itself"
        seen.look_round()
        seen.look()
    except Stopped:
        ended, patience = "told", HURRIED_STOP
    seen.harness["seconds"] = round(time.monotonic() - began, 3)
    if ended != "by itself" and not stop(harness, seen, patience):
        ended = "killed" if ended == "stopped" else ended
    seen.harness.update(exit=harness.returncode, ended=ended)
    return seen


def long_enough(seen: Watch, options: argparse.Namespace) -> bool:
    """True when the run has shown what it can: it lived its time, died, never took the artifact, or took another."""
    since = seen.working()
    if since is None and seen.now() > float(options.start_limit):
        return True
    if since is not None and seen.now() - since >= float(options.seconds):
        return True
    if seen.other_since is not None and seen.now() - seen.other_since >= ENOUGH_OF_ANOTHER:
        return True
    holders = [model for model in seen.models() if model.holds]
    # A dead model is not waited for; the harness may have words to say about it.
    return bool(holders) and all(model.ended is not None and seen.now() - model.ended > 2.0 for model in holders)


def start(options: argparse.Namespace) -> subprocess.Popen[bytes]:
    """The harness as the guide starts it: from openpilot's directory, as the device's own user."""
    environment = dict(os.environ)
    owner: dict[str, Any] = {}
    status = os.stat(options.params)
    if os.geteuid() == 0 and status.st_uid != 0:
        import pwd

        owner = {"user": status.st_uid, "group": status.st_gid, "extra_groups": []}
        for name in ("XDG_CACHE_HOME", "UV_CACHE_DIR", "TMPDIR"):  # root's
            environment.pop(name, None)
        with contextlib.suppress(KeyError):
            user = pwd.getpwuid(status.st_uid)
            environment.update(HOME=user.pw_dir, USER=user.pw_name)
            owner["extra_groups"] = os.getgrouplist(user.pw_name, status.st_gid)
    command = [sys.executable, options.harness, "--speed", options.speed]
    print(f"running {' '.join(command)}", flush=True)
    return subprocess.Popen(
        command, cwd=options.directory, env=environment, stdin=subprocess.DEVNULL, start_new_session=True, **owner
    )


def stop(harness: subprocess.Popen[bytes], seen: Watch, patience: float) -> bool:
    """Ctrl-C first, so that the harness puts back what it faked; then harder. True if it ended by that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for number, wait in ((signal.SIGINT, patience), (signal.SIGTERM, min(2.0, patience))):
        with contextlib.suppress(ProcessLookupError):
            os.kill(harness.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            harness.wait(wait)
            break
    polite = harness.poll() is not None and number == signal.SIGINT
    for pid, model in seen.processes.items():
        stat = stat_of(pid)
        if stat and stat["started"] == model.started:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    if harness.poll() is None:
        harness.kill()
        harness.wait()
    return polite
