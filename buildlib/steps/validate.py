"""validate:M (guide, sections 9.1 and 10): the installed artifact is driven on the device, and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from buildlib import errors
from buildlib.core.remote import active_path
from buildlib.core.validation import Asked, Validation, judge_run
from buildlib.steps import toolchain
from buildlib.steps.compile import end_job
from buildlib.steps.context import Outcome, StepContext
from buildlib.steps.world import builtin_script, harness_script, observe_files
from buildlib.store import files


def run(context: StepContext) -> Outcome:
    """Runs the harness over each artifact as a job on the device. A refused artifact does not stay installed."""
    verdicts: dict[str, Any] = {}
    notes = []
    for role, sha256 in context.parts["artifacts"].items():
        name = context.model.artifacts[role]
        verdict = judge(context, name, sha256)
        if not verdict.good:
            put_back(context, name, sha256, verdict)
            raise refused(context, name, verdict)
        verdicts[role] = msgspec.to_builtins(verdict)
        notes.append(verdict.summary())
    return Outcome(result={"verdicts": verdicts}, summary="; ".join(notes))


def judge(context: StepContext, name: str, sha256: str) -> Validation:
    """One run of the harness, judged."""
    link = context.link()
    local, digest = harness_script()
    script = f"{context.device.paths.state}/scripts/{local.stem}-{digest[:16]}.py"
    link.push(local, script, sha256=digest)
    active = active_path(context.device, name)
    key = f"{context.key[:48]}-{sha256[:15]}"
    report = f"{context.device.paths.state}/jobs/{key}/report.json"
    arguments = context.parts["arguments"]
    cameras = [f"{width}x{height}" for width, height in arguments["camera_resolutions"]]
    # What a processor can do says nothing of the car's: only the backend that drives has to keep up.
    realtime = not toolchain.is_local(context.device) and arguments["expected_device"] != "CPU"
    identity = dict(context.parts["runtime"])
    compiled = context.upstream["compile"].parts
    job = {
        "subject": f"validate {context.model.name}",
        "argv": [
            link.python,
            link.real(script),
            link.real(active),
            "--frames",
            str(context.parts["frames"]),
            "--report",
            link.real(report),
            "--sha256",
            sha256,
            "--frame-skip",
            str(arguments["frame_skip"]),
            *(("--require-realtime",) if realtime else ()),
            "--cameras",
            *cameras,
        ],
        "env": toolchain.compile_environment(context.workspace, link.device, compiled["flags"], identity),
        "inputs": [{"path": active, "sha256": sha256}, {"path": script, "sha256": digest}],
        "toolchain": toolchain.spec(context.workspace, link.device, builtin_script()[1]),
        "report": report,
        "timeout": context.device.timeouts.validate,
        "power": not toolchain.is_local(context.device),
        "harness": True,
    }
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
            files.write(log_path(context), bytes(log))
    asked = Asked(
        sha256=sha256,
        frames=context.parts["frames"],
        cameras=tuple((width, height) for width, height in arguments["camera_resolutions"]),
        realtime=realtime,
    )
    return judge_run(status, asked)


def log_path(context: StepContext) -> Path:
    """Where the harness's own words are kept, a by-product."""
    return context.workspace.compile_log(context.model.name).with_name("validate.log")


def put_back(context: StepContext, name: str, sha256: str, verdict: Validation) -> None:
    """The rail: an artifact that fails validation does not stay installed. A run that says nothing changes nothing."""
    if verdict.verdict != "refused" or context.services.options.keep_refused:
        return
    done = context.link().call("rollback", name=name, expect=sha256, remove=True)
    observe_files(context.workspace, context.device.name, {done["active"]: done["sha256"] or ""})
    put = f"{done['sha256'][:12]} is active again" if done["sha256"] else "it was removed; there was none before"
    context.events.warning(context.model.name, f"{name} was refused: {put}")


def refused(context: StepContext, name: str, verdict: Validation) -> errors.BuildError:
    """The error of a run that was not good."""
    first = verdict.findings[0]
    more = f" (and {len(verdict.findings) - 1} more)" if len(verdict.findings) > 1 else ""
    kind = errors.VerdictRefused if verdict.verdict == "refused" else errors.DeviceError
    return kind(
        f"{first.what}{more}",
        where=f"{name} on {context.device.name}",
        expected=first.expected,
        got=first.found,
        guide=first.guide,
        remedy=first.remedy,
        log=str(log_path(context)),
    )
