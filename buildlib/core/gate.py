"""What stands between an artifact and its publication: the rails and the target's policy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from buildlib.core.attestation import Attestation
from buildlib.core.catalog import Target
from buildlib.core.flags import effective_profile, expected_device, uses_own_profile
from buildlib.core.freshness import Judgement
from buildlib.core.receipt import Receipt
from buildlib.core.world import DeviceSeen, Subject


class Obstacle(msgspec.Struct, frozen=True):
    """One thing that is missing. rail: nothing overrides it."""

    what: str
    remedy: str
    rail: bool = False


def obstacles(
    subject: Subject,
    target: Target,
    judged: Mapping[str, Judgement],
    artifacts: Mapping[str, str],
    seen: DeviceSeen,
    attestations: Iterable[Attestation],
    *,
    runtime: str | None,
    without_onroad: str | None = None,
) -> list[Obstacle]:
    """All that is missing before these bytes may be published; an empty list opens the gate.

    artifacts: file name -> sha256. runtime: digest of the device's toolchain. without_onroad: the reason for which a
    person publishes without a drive; it is written into the commit.
    """
    name = subject.model.name
    found: list[Obstacle] = []
    confined = confinement(subject, _receipts(judged))
    if confined is not None and not target.sandbox:
        remedy = (
            f"publish it to a target with `sandbox: true`, or build {name} from a real source, for the car's backend, "
            "on its own device"
        )
        found.append(Obstacle(f"{name} was {confined}", remedy, rail=True))
    for stage in ("verify", *(("validate",) if "harness" in target.policy else ())):
        if not judged[stage].done:
            found.append(
                Obstacle(f"{stage} does not hold for these bytes: {judged[stage].reason}", f"doit {stage}:{name}")
            )
    if not seen.reachable:
        remedy = f"switch {subject.device.name} on, then publish again"
        found.append(Obstacle(f"{subject.device.name} did not answer this run's probe: {seen.problem}", remedy))
    if "onroad" in target.policy and not (without_onroad or "").strip():
        holding = [one for one in attestations if not one.published and one.holds_for(artifacts, runtime)]
        if not holding:
            short = ", ".join(sha256[:8] for sha256 in artifacts.values())
            remedy = f"doit attest {name} after a drive, or --without-onroad REASON"
            found.append(Obstacle(f"an onroad attestation of {short} is missing", remedy))
    return found


def confinement(subject: Subject, receipts: Iterable[Receipt]) -> str | None:
    """Why the artifact may go to sandboxes only ("made from a sample"), or None."""
    if any(receipt.sample for receipt in receipts):
        return "made from a sample"
    if not uses_own_profile(subject.model, subject.device):
        used = effective_profile(subject.catalog, subject.model, subject.device).name
        return f"compiled with profile {used} instead of its own, {subject.model.profile}"
    if expected_device(subject.catalog, subject.model, subject.device) == "CPU":
        return "compiled for the CPU, which drives no car"
    return None


def _receipts(judged: Mapping[str, Judgement]) -> list[Receipt]:
    return [judgement.receipt for judgement in judged.values() if judgement.receipt is not None]
