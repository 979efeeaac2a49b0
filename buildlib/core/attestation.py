"""What a person saw of an artifact on the road (guide, section 9.2), bound to its bytes and its runtime. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

POINTS: Mapping[str, str] = {
    "normal_boot": "IQPilot was booted normally",
    "selected": "the model was selected through the selector",
    "cache_cleared": "the model cache was cleared, or that was not needed",
    "loaded": "the model loaded",
    "survived_onroad": "it survived the transition to onroad",
    "services_alive": "modelV2, livePose, iqPlan and the services around them stayed alive",
    "ui_not_frozen": "the UI did not freeze",
}
"""Each point of guide section 9.2: the question, answered yes or no by whoever drove."""

AFTER_PUBLISHING: Mapping[str, str] = {
    "redownloaded": "the model was redownloaded through the selector",
    "loaded": "the device loaded the redownloaded model",
    "survived_onroad": "it survived onroad entry",
}
"""Guide section 16: what a person sees after publishing."""


class Attestation(msgspec.Struct, frozen=True, kw_only=True):
    """One drive. artifacts: file name -> sha256; runtime: digest of the toolchain that ran it; points: all true.

    observed: what the device said for itself. published: it was about the downloaded file (guide, section 16).
    """

    model: str
    artifacts: dict[str, str]
    runtime: str
    device: str
    unit: str
    by: str
    on: str
    points: dict[str, bool]
    notes: str = ""
    observed: dict[str, Any] = {}
    published: bool = False

    def holds_for(self, artifacts: Mapping[str, str], runtime: str | None) -> bool:
        """True for exactly these bytes, and this runtime where it is known; other bytes make it void.

        A file that does not answer every point with yes attests nothing, whoever wrote it.
        """
        questions = AFTER_PUBLISHING if self.published else POINTS
        answered = all(self.points.get(name) is True for name in questions) and all(self.points.values())
        same = bool(artifacts) and dict(artifacts) == self.artifacts
        return same and answered and (runtime is None or runtime == self.runtime)


def last_drive(attestations: Iterable[Attestation], artifacts: Mapping[str, str], runtime: str | None) -> str | None:
    """When the newest attested drive of these bytes was; "void" where all were of other ones, None without any."""
    drives = [one for one in attestations if not one.published]
    holding = [one.on for one in drives if one.holds_for(artifacts, runtime)]
    return max(holding) if holding else "void" if drives else None


def contradictions(
    points: Mapping[str, bool], observed: Mapping[str, Any], artifacts: Mapping[str, str], *, published: bool = False
) -> list[str]:
    """Where a person's answers and the device's own words disagree, or an answer is missing or no.

    observed: `active` (file name -> sha256 on the device), `selected` (file names of the active bundle, or None),
    `onroad_since_install` (bool or None), `crashes` (names of crash files new since the install), `stale` (model
    processes that are older than the artifact).
    """
    questions = AFTER_PUBLISHING if published else POINTS
    found = [f"{name} was not answered: {text}" for name, text in questions.items() if name not in points]
    found += [f"{name} is no point of the guide" for name in points if name not in questions]
    found += [f"{name} was answered with no: {questions[name]}" for name in questions if points.get(name) is False]
    active = observed.get("active", {})
    for name, sha256 in artifacts.items():
        if name in active and active[name] != sha256:
            was = active[name][:12] if active[name] else "nothing"
            found.append(f"the device has {was} at {name}, not {sha256[:12]}")
    selected = observed.get("selected")
    if selected and not set(artifacts) <= set(selected):
        found.append(f"another model is selected on the device: {', '.join(selected)}")
    found += [f"a stale artifact is still loaded: {what}" for what in observed.get("stale", ())]
    if points.get("survived_onroad") and observed.get("onroad_since_install") is False:
        found.append("the device says that it was not onroad since the artifact was installed")
    crashes = observed.get("crashes") or []
    if crashes:
        found.append(f"crash files since the install: {', '.join(sorted(crashes)[:3])}")
    return found
