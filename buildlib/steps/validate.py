"""validate:M (guide, sections 9.1 and 10): the installed artifact is driven on the device, and judged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from buildlib import errors
from buildlib.core.remote import active_path, iqpilot_harness_path
from buildlib.core.selection import ACTIVE, KNOWN, selection_for
from buildlib.core.verdicts.signals import Signals, judge_signals, unseen
from buildlib.core.verdicts.validation import Asked, Validation, judge_run, with_signals
from buildlib.core.verdicts.validation_iqpilot import judge_iqpilot
from buildlib.device.link import DeviceLink
from buildlib.steps import toolchain
from buildlib.steps.compile_job import as_reported
from buildlib.steps.context import Outcome, StepContext
from buildlib.steps.jobs import run_job, ship
from buildlib.steps.scripts import compile_script_id, harness_script, iqpilot_script
from buildlib.steps.signals import look
from buildlib.steps.world import observe_files

SPEED = "15.0"
"""Metres a second that the guide's harness is told (section 9.1)."""
FRAME_RATE = 20
TO_JUDGE = 300.0
"""Seconds beyond a run's own limit, in which the workstation looks around and judges."""


def run(context: StepContext) -> Outcome:
    """Drives the artifacts with IQPilot's harness where the device has it, else with ours. A refused one goes again."""
    verdicts: dict[str, Any] = {}
    notes = []
    for roles, verdict in judged(context):
        if not verdict.good:
            for role in roles:
                put_back(context, context.model.artifacts[role], context.parts["artifacts"][role], verdict)
            with contextlib.suppress(errors.BuildError):
                end_of_the_test(context, verdict)
            raise refused(context, ", ".join(context.model.artifacts[role] for role in roles), verdict)
        verdicts |= {role: msgspec.to_builtins(verdict) for role in roles}
        notes.append(verdict.summary())
    let_stay(context)
    return Outcome(result={"verdicts": verdicts}, summary="; ".join(notes))


def judged(context: StepContext) -> Iterator[tuple[list[str], Validation]]:
    """Each run of a harness: the roles of the artifacts in it, and its verdict."""
    artifacts = context.parts["artifacts"]
    if isinstance(context.parts["harness"], dict):
        yield list(artifacts), drive_with_iqpilots(context)
        return
    for role, sha256 in artifacts.items():
        yield [role], drive_with_ours(context, role, sha256)


def drive_with_ours(context: StepContext, role: str, sha256: str) -> Validation:
    """One run of our own harness over one artifact."""
    link = context.link()
    script = ship(link, harness_script(context.model.kind))
    active = active_path(context.device, context.model.artifacts[role])
    key = f"{context.key[:48]}-{sha256[:15]}"
    report = report_path(context, key)
    arguments = context.parts["arguments"]
    split = arguments["kind"] != "supercombo"
    cameras = [] if split else [(width, height) for width, height in arguments["camera_resolutions"]]
    # What a processor can do says nothing of the car's: only the backend that drives has to keep up.
    realtime = not toolchain.is_local(context.device) and arguments["expected_device"] != "CPU"
    compiled = context.upstream["compile"].parts
    job = {
        "argv": [
            link.python,
            link.real(script[0]["path"]),
            link.real(active),
            "--frames",
            str(context.parts["frames"]),
            "--report",
            link.real(report),
            "--sha256",
            sha256,
            *(("--require-realtime",) if realtime else ()),
            *(of_split(context, role) if split else of_supercombo(arguments["frame_skip"], cameras)),
        ],
        "env": environment(context, link, compiled["flags"]),
        "inputs": [{"path": active, "sha256": sha256}, *script],
        "again": context.again,
    }
    status, _, before, after = drive(context, link, key, report, job)
    asked = Asked(
        sha256=sha256,
        frames=context.parts["frames"],
        cameras=tuple(cameras),
        realtime=realtime,
    )
    missed = unseen(after, local=toolchain.is_local(context.device))
    return with_signals(judge_run(status, asked), judge_signals(before, after), missed)


def of_supercombo(frame_skip: int, cameras: list[tuple[int, int]]) -> list[str]:
    """The harness's arguments for a supercombo."""
    return ["--frame-skip", str(frame_skip), "--cameras", *(f"{width}x{height}" for width, height in cameras)]


def of_split(context: StepContext, role: str) -> list[str]:
    """The harness's arguments for an artifact of a split model: of one part, or of all."""
    return ["--role", role] if role in context.model.sources else []


def drive_with_iqpilots(context: StepContext) -> Validation:
    """One run of IQPilot's own harness with all artifacts of the model, selected for it and watched from outside."""
    link = context.link()
    device, paths = context.device, context.device.paths
    script = ship(link, iqpilot_script())
    harness = iqpilot_harness_path(device)
    named = by_name(context)
    active = {active_path(device, name): sha256 for name, sha256 in named.items()}
    key = context.key[:64]
    report = report_path(context, key)
    known = link.call("params_read", keys=[ACTIVE, KNOWN])["values"]
    job = {
        "argv": [
            link.python,
            link.real(script[0]["path"]),
            link.real(harness),
            "--speed",
            SPEED,
            *(word for path, sha256 in active.items() for word in ("--artifact", link.real(path), sha256)),
            "--models",
            link.real(paths.models),
            "--params",
            link.real(paths.params),
            "--shared",
            link.real("/dev/shm"),  # noqa: S108
            "--directory",
            link.real(paths.openpilot),
            "--seconds",
            str(context.parts["frames"] / FRAME_RATE),
            "--report",
            link.real(report),
        ],
        "env": environment(context, link, {}),
        "inputs": [
            *({"path": path, "sha256": sha256} for path, sha256 in active.items()),
            *script,
            {"path": harness, "sha256": context.parts["harness"]["iqpilot"]},
        ],
        "params": {ACTIVE: selection_for(context.model, named, (known[ACTIVE], known[KNOWN]))},
        "fakes_onroad": True,
        # The job ends well whatever the model did: an ended one tells of its own moment only.
        "again": True,
    }
    status, log, before, after = drive(context, link, key, report, job)
    return judge_iqpilot(status, named, log, before, after, local=toolchain.is_local(device))


def drive(
    context: StepContext, link: DeviceLink, key: str, report: str, job: dict[str, Any]
) -> tuple[dict[str, Any], str, Signals, Signals]:
    """Runs a harness as a job on the device, its log kept here: final status, log, signals before and after."""
    job = {
        "subject": f"validate {context.model.name}",
        "toolchain": toolchain.spec(context.workspace, link.device, compile_script_id(link.device)),
        "expected_identity": as_reported(context.device, context.parts["runtime"], compile_script_id(link.device)),
        "report": report,
        "timeout": context.device.timeouts.validate,
        "power": not toolchain.is_local(context.device),
        "harness": True,
        # Whoever dies meanwhile: the device takes back what it got for this test alone.
        "guard": prolong(context),
        **job,
    }
    before = look(link, context.subject)
    status, log = run_job(context, link, key, job, log_path(context))
    return status, log.decode("utf-8", "replace"), before, look(link, context.subject, since=before.clock)


def environment(context: StepContext, link: DeviceLink, flags: dict[str, str]) -> dict[str, str]:
    """The guide's environment; the runtime's own harness sets its flags itself."""
    identity = dict(context.parts["runtime"])
    return toolchain.compile_environment(context.workspace, link.device, flags, identity)


def report_path(context: StepContext, key: str) -> str:
    """Where a job's harness writes its report."""
    return f"{context.device.paths.state}/jobs/{key}/report.json"


def log_path(context: StepContext) -> Path:
    """Where the harness's own words are kept, a by-product."""
    return context.workspace.compile_log(context.model.name).with_name("validate.log")


def prolong(context: StepContext, seconds: float | None = None) -> list[str]:
    """The journals of the installs that are there for this test alone; their time begins anew."""
    if seconds is None:
        seconds = context.device.timeouts.validate + TO_JUDGE
    answer = context.link().call("install_prolong", artifacts=by_name(context), seconds=seconds)
    journals: list[str] = answer["journals"]
    return journals


def by_name(context: StepContext) -> dict[str, str]:
    """sha256 of what is validated, by its file name."""
    return {context.model.artifacts[role]: sha256 for role, sha256 in context.parts["artifacts"].items()}


def let_stay(context: StepContext) -> None:
    """No test is left that would have the device take the installs back."""
    context.link().call("install_keep", artifacts=by_name(context))


def end_of_the_test(context: StepContext, verdict: Validation) -> None:
    """What becomes of an install that did not pass and was not taken back: a run that says nothing leaves it held.

    Of a refused one that is what could not be put back, and the model's other artifacts, which go with it.
    """
    name, device = context.model.name, context.device.name
    if verdict.verdict != "refused":
        if prolong(context):
            minutes = (context.device.timeouts.validate + TO_JUDGE) / 60
            text = f"without a verdict within {minutes:.0f} min, {device} takes this install back"
            context.events.warning(name, f"{text}; or: doit install:{name}")
    elif context.services.options.keep_refused:
        let_stay(context)
    elif prolong(context, 0):
        context.events.warning(name, f"{device} takes back what is left of this install, as soon as it is offroad")


def put_back(context: StepContext, name: str, sha256: str, verdict: Validation) -> None:
    """The rail: an artifact that fails validation does not stay installed. A run that says nothing changes nothing."""
    if verdict.verdict != "refused" or context.services.options.keep_refused:
        return
    try:
        done = context.link().call("rollback", name=name, expect=sha256, remove=True)
    except errors.InputChanged:
        context.events.warning(context.model.name, f"{name} was refused; somebody else's file is active there already")
        return
    except (errors.RailRefused, errors.DeviceError) as error:
        # The verdict must not be hidden by what came after it.
        text = (
            f"{name} was refused and is STILL INSTALLED: {error.headline()}; then: doit rollback {context.model.name}"
        )
        context.events.warning(context.model.name, text)
        return
    observe_files(context.workspace, context.device.name, {done["active"]: done["sha256"] or ""})
    put = f"{done['sha256'][:12]} is active again" if done["sha256"] else "it was removed; there was none before"
    context.events.warning(context.model.name, f"{name} was refused: {put}")


def refused(context: StepContext, name: str, verdict: Validation) -> errors.BuildError:
    """The error of a run that was not good: the leading finding, and the causes that the others tell."""
    first, others = verdict.findings[0], verdict.findings[1:]
    more = f" (and {len(others)} more)" if others else ""
    kind = errors.VerdictRefused if verdict.verdict == "refused" else errors.DeviceError
    log = log_path(context)
    return kind(
        f"{first.what}{more}",
        where=f"{name} on {context.device.name}",
        expected=first.expected,
        got=first.found,
        guide=first.guide,
        remedy=first.remedy,
        log=str(log) if log.exists() else None,
        signs=tuple(f"{other.what}: {other.found}" for other in others[:3]),
    )
