"""compile:M (guide, sections 5 to 7): the ONNX becomes an artifact, in a detached job on the device."""

from __future__ import annotations

import json
import re
from typing import Any

from buildlib import errors
from buildlib.core.diagnoses.diagnosis import diagnose
from buildlib.core.remote import recompiled_path
from buildlib.core.stages import BY_NAME, wanted
from buildlib.device.link import DeviceLink
from buildlib.plain_text import one_line
from buildlib.steps import toolchain
from buildlib.steps.compile_job import Piece, job_request, pieces
from buildlib.steps.compile_log import Log
from buildlib.steps.context import Outcome, StepContext
from buildlib.steps.install import require_own_name
from buildlib.steps.jobs import end_job
from buildlib.steps.left_over import past_own_job
from buildlib.steps.operators import require_operators
from buildlib.steps.readiness import require_ready
from buildlib.toolchain.c_compiler import check_tinygrad_version

MOST_BYTES = 64 << 30
"""More than any disk of a device holds."""


def run(context: StepContext) -> Outcome:
    """Compiles each artifact of the model; what an earlier build has begun with this key is taken up."""
    if toolchain.is_local(context.device):
        check_tinygrad_version()
    doubts = require_ready(context)
    if BY_NAME["install"] in wanted(context.subject):
        require_own_name(context)  # it would be refused there, after the minutes of a compile
    link = context.link()
    require_operators(context, link)
    made: dict[str, Any] = {}
    warnings: list[str] = []
    seconds = 0.0
    for piece in pieces(context):
        log = Log(context, piece.log)
        status = follow(context, link, piece, log)
        output = said_output(context, status)
        path = made_at(context, output, piece)
        made[piece.role] = {"path": path, "size": output["size"], "sha256": output["sha256"]}
        warnings += log.warnings()
        seconds += output["seconds"]
    size = sum(entry["size"] for entry in made.values())
    return Outcome(
        result={"artifacts": made, "seconds": seconds, "identity": status.get("identity"), "warnings": warnings},
        summary=f"{seconds:.1f} s, {size / 1e6:.1f} MB",
        warnings=tuple(dict.fromkeys((*doubts, *warnings))),
        device_files={entry["path"]: entry["sha256"] for entry in made.values()},
    )


def follow(context: StepContext, link: DeviceLink, piece: Piece, log: Log) -> dict[str, Any]:
    """Starts the job of this key, or finds the one that an earlier build started, and follows it to its good end."""
    request = job_request(context, link, piece)
    try:
        begun = past_own_job(
            context,
            link,
            lambda: link.call("job_start", key=piece.key, again=context.again, **request),
            wanted=[one.key for one in pieces(context)],
        )
        log.begin(f"{piece.key[:32]}-{piece.role}-{begun['since']}")
        if not begun["started"] and begun["state"] == "running":
            context.events.step(context.model.name, context.stage, "takes up the compile that runs there already")
        status = link.follow(piece.key, on_log=log.take, on_tick=log.tick, offset=log.reached)
        log.end()
    except errors.Cancelled:
        end_job(link, piece.key)
        log.end()
        raise
    finally:
        log.keep()
    if status.get("state") != "ok":
        raise failure(context, status, log)
    return status


def said_output(context: StepContext, status: dict[str, Any]) -> dict[str, Any]:
    """path, size, sha256, seconds of a job that ended well: a receipt of what no file can have would stay for good."""
    output = status.get("output")
    said = {**(output if isinstance(output, dict) else {}), "seconds": status.get("elapsed")}
    good = (
        type(said.get("size")) is int
        and 0 < said["size"] <= MOST_BYTES
        and re.fullmatch("[0-9a-f]{64}", str(said.get("sha256")))
        and type(said["seconds"]) in (int, float)
        and abs(said["seconds"]) < 1e9
    )
    if not good:
        raise errors.DeviceError(
            "the device does not say what the compile made",
            where=f"{context.model.name} on {context.device.name}",
            expected="size, sha256 and seconds",
            got=one_line(json.dumps(said), 200),
            remedy=f"nothing was recorded; doit doctor {context.device.name}, then run doit again",
        )
    # The device's clock may have been set in the middle.
    return {**said, "seconds": max(said["seconds"], 0)}


def made_at(context: StepContext, output: dict[str, Any], piece: Piece) -> str:
    """Where the output lies: a job of this key may have been begun for a twin, whose artifact has another name."""
    models = context.subject.catalog.models.values()
    declared = {recompiled_path(context.device, name) for model in models for name in model.artifacts.values()}
    return str(output["path"]) if output.get("path") in declared else piece.output


def failure(context: StepContext, status: dict[str, Any], log: Log) -> errors.BuildError:
    """What a job's bad end means."""
    reason, state = one_line(str(status.get("reason", ""))), status.get("state")
    name = f"{context.model.name} on {context.device.name}"
    where: dict[str, Any] = {"log": str(log.path), "where": name}
    if state == "onroad":
        return errors.RailRefused(
            f"the compile was ended: {reason}", remedy="park the car, then run doit again", **where
        )
    if state == "input_changed":
        return errors.InputChanged(reason, remedy="nothing was recorded; run doit again", **where)
    if state == "lost":
        return errors.DeviceError(f"the compile was lost: {reason}", remedy="run doit again", **where)
    if state == "timeout":
        remedy = f"raise devices.{context.device.name}.timeouts.compile in models.yaml"
        return errors.CompileFailed(f"the compile took too long: {reason}", remedy=remedy, **where)
    return diagnosed(context, log, reason, where)


def diagnosed(context: StepContext, log: Log, reason: str, where: dict[str, Any]) -> errors.CompileFailed:
    """The compile's own last error, with the cause and remedy of the sign that leads its log."""
    signs = diagnose("\n".join(log.lines())).failures
    said = log.last_error() or reason
    if not signs:
        return errors.CompileFailed(said, remedy=f"read the log, then doit {context.model.name}", **where)
    others = tuple(f"{sign.cause}: {sign.remedy}" for sign in signs[1:4])
    # What the script itself refused it has said in its own words.
    cause = "" if signs[0].code == "compile_check" else f": {signs[0].cause}"
    return errors.CompileFailed(f"{said}{cause}", remedy=signs[0].remedy, guide=signs[0].guide, signs=others, **where)
