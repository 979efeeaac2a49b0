"""confirm:M on a device (guide, section 16): downloaded by its own selector, compared, validated again, put back."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any

import msgspec

from buildlib import errors
from buildlib.core import catalog, freshness
from buildlib.core.confirmation import judge_download
from buildlib.core.manifests.manifest import Entry
from buildlib.core.stages import artifact_digests, stages_up_to
from buildlib.core.verdicts.findings import Finding
from buildlib.device.link import DeviceLink
from buildlib.steps import toolchain, validate
from buildlib.steps.context import StepContext
from buildlib.steps.jobs import run_job, ship
from buildlib.steps.scripts import selector_script
from buildlib.steps.world import FileWorld

ACTIVE = "ModelManager_ActiveBundle"
REMEMBERED = (ACTIVE, "ModelManager_DownloadRef", "ModelManager_DownloadIndex")
"""In the order in which they are written down: the last one, which starts a download, is put back first."""
SPARE = 120.0
"""Seconds beyond all timeouts, for what lies between."""
SETTLED = 1.5
"""Seconds after which a selection that was put back must still stand."""


def confirm_on_device(context: StepContext, entries: tuple[Entry, ...], settings: catalog.Target) -> dict[str, Any]:
    """What the device proved, or {"skipped": why}. Whatever happens, the device is as it was before.

    Raises DeviceError, VerdictRefused, RailRefused, DeviceBusy, Cancelled.
    """
    if settings.sandbox and not toolchain.is_local(context.device):
        return {"skipped": f"{context.device.name} does not see a sandbox of this machine"}
    link, driving = context.link(), driving_context(context)
    seen = link.call("selector", argv=[link.python], env=environment(driving, link))
    if not seen["present"]:
        return {"skipped": f"{context.device.name} has no model selector", "why": seen["why"]}
    if seen["journals"] and not seen["lock"]:
        # A confirm that died left it selected: nothing may be remembered before that is put back.
        link.call("recover", undo=seen["journals"])
        seen = link.call("selector", argv=[link.python], env={})
    status = download(context, link, driving, entries, settings)
    finding = judge_download(status, entries)
    journal = status.get("journal")
    try:
        if finding is not None:
            raise failure(context, finding)
        verdicts = validated(driving)
    except errors.BuildError as error:
        restore(context, link, seen["active"], journal, error)
        raise
    restore(context, link, seen["active"], journal, None)
    refuse_bad(driving, verdicts)
    report = status["report"]
    return {
        "device": context.device.name,
        "asked": report["asked"],
        "through": report["through"],
        "seconds": report["seconds"],
        "verdicts": {role: msgspec.to_builtins(verdict) for roles, verdict in verdicts for role in roles},
        "selection": "put back",
    }


def driving_context(context: StepContext) -> StepContext:
    """The validation of the same artifact, as a part of this step: run again whatever is known of it."""
    judged = freshness.judge_model(context.subject, FileWorld(context.workspace), stages_up_to("validate"))
    compiled, validation = judged["compile"].receipt, judged["validate"]
    if compiled is None or validation.parts is None:
        raise errors.DeviceError(
            f"{context.model.name} cannot be validated again on {context.device.name}: {validation.reason}",
            remedy=validation.remedy or f"doit validate:{context.model.name}",
        )
    return dataclasses.replace(context, parts=validation.parts, upstream={"compile": compiled}, again=True)


def environment(driving: StepContext, link: DeviceLink) -> dict[str, str]:
    """Openpilot's own modules are found in it, the parameters of this device too."""
    found = toolchain.compile_environment(driving.workspace, link.device, {}, dict(driving.parts["runtime"]))
    params = link.real(link.device.paths.params)
    return {**found, "PARAMS_ROOT": str(Path(params).parent)}


def download(
    context: StepContext,
    link: DeviceLink,
    driving: StepContext,
    entries: tuple[Entry, ...],
    settings: catalog.Target,
) -> dict[str, Any]:
    """Runs the selector's download as a job on the device: its final status. An open journal is named in it."""
    script = ship(link, selector_script())
    key = f"{context.key[:48]}-selector"
    report = f"{link.device.paths.state}/jobs/{key}/report.json"
    wanted = [word for entry in entries for word in ("--artifact", entry.file_name, entry.sha256)]
    bundle = context.model.bundle
    job = {
        "subject": f"confirm {context.model.name}",
        "argv": [
            link.python,
            link.real(script[0]["path"]),
            "--params",
            link.real(link.device.paths.params),
            "--models",
            link.real(link.device.paths.models),
            *wanted,
            *(("--bundle", bundle.short_name) if bundle else ()),
            "--visible",
            str(settings.confirm_timeout),
            "--download",
            str(settings.confirm_timeout),
            "--report",
            link.real(report),
        ],
        "env": environment(driving, link),
        "inputs": script,
        "report": report,
        "timeout": 2 * settings.confirm_timeout + SPARE,
        "aside": [entry.file_name for entry in entries],
        "remember": list(REMEMBERED),
        "hand_over": context.device.timeouts.validate * len(entries) + SPARE,
        "again": True,
    }
    return run_job(context, link, key, job, log_path(context))[0]


def log_path(context: StepContext) -> Path:
    """What the download said, a by-product."""
    return context.workspace.compile_log(context.model.name).with_name("confirm.log")


def validated(driving: StepContext) -> list[tuple[list[str], Any]]:
    """The harness over the downloaded files; all of its verdicts, none where no harness drives this kind of model."""
    if driving.model.kind != "supercombo" and not isinstance(driving.parts["harness"], dict):
        return []
    wanted = artifact_digests(driving.upstream)
    if dict(driving.parts["artifacts"]) != wanted:
        raise errors.InputChanged("another artifact would be validated than was published", where=driving.model.name)
    return list(validate.judged(driving))


def refuse_bad(driving: StepContext, verdicts: list[tuple[list[str], Any]]) -> None:
    """The rail, after the selection was put back: what failed does not stay installed, as a download or by hand."""
    for roles, verdict in verdicts:
        if verdict.good:
            continue
        for role in roles:
            name = driving.model.artifacts[role]
            # The file that lay there before may be another one, and is there again.
            with contextlib.suppress(errors.InputChanged):
                validate.put_back(driving, name, driving.parts["artifacts"][role], verdict)
        raise validate.refused(driving, ", ".join(driving.model.artifacts[role] for role in roles), verdict)


def restore(
    context: StepContext,
    link: DeviceLink,
    before: str | None,
    journal: str | None,
    error: errors.BuildError | None,
) -> None:
    """Has the device put files and selection back, and looks whether they stay. error: what went wrong before."""
    free = link if error is None else DeviceLink(link.transport, link.device, link.python, owner=link.owner)
    text = None
    try:
        if journal is not None:
            free.call("recover", undo=[journal])
        now = selection(free)
        if now == before:
            time.sleep(SETTLED)
            now = selection(free)
        if now != before:
            text = f"its selection was {named(before)} and is {named(now)}"
    except errors.BuildError as second:
        if error is None:
            raise
        text = f"its files and selection are put back by the next probe: {second.headline()}"
    if text is None:
        return
    if error is not None:
        context.events.warning(context.model.name, f"{context.device.name}: {text}")
        return
    raise errors.DeviceError(
        f"the earlier selection did not stay: {text}",
        where=context.device.name,
        guide="16",
        remedy=f"select {named(before)} on the device; what was published is there and good",
    )


def selection(link: DeviceLink) -> str | None:
    """The active bundle's JSON."""
    value = link.call("params_read", keys=[ACTIVE])["values"][ACTIVE]
    return value.strip() if value is not None else None


def named(bundle: str | None) -> str:
    """A bundle in a word."""
    from buildlib.core.doctor import active_model

    return active_model(bundle) or "none"


def failure(context: StepContext, finding: Finding) -> errors.BuildError:
    """A finding about the download as an error of its kind."""
    kind = {"onroad": errors.RailRefused, "cancelled": errors.Cancelled}.get(finding.code, errors.DeviceError)
    return kind(
        finding.what,
        where=context.device.name,
        expected=finding.expected,
        got=finding.found,
        guide=finding.guide,
        remedy=finding.remedy,
        log=str(log_path(context)) if log_path(context).exists() else None,
    )
