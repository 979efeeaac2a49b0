"""Detached jobs: started, found again, ended. What runs in one is in `runner`.

A job is a directory under STATE/jobs named by its key, 0700: job.json (who runs it), log, status.json (by rename).
It holds the device's lock for its whole life and outlives the connection and the workstation.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any

from . import locks
from .guard import require_offroad
from .main import Request
from .places import Places, read_json, unlink, write_atomic, write_json
from .processes import alive, boot_id, end_group, end_strays, holders
from .wire import Refusal

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
GOOD = ("ok",)


class Job:
    """One job's directory."""

    def __init__(self, places: Places, key: str) -> None:
        if not KEY.fullmatch(key):
            raise Refusal("request", "not a job key", got=repr(key), expected=KEY.pattern)
        self.places = places
        self.key = key
        self.dir = os.path.join(places.state, "jobs", key)
        self.log = os.path.join(self.dir, "log")
        self.status_file = os.path.join(self.dir, "status.json")
        self.job_file = os.path.join(self.dir, "job.json")
        self.cancel_file = os.path.join(self.dir, "cancel")
        self.reported_file = os.path.join(self.dir, "reported")
        self.request_file = os.path.join(self.dir, "request")

    def exists(self) -> bool:
        return os.path.isdir(self.dir)

    def status(self) -> dict[str, Any] | None:
        """The final status; None while there is none."""
        value = read_json(self.status_file)
        return value if isinstance(value, dict) else None

    def about(self) -> dict[str, Any]:
        """Who runs it: {pid, started, boot, child, owner, subject, since}."""
        value = read_json(self.job_file)
        return value if isinstance(value, dict) else {}

    def running(self) -> bool:
        """True when its runner lives: of this boot, that very process, no zombie."""
        about = self.about()
        return about.get("boot") == boot_id(self.places) and alive(about.get("pid"), about.get("started"))

    def end_orphans(self) -> None:
        """Ends what a dead runner left behind: its child's group, and whoever still writes to the log."""
        about = self.about()
        child = about.get("child")
        if about.get("boot") == boot_id(self.places) and child and alive(child["pid"], child["started"]):
            end_group(child["pid"])
        end_strays(self.log)

    def remove(self) -> None:
        """Removes the directory with all in it."""
        import shutil

        shutil.rmtree(self.dir, ignore_errors=True)


def every(places: Places) -> list[Job]:
    """All jobs known here."""
    folder = os.path.join(places.state, "jobs")
    if not os.path.isdir(folder):
        return []
    return [Job(places, name) for name in sorted(os.listdir(folder)) if KEY.fullmatch(name)]


def mend(places: Places) -> set[str]:
    """Gives dead unfinished jobs the status "lost" and ends their orphans. Returns the keys of living jobs."""
    living = set()
    for job in every(places):
        if job.status() is not None:
            continue
        if job.running():
            living.add(job.key)
        elif job.about() or not _just_made(job):
            job.end_orphans()
            past = job.about().get("boot") not in (None, boot_id(places))
            reason = "the device was started anew" if past else "its runner was killed"
            with contextlib.suppress(FileNotFoundError):
                write_json(job.status_file, {"state": "lost", "reason": reason, "key": job.key})
    return living


def _just_made(job: Job) -> bool:
    """A directory without a runner yet may belong to a `job_start` that works right now."""
    try:
        return time.time() - os.stat(job.dir).st_mtime < 10
    except OSError:
        return True


def do_job_start(request: Request) -> dict[str, Any]:
    """Starts the job `key`, or finds the one that runs or has ended. Returns {started: bool, state}.

    A finished good job is kept while its output still has its hash; a failed one is redone once its failure was
    reported; a lost one is redone. Arguments: see `runner.do_job_run`, and `wait`, seconds to wait for the lock.
    Raises Refusal: rail, busy, device.
    """
    from .recovery import recover

    places = request.places
    job = Job(places, str(request.args["key"]))
    places.state_dir("jobs")
    recover(places)
    if job.exists():
        if job.running() and job.status() is None:
            return {"started": False, "state": "running"}
        status = job.status()
        if status is not None and _keep(request, job, status):
            return {"started": False, "state": status["state"]}
    require_offroad(places)
    purpose = f"{request.args.get('subject', 'job')} ({job.key[:12]})"
    lock = locks.acquire(places, request.owner, purpose, float(request.args.get("wait", 0)))
    try:
        # Whoever held the lock may have run this very job.
        status = job.status()
        if status is not None and status.get("state") in GOOD and _keep(request, job, status):
            return {"started": False, "state": status["state"]}
        recover(places)
        require_offroad(places)
        return _spawn(request, job, lock)
    finally:
        os.close(lock)


def _keep(request: Request, job: Job, status: dict[str, Any]) -> bool:
    if status["state"] in GOOD:
        output = status.get("output")
        if output is None:
            return True
        real = request.places.real(output["path"])
        return os.path.isfile(real) and request.hashes.file(real)[0] == output["sha256"]
    return status["state"] != "lost" and not os.path.exists(job.reported_file)


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
            [sys.executable, "-I", "-B", "-c", BOOT, "supercombo-job", job.key],
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
            return {"started": True, "state": "running"}
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


def do_job_list(request: Request) -> dict[str, Any]:
    """{jobs: [{key, state, subject, owner, since}], lock: holder or None}."""
    return {"jobs": listing(request.places), "lock": locks.holder(request.places)}


def listing(places: Places) -> list[dict[str, Any]]:
    """All jobs in short form."""
    found = []
    for job in every(places):
        about, status = job.about(), job.status()
        found.append(
            {
                "key": job.key,
                "state": status["state"] if status else "running",
                "reported": os.path.exists(job.reported_file),
                **{name: about.get(name) for name in ("subject", "owner", "since")},
            }
        )
    return found


def strays(job: Job) -> list[int]:
    """Processes that still write to the job's log."""
    return holders(job.log)


def forget_cancel(job: Job) -> None:
    """A cancel that was asked for before the start does not end the next one."""
    unlink(job.cancel_file)
