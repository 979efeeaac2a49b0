"""Detached jobs, as one finds them: which run, which have ended, which died. `start` starts them, `runner` is inside.

A job is a directory under STATE/jobs named by its key, 0700: job.json (who runs it), log, status.json (by rename).
It holds the device's lock for its whole life and outlives the connection and the workstation.
"""

from __future__ import annotations

import contextlib
import os
import re
import time

from . import locks
from .main import Request
from .places import Places, as_record, read_record, write_json
from .processes import alive, boot_id, end_group, end_strays
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


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
        return read_record(self.status_file, state=str)

    def about(self) -> dict[str, Any]:
        """Who runs it: {pid, started, boot, child, owner, subject, since}."""
        return read_record(self.job_file) or {}

    def running(self) -> bool:
        """True when its runner lives: of this boot, that very process, no zombie."""
        about = self.about()
        return about.get("boot") == boot_id(self.places) and alive(about.get("pid"), about.get("started"))

    def end_orphans(self) -> None:
        """Ends what a dead runner left behind: its child's group, and whoever still writes to the log."""
        about = self.about()
        child = as_record(about.get("child"), pid=int)
        if about.get("boot") == boot_id(self.places) and child and alive(child["pid"], child.get("started")):
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
        elif job.status() is None and (job.about() or not _just_made(job)):
            # Asked again: it may have ended well between the first look and the second.
            job.end_orphans()
            past = job.about().get("boot") not in (None, boot_id(places))
            reason = "the device was started anew" if past else "its runner was killed"
            with contextlib.suppress(FileNotFoundError):
                write_json(job.status_file, {"state": "lost", "reason": reason, "key": job.key})
    return living


def require_unused(places: Places, path: str, asking: str) -> None:
    """Raises Refusal(busy) while a job reads the file at a device path: other bytes there would cost it its result."""
    for job in every(places):
        about = job.about()
        if path in about.get("inputs", ()) and job.status() is None and job.running():
            raise Refusal(
                "busy",
                "another job works on this device, with another file in this place",
                where=path,
                got=locks.describe(about),
                remedy=locks.remedy(about, asking),
            )


def _just_made(job: Job) -> bool:
    """A directory without a runner yet may belong to a `job_start` that works right now."""
    try:
        return abs(time.time() - os.stat(job.dir).st_mtime) < 10
    except OSError:
        return True


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
