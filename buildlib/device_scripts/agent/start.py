"""Starts and ends detached jobs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

from . import locks
from .guard import require_offroad
from .jobs import Job, mend
from .main import Request
from .places import require_space, write_atomic
from .recovery import recover
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def do_job_start(request: Request) -> dict[str, Any]:
    """Starts the job `key`, or finds the one that runs or has ended. Returns {started: bool, state, since}.

    A finished good job is kept while its output still has its hash; a failed one is redone once its failure was
    reported; a lost or cancelled one is redone. Arguments: see `runner.do_job_run`, `wait`, seconds to wait for the
    lock, `need`, bytes that the output will take, and `again`: what has ended is done once more, whatever became of it.
    Raises Refusal: rail, busy, device.
    """
    places = request.places
    job = Job(places, str(request.args["key"]))
    for path in (request.args.get("output"), request.args.get("report")):
        if path:
            places.owned(path)
    recover(places)
    if job.exists():
        if job.running() and job.status() is None:
            return _found(job, "running")
        status = job.status()
        if status is not None and _keep(request, job, status):
            return _found(job, status["state"])
    require_offroad(places)
    purpose = f"{request.args.get('subject', 'job')} ({job.key[:12]})"
    places.state_dir("jobs")
    try:
        lock = locks.acquire(places, request.owner, purpose, float(request.args.get("wait", 0)))
    except Refusal:
        if job.running():
            # Somebody else has started this very job meanwhile.
            return _found(job, "running")
        raise
    try:
        # Whoever held the lock may have run this very job.
        status = job.status()
        if status is not None and status.get("state") == "ok" and _keep(request, job, status):
            return _found(job, status["state"])
        recover(places)
        require_offroad(places)
        if request.args.get("need") and request.args.get("output"):
            require_space(os.path.dirname(places.owned(request.args["output"])), int(request.args["need"]))
        return _spawn(request, job, lock)
    finally:
        os.close(lock)


def _found(job: Job, state: str) -> dict[str, Any]:
    """since: when this run of the job began, by the device's clock; no two runs have the same."""
    return {"started": False, "state": state, "since": job.about().get("since")}


def _keep(request: Request, job: Job, status: dict[str, Any]) -> bool:
    if request.args.get("again"):
        return False
    if status["state"] == "ok":
        output = status.get("output")
        if output is None:
            return True
        real = request.places.real(output["path"])
        return os.path.isfile(real) and request.hashes.file(real)[0] == output["sha256"]
    return status["state"] not in ("lost", "cancelled") and not os.path.exists(job.reported_file)


def _spawn(request: Request, job: Job, lock: int) -> dict[str, Any]:
    from . import BOOT, BUNDLE

    job.remove()
    os.mkdir(job.dir, 0o700)
    args = {"op": "job_run", "paths": request.places.paths, **request.args, "lock": lock}
    framed = b"%d\n" % len(BUNDLE) + BUNDLE + json.dumps(args).encode() + b"\n"
    write_atomic(job.request_file, framed)
    # os.open gives handles that do not pass to children; the lock is the one that shall.
    with open(job.request_file, "rb") as source, open(os.path.join(job.dir, "runner.log"), "wb") as log:
        runner = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", BOOT, "supercombo-job", job.key],
            stdin=source,
            stdout=log,
            stderr=log,
            pass_fds=(lock,),
            start_new_session=True,
            cwd=job.dir,
        )
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if job.about() or job.status():
            return {**_found(job, "running"), "started": True}
        if runner.poll() is not None:
            break
        time.sleep(0.01)
    raise Refusal(
        "device",
        "the job did not start",
        where=request.places.device(job.dir),
        got=(_tail(os.path.join(job.dir, "runner.log")) or f"exit status {runner.poll()}"),
    )


def _tail(path: str, size: int = 400) -> str:
    try:
        with open(path, "rb") as file:
            return file.read()[-size:].decode("utf-8", "replace").strip()
    except OSError:
        return ""


def do_job_cancel(request: Request) -> dict[str, Any]:
    """Ends a running job and everything it started; returns its final status when nothing of it runs any more.

    {"state": "none"} for a job that never was.
    """
    job = Job(request.places, str(request.args["key"]))
    if not job.exists():
        return {"state": "none"}
    if job.running() and job.status() is None:
        write_atomic(job.cancel_file, b"")
        deadline = time.monotonic() + 5
        while job.status() is None and job.running() and time.monotonic() < deadline:
            time.sleep(0.05)
        if job.status() is None and job.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(job.about()["pid"], signal.SIGKILL)
            while job.running():
                time.sleep(0.02)
    mend(request.places)
    return job.status() or {"state": "lost"}
