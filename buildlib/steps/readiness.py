"""What must be so on a device before a compile is worth starting there, by its last probe (guide, sections 1 and 4)."""

from __future__ import annotations

from buildlib import errors
from buildlib.core.declaration.builtin import QCOM_FLAGS
from buildlib.core.doctor import (
    COMPARE_BY_HAND,
    UNREAD,
    departures,
    directory_problems,
    flag_differences,
    unheard_flags,
)
from buildlib.core.flags import effective_profile, expected_device, flag_origins
from buildlib.core.unknown_names import near
from buildlib.core.world import Subject
from buildlib.steps.context import StepContext
from buildlib.steps.preflight import sconscript_path
from buildlib.steps.world import Observation, read_observation


def require_ready(context: StepContext) -> list[str]:
    """Raises DeviceError for what would spoil the compile; gives what is only worth a warning."""
    seen = read_observation(context.workspace, context.device.name)
    if seen is None:
        return departing(context)
    require_agreeing_flags(context, seen)
    require_directories(context, seen)
    return [*departing(context), *unread(context, seen), *unheard(context, seen)]


def require_agreeing_flags(context: StepContext, seen: Observation) -> None:
    """Stops a compile while a function of the device's SConscript has other flags than the profile."""
    profile = effective_profile(context.subject.catalog, context.model, context.device)
    differences = flag_differences(seen.flags, profile)
    if differences:
        more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
        raise errors.DeviceError(
            f"SConscript: {differences[0]}{more}",
            where=f"{context.device.name}:{sconscript_path(context.device)}",
            guide="1",
            remedy=f"set devices.{context.device.name}.sync_sconscript to the workstation's file, or edit the device's",
        )


def require_directories(context: StepContext, seen: Observation) -> None:
    """A cache that cannot be written sends tinygrad elsewhere without a word; a model directory loses the artifact."""
    for line in directory_problems(context.device, seen.health.get("directories", {})):
        raise errors.DeviceError(line.text, where=context.device.name, remedy=line.remedy, guide="4")


def unread(context: StepContext, seen: Observation) -> list[str]:
    """A warning where the device has a SConscript whose flags nobody could compare: silence is no agreement."""
    profile = effective_profile(context.subject.catalog, context.model, context.device)
    if seen.flags != {} or profile.expected_device != "QCOM":
        return []
    return [f"{context.device.name}: {UNREAD}: {COMPARE_BY_HAND}"]


def departing(context: StepContext) -> list[str]:
    """A warning for a QCOM compile with other flags than the guide's, which ends well and may make what freezes."""
    catalog, model, device = context.subject.catalog, context.model, context.device
    flags, origins = context.parts["flags"], flag_origins(catalog, model, device)
    told = []
    for name in departures(flags, expected_device(catalog, model, device)):
        where = f" ({origins[name].where})" if name in origins else ""
        is_now = f"{name}={flags[name]}" if name in flags else f"without {name}"
        told.append(f"{is_now}{where} instead of {name}={QCOM_FLAGS[name]}")
    if not told:
        return []
    return [f"{', '.join(told)}: other flags than the guide's; such an artifact may look valid and freeze onroad"]


def unheard(context: StepContext, seen: Observation) -> list[str]:
    """A warning for each flag that the device's tinygrad does not know; an error with `strict_flags`."""
    missing = unheard_flags(context.parts["flags"], seen.heard)
    if missing and context.model.strict_flags:
        raise errors.DeviceError(
            f"the device's tinygrad does not know {', '.join(missing)}: it would be ignored without a word",
            where=flag_origins(context.subject.catalog, context.model, context.device)[missing[0]].where,
            remedy=f"unset it (models.{context.model.name}.flags), take another tinygrad, or drop strict_flags",
        )
    return [unheard_text(context.subject, name) for name in missing]


def unheard_text(subject: Subject, name: str) -> str:
    """A flag that nobody hears, with the line that sets it and the flag that was probably meant."""
    known = {flag for profile in subject.catalog.profiles.values() for flag in profile.flags} - {name}
    origins = flag_origins(subject.catalog, subject.model, subject.device)
    where = f"{origins[name].where}: " if name in origins else ""
    meant = near(name, known)
    hint = f"; did you mean {meant}?" if meant else ""
    return f"{where}{name} is ignored: the device's tinygrad does not know it{hint}"
