"""The one judge of freshness: tasks, `status`, `explain` and `plan` all ask it, so they can't disagree.

Pure: everything that it knows of the world it asks of a `World`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from buildlib.core import stages
from buildlib.core.key import KEY_FORMAT, Difference, differences, step_key
from buildlib.core.receipt import Receipt
from buildlib.core.stages import NotKnowable, Stage, Upstream
from buildlib.core.wording import change_of, counted
from buildlib.core.world import Subject, World


class State(StrEnum):
    """What a step is."""

    FRESH = "fresh"
    ASSUMED = "assumed"
    """Fresh by the last observation; its device or source could not be asked."""
    STALE = "stale"
    FAILED = "failed"
    NEVER = "never"


NEVER_DONE = "never done"
"""Reason of a step that nothing speaks against but that it was not done yet."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A step's state, and why. key is None where it cannot be known before another step ran."""

    stage: str
    state: State
    key: str | None = None
    parts: dict[str, Any] | None = None
    receipt: Receipt | None = None
    reason: str = ""
    remedy: str | None = None
    tried: str = ""
    """When it failed with this key, where it did."""
    changes: tuple[Difference, ...] = ()
    restorable: bool = False
    """The recorded bytes can be brought back without doing the work again."""

    @property
    def done(self) -> bool:
        """True when nothing needs to run."""
        return self.state in (State.FRESH, State.ASSUMED)

    @property
    def is_only_changed(self) -> bool:
        """True where the reason is no other than its changes: who lists those need not tell it."""
        return self.state is State.STALE and bool(self.changes) and self.reason.startswith(change_of(self.changes[0]))

    def told(self) -> str:
        """State and reason as one sentence goes on: `is stale: ...`, `was never done`, `failed at TIME: ...`."""
        reason = "" if self.reason in ("", NEVER_DONE) else f": {self.reason}"
        head = {State.NEVER: "was never done", State.FAILED: f"failed at {self.tried}" if self.tried else "failed"}
        return head.get(self.state, f"is {self.state}") + reason


def judge_model(subject: Subject, world: World, upto: Sequence[Stage] = stages.STAGES) -> dict[str, Judgement]:
    """Judges the stages of one model in pipeline order; each sees the results of those before it."""
    judged: dict[str, Judgement] = {}
    for stage in upto:
        judged[stage.name] = judge(subject, stage, judged, world)
    return judged


def judge(subject: Subject, stage: Stage, judged: dict[str, Judgement], world: World) -> Judgement:
    """Judges one stage, given the judgements of the stages that it depends on."""
    upstream: dict[str, Receipt] = {}
    assumed: str | None = None
    for name in stage.inputs:
        before = judged[name]
        if before.receipt is None or not (before.done or before.restorable):
            last = world.latest(subject, stage.name)
            return Judgement(
                stage=stage.name,
                state=State.NEVER if last is None else State.STALE,
                reason=f"follows {name}",
            )
        if assumed is None and before.state is State.ASSUMED:
            assumed = before.reason
        upstream[name] = before.receipt
    return _judge_key(subject, stage, upstream, world, assumed)


def present_parts(subject: Subject, stage: Stage, upstream: Upstream, world: World) -> tuple[str, dict[str, Any]]:
    """A step's key and what it is made of, now. Raises NotKnowable."""
    parts = stage.parts(subject, upstream, world)
    return step_key(stage.name, stage.version, parts), parts


def _judge_key(subject: Subject, stage: Stage, upstream: Upstream, world: World, assumed: str | None) -> Judgement:
    """assumed: the reason for which a stage before this one is."""
    try:
        key, parts = present_parts(subject, stage, upstream, world)
    except NotKnowable as unknown:
        last = world.latest(subject, stage.name)
        state = State.NEVER if last is None else State.STALE
        return Judgement(stage=stage.name, state=state, reason=unknown.reason, remedy=unknown.remedy)
    receipt = world.receipt(stage.name, key)
    if receipt is None:
        return _stale(subject, stage, key, parts, world.latest(subject, stage.name), world)
    lapse = stage.lapse(subject, receipt, world)
    fresh = Judgement(stage=stage.name, state=State.FRESH, key=key, parts=parts, receipt=receipt)
    if lapse is not None:
        return replace(fresh, state=State.STALE, reason=lapse.reason, restorable=lapse.restorable)
    reason = _assumption(subject, stage, world) if assumed is None else assumed
    return fresh if reason is None else replace(fresh, state=State.ASSUMED, reason=reason)


def _stale(
    subject: Subject, stage: Stage, key: str, parts: dict[str, Any], last: Receipt | None, world: World
) -> Judgement:
    changes = tuple(differences(last.parts, parts)) if last is not None else ()
    attempt, tried = world.attempt(subject, stage.name), ""
    if attempt is not None and attempt.key == key:
        state, reason = State.FAILED, attempt.error.splitlines()[0] if attempt.error else "failed"
        tried = attempt.finished
    elif last is None:
        state, reason = State.NEVER, NEVER_DONE
    else:
        state, reason = State.STALE, _first_reason(stage, last, changes)
    return Judgement(stage=stage.name, state=state, key=key, parts=parts, reason=reason, changes=changes, tried=tried)


def _first_reason(stage: Stage, last: Receipt, changes: tuple[Difference, ...]) -> str:
    if last.key_format != KEY_FORMAT:
        return f"the tool changed: keys of format {KEY_FORMAT} instead of {last.key_format}, so all is rebuilt"
    if changes:
        more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
        return f"{change_of(changes[0])}{more}"
    if last.version != stage.version:
        return f"the tool changed: step {stage.name} is version {stage.version}, was {last.version}"
    return "its receipt is gone"


def _assumption(subject: Subject, stage: Stage, world: World) -> str | None:
    """Why what is fresh by the last observation can only be assumed to be; None where it could be looked at."""
    if stage.name == "source":
        seen = [world.source(subject, role) for role in subject.model.sources]
        return next((one.problem or "" for one in seen if one.assumed), None)
    device = world.device(subject.device.name)
    if not stage.on_device or device.reachable:
        return None
    return f"{subject.device.name} was last seen {age_in_words(device.age)} ago"


def age_in_words(seconds: float) -> str:
    """`40 seconds`, `3 minutes`, `2 hours`, `5 days`."""
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return counted(count, unit)
    return counted(int(seconds), "second")
