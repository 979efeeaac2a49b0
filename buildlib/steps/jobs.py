"""A step's job on the device: what it runs is sent, it is started, followed to its end, and its log kept here."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from buildlib import errors
from buildlib.device.link import DeviceLink
from buildlib.steps.context import StepContext
from buildlib.steps.scripts import Script, shipped_path
from buildlib.store import files


def ship(link: DeviceLink, script: Script) -> list[dict[str, str]]:
    """Sends a script and what it loads into one directory, under their own names; as inputs of a job, itself first."""
    sent = {shipped_path(link.device, script, file): file for file in script}
    link.push_small({remote: (file.path, file.sha256) for remote, file in sent.items()})
    return [{"path": remote, "sha256": file.sha256} for remote, file in sent.items()]


def run_job(
    context: StepContext, link: DeviceLink, key: str, job: dict[str, Any], log_file: Path
) -> tuple[dict[str, Any], bytes]:
    """Starts a job and waits: its final status, and its log, of which log_file gets what there was however it ended.

    Raises what the link raises. When the build is stopped the job is ended too.
    """
    log = bytearray()
    try:
        link.call("job_start", key=key, **job)
        status = link.follow(
            key,
            on_log=lambda offset, data: log.extend(data),
            on_tick=lambda elapsed: context.events.progress(context.model.name, context.stage, int(elapsed), None),
        )
    except errors.Cancelled:
        end_job(link, key)
        raise
    finally:
        if log:
            files.write(log_file, bytes(log))
    return status, bytes(log)


def end_job(link: DeviceLink, key: str) -> None:
    """Ends the job and everything that it started, although the build itself is being stopped."""
    with contextlib.suppress(errors.BuildError):
        link.cancel_job(key)
