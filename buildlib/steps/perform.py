"""The frame around every step: judge, act, judge again, record. Nothing is recorded that does not match its key."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from buildlib import errors
from buildlib.core import freshness
from buildlib.core.freshness import Judgement
from buildlib.core.key import KEY_FORMAT, differences
from buildlib.core.receipt import Attempt, Receipt
from buildlib.core.stages import BY_NAME, NotKnowable, stages_up_to
from buildlib.core.world import Subject
from buildlib.steps.context import Outcome, Services, StepContext
from buildlib.steps.world import FileWorld, observe_files
from buildlib.store.receipts import now
from buildlib.version import VERSION


class Action(Protocol):
    """A step's own work. Raises BuildError; leaves no half-done target behind."""

    def __call__(self, context: StepContext) -> Outcome: ...


def action_of(stage: str) -> Action:
    """The action of a stage: `run` of the module of its name, imported when it is needed."""
    action: Action = importlib.import_module(f"buildlib.steps.{stage}").run
    return action


def is_done(services: Services, subject: Subject, stage: str) -> Judgement:
    """Judges one stage of a model, now."""
    return freshness.judge_model(subject, FileWorld(services.workspace), stages_up_to(stage))[stage]


def perform(services: Services, subject: Subject, stage: str, *, again: bool = False) -> None:
    """Does a step if it needs doing, and records it. Raises BuildError; the failure is kept as an attempt.

    again: do it although it is done. The former receipt stands until the new one takes its place.
    """
    services.check_cancelled()
    judged = freshness.judge_model(subject, FileWorld(services.workspace), stages_up_to(stage))
    verdict = judged[stage]
    if verdict.done and not again:  # another model or thread did it since doit asked
        services.workspace.receipts.note_done(subject, verdict)
        return
    context = _context(services, subject, stage, judged, again)
    started = time.monotonic()
    try:
        with local_failures(stage):
            outcome = action_of(stage)(context)
            observe_files(services.workspace, subject.device.name, outcome.device_files)
            _require_unmoved(services, subject, context)
    except errors.BuildError as error:
        if not isinstance(error, errors.Cancelled):
            explain(error)
            error.remedy = error.remedy or f"doit diagnose {subject.model.name}"
            _keep_attempt(context, error)
        raise
    _record(context, outcome, time.monotonic() - started)


@contextlib.contextmanager
def local_failures(what: str) -> Iterator[None]:
    """The workstation's own refusals (full, read-only, gone) as an error of the build."""
    try:
        yield
    except OSError as error:
        raise errors.unforeseen(what, error) from error


def _context(
    services: Services, subject: Subject, stage: str, judged: dict[str, Judgement], again: bool
) -> StepContext:
    verdict = judged[stage]
    if verdict.key is None or verdict.parts is None:
        raise cannot_run(subject, verdict)
    _require_reachable(services, subject, stage)
    receipts = {name: judged[name].receipt for name in BY_NAME[stage].inputs}
    return StepContext(
        services=services,
        subject=subject,
        stage=stage,
        key=verdict.key,
        parts=verdict.parts,
        upstream={name: receipt for name, receipt in receipts.items() if receipt is not None},
        restore=verdict.receipt if verdict.restorable else None,
        again=again,
    )


def cannot_run(subject: Subject, verdict: Judgement) -> errors.BuildError:
    """Why a step has no key; whoever shows it says which step of which model it was."""
    before = verdict.reason.removeprefix("follows ")
    if before == verdict.reason:
        return errors.BuildError(verdict.reason, remedy=verdict.remedy or f"doit explain {subject.model.name}")
    return errors.BuildError(f"{before} comes first, and is not done", remedy=f"doit {subject.model.name}")


def _require_reachable(services: Services, subject: Subject, stage: str) -> None:
    """A step that needs its device does not wait for it once more when the probe of this run got no answer."""
    if not BY_NAME[stage].on_device:
        return
    seen = FileWorld(services.workspace).device(subject.device.name)
    if not seen.reachable:
        raise errors.DeviceUnreachable(
            f"it needs {subject.device.name}: {seen.problem or 'it was not probed'}",
            remedy=seen.remedy or f"switch the device on, see `doit doctor {subject.device.name}`, then run doit again",
        )


def _require_unmoved(services: Services, subject: Subject, context: StepContext) -> None:
    """The key must be the same after the action as before it (truth, rule 5)."""
    try:
        key, parts = freshness.present_parts(
            subject, BY_NAME[context.stage], context.upstream, FileWorld(services.workspace)
        )
    except NotKnowable as unknown:
        raise errors.InputChanged(
            f"an input went away while it ran: {unknown.reason}",
            remedy="run doit again when the input rests",
        ) from unknown
    if key != context.key:
        moved = differences(context.parts, parts)
        raise errors.InputChanged(
            f"an input changed while it ran: {moved[0] if moved else 'the key'}",
            remedy="nothing was recorded; run doit again when the input rests",
        )


def _record(context: StepContext, outcome: Outcome, seconds: float) -> None:
    sample = outcome.sample or any(receipt.sample for receipt in context.upstream.values())
    context.workspace.receipts.put(
        Receipt(
            stage=context.stage,
            model=context.model.name,
            device=context.device.name,
            key=context.key,
            key_format=KEY_FORMAT,
            version=BY_NAME[context.stage].version,
            parts=context.parts,
            result=outcome.result,
            targets=outcome.targets,
            sample=sample,
            finished=now(),
            seconds=round(seconds, 3),
            tool=VERSION,
        )
    )
    for warning in outcome.warnings:
        context.events.warning(context.model.name, warning)
    if outcome.summary:
        context.events.step(context.model.name, context.stage, outcome.summary)


def explain(error: errors.BuildError) -> None:
    """Adds the diagnosis that nobody asked for: what the error's own words and its log show, and a first remedy."""
    from buildlib.core.diagnoses.diagnosis import diagnose

    if error.signs or (error.remedy and not error.log):
        return
    text = error.headline()
    if error.log:
        with contextlib.suppress(OSError):
            text = f"{Path(error.log).read_text(encoding='utf-8', errors='replace')}\n{text}"
    told = (error.what, error.remedy)
    failures = [sign for sign in diagnose(text).failures if sign.cause not in error.what and sign.remedy not in told]
    error.signs = tuple(f"{sign.cause}: {sign.remedy}" for sign in failures[:SIGNS_SHOWN])
    if failures and not error.remedy:
        error.remedy, error.guide = failures[0].remedy, error.guide or failures[0].guide


SIGNS_SHOWN = 3
"""Of a failed step's signs so many are told; `doit diagnose` tells all."""


def _keep_attempt(context: StepContext, error: errors.BuildError) -> None:
    attempt = Attempt(
        stage=context.stage,
        model=context.model.name,
        device=context.device.name,
        key=context.key,
        error=error.render(),
        finished=now(),
        log=error.log,
        refused=context.parts.get("artifacts", {}) if isinstance(error, errors.VerdictRefused) else {},
    )
    with contextlib.suppress(errors.StoreError):  # a full disk: the error itself says more than its missing record
        context.workspace.receipts.put_attempt(attempt)


Performer = Callable[[Services, Subject, str], None]
