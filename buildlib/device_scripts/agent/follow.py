"""Reads a job's log from any byte on, to the job's end."""

from __future__ import annotations

import binascii
import os
import time

from .jobs import Job, mend
from .main import Request
from .places import write_atomic
from .wire import Refusal, event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CHUNK = 64 << 10
ASK_AGAIN = 0.1


def do_job_follow(request: Request) -> dict[str, Any]:
    """Says {"event": "log", "offset", "data" (base64)} as the log grows and {"event": "tick", "elapsed"} each second.

    Ends with the job: returns its final status. A failure that was returned here counts as reported.
    Arguments: key, offset (bytes, where reading goes on). Raises Refusal(device) if there is no such job.
    """
    job = Job(request.places, str(request.args["key"]))
    if not job.exists():
        raise Refusal("device", "the device knows no such job", got=job.key, remedy="run the step again")
    offset = int(request.args.get("offset", 0))
    last_tick = time.monotonic()
    while True:
        # The status is read before the log: what was written before it is then all there.
        status = job.status()
        offset = _say(job, offset)
        if status is not None:
            break
        if not job.running():
            mend(request.places)
            if not job.exists():
                raise Refusal("device", "the job was removed while it was followed", got=job.key)
            time.sleep(ASK_AGAIN)
            continue
        now = time.monotonic()
        if now - last_tick >= 1.0:
            last_tick = now
            event("tick", elapsed=round(time.time() - job.about().get("since", time.time()), 1))
        time.sleep(ASK_AGAIN)
    if status["state"] != "ok":
        write_atomic(job.reported_file, b"")
    return {**status, "log_offset": offset}


def _say(job: Job, offset: int) -> int:
    if not os.path.exists(job.log):
        return offset
    with open(job.log, "rb") as file:
        file.seek(offset)
        while block := file.read(CHUNK):
            event("log", offset=offset, data=binascii.b2a_base64(block, newline=False).decode())
            offset += len(block)
    return offset
