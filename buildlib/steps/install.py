"""install:M (guide, section 8): the artifact goes where the runtime looks; the former one is backed up first."""

from __future__ import annotations

from typing import Any

from buildlib import errors
from buildlib.core.confirmation import endangered
from buildlib.core.declaration.names import folded
from buildlib.core.flags import effective_profile
from buildlib.core.stages import artifact_digests, default_goal, published_digests
from buildlib.core.world import Subject
from buildlib.steps import toolchain
from buildlib.steps.context import Outcome, Services, StepContext
from buildlib.steps.perform import is_done
from buildlib.steps.world import read_observation


def run(context: StepContext) -> Outcome:
    """Installs each artifact. The device checks the car's state, the hash before and the hash after, in one command."""
    require_fit(context)
    require_own_name(context)
    require_not_refused(context)
    active: dict[str, Any] = {}
    notes = []
    for role, made in context.upstream["compile"].result["artifacts"].items():
        name = context.model.artifacts[role]
        done = _install(context, name, made)
        active[role] = {"path": done["active"], "sha256": done["sha256"], "backup": done["backup"]}
        notes.append("already there" if done["already"] else f"backup {done['backup']}" if done["backup"] else "new")
    return Outcome(
        result={"active": active},
        summary=", ".join(notes),
        warnings=tuple(warnings(context)),
        device_files={entry["path"]: entry["sha256"] for entry in active.values()},
    )


def warnings(context: StepContext) -> list[str]:
    """What the device's own model manager will do to the files, as far as this run's probe knows."""
    seen = read_observation(context.workspace, context.device.name)
    installed = published_digests(context.model, context.upstream)
    return [
        f"{text}; publish it, or select another model there first"
        for text in (endangered(seen.health, installed) if seen is not None else [])
    ]


def require_fit(context: StepContext) -> None:
    """The rail: samples, and artifacts for another backend than the device's, stay on `local`."""
    if toolchain.is_local(context.device):
        return
    if any(receipt.sample for receipt in context.upstream.values()):
        raise errors.RailRefused(
            f"{context.model.name} was made from a sample and installs on `local` only",
            where=context.device.name,
            remedy=f"give models.{context.model.name} a real ONNX as its source",
        )
    built_for = context.upstream["compile"].parts["arguments"]["expected_device"]
    wanted = effective_profile(context.subject.catalog, context.model, context.device).expected_device
    if built_for != wanted:
        raise errors.RailRefused(
            f"{context.model.name} was built for {built_for}",
            where=context.device.name,
            expected=wanted,
            got=built_for,
            guide="11",
        )
    if built_for == "CPU" and context.device.profile is None:
        # A model's word says what it was built for, never what a device is: a comma device has a GPU.
        raise errors.RailRefused(
            f"{context.model.name} was built for the CPU, and {context.device.name} does not say that it has no other",
            where=context.device.name,
            expected="QCOM, as comma devices have",
            got=built_for,
            remedy=f"profile: qcom for {context.model.name}; or, for a device without a GPU, "
            f"devices.{context.device.name}.profile: cpu",
            guide="11",
        )


def require_own_name(context: StepContext) -> None:
    """Two models whose artifacts have one file name would replace each other on a device, build after build."""
    mine = {folded(name) for name in context.model.artifacts.values()}
    for other in context.subject.catalog.models.values():
        if other.name in (context.model.name, context.model.was):
            continue
        shared = [name for name in other.artifacts.values() if folded(name) in mine]
        here = other.device in (None, context.device.name)
        known = context.workspace.receipts.latest(other.name).get(f"install@{context.device.name}")
        if shared and (here or known):
            raise errors.DeviceError(
                f"{context.model.name} and {other.name} are both {shared[0]}, and a device holds one file of a name",
                where=context.device.name,
                remedy=f"give models.{context.model.name}.artifact another name, or install it on another device",
                guide="8",
            )


def require_not_refused(context: StepContext) -> None:
    """The rail: what failed validation comes back only to be driven again, or because somebody says so by name."""
    if context.services.options.to_install or default_goal(context.subject) != "install":
        return
    last = context.workspace.receipts.attempt("validate", context.model.name)
    if last is None or last.device != context.device.name or last.refused != artifact_digests(context.upstream):
        return
    raise errors.VerdictRefused(
        f"{context.model.name} failed its validation with these bytes, {last.finished}, and is not installed again",
        where=context.device.name,
        remedy=f"doit validate:{context.model.name} drives it again; doit install:{context.model.name} puts it there "
        "to be looked at",
        guide="9",
    )


def _install(context: StepContext, name: str, made: dict[str, Any]) -> dict[str, Any]:
    link = context.link()
    source = made["path"]
    there = link.call("hash", files=[source]).get("files", {}).get(source)
    if not there or there["sha256"] != made["sha256"]:
        # The device never had it, or lost it: our own copy goes there.
        source = f"{context.device.paths.state}/incoming/{made['sha256'][:16]}.pkl"
        blob = context.workspace.artifact_blob(context.model.name, name, made["sha256"])
        link.push(blob, source, sha256=made["sha256"], on_progress=context.progress())
    return link.call(
        "install",
        name=name,
        source=source,
        sha256=made["sha256"],
        keep=context.device.keep_backups,
        hold=seconds_for_its_test(context.services, context.subject),
    )


def settle(services: Services, subject: Subject) -> None:
    """What is there already, held for a test that was not ended, has its time anew, or stays where this run says so.

    Other bytes than this install's own are left to the step itself, which takes them back first.
    """
    options, model = services.options, subject.model
    if model.name not in options.to_validate | options.to_stay:
        return
    installed = is_done(services, subject, "install")
    if not installed.done or installed.receipt is None:
        return
    active = installed.receipt.result["active"]
    artifacts = {name: active[role]["sha256"] for role, name in model.artifacts.items()}
    seconds = seconds_for_its_test(services, subject)
    if seconds is None:
        services.link(subject.device).call("install_keep", artifacts=artifacts)
    else:
        services.link(subject.device).call("install_prolong", artifacts=artifacts, seconds=seconds)


def seconds_for_its_test(services: Services, subject: Subject) -> float | None:
    """How long the device waits for the verdict, before it takes an install back that is there for a test.

    None for one that is there to stay: no test follows in this run, or somebody asked for the install itself.
    """
    options, name, device = services.options, subject.model.name, subject.device
    if name not in options.to_validate or name in options.to_stay:
        return None
    if is_done(services, subject, "validate").done:
        return None
    # Another model's compile may come before it.
    return 2 * (device.timeouts.compile + device.timeouts.validate)
