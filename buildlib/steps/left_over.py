"""A compile that this checkout began and no longer wants: ended where it stands in the way of what is declared now."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from buildlib import errors
from buildlib.device.link import DeviceLink
from buildlib.steps.context import StepContext

T = TypeVar("T")


def past_own_job(context: StepContext, link: DeviceLink, work: Callable[[], T], wanted: Collection[str] = ()) -> T:
    """Does the work; if the device is busy with this checkout's own earlier compile of the model, ends it and does it.

    A killed build leaves its job behind, to be taken up. After another flag or another ONNX nobody will. wanted: keys
    of jobs that are wanted as they are. Other checkouts' jobs and other models' are never touched: DeviceBusy.
    """
    try:
        return work()
    except errors.DeviceBusy:
        if not _end(context, link, wanted):
            raise
        return work()


def _end(context: StepContext, link: DeviceLink, wanted: Collection[str]) -> bool:
    ended = False
    for job in link.call("job_list")["jobs"]:
        mine = job["owner"] == link.owner and job["subject"] == f"compile {context.model.name}"
        if mine and job["state"] == "running" and job["key"] not in wanted:
            link.call("job_cancel", key=job["key"])
            context.events.step(
                context.model.name, context.stage, "ended this checkout's compile from before the change"
            )
            ended = True
    return ended
