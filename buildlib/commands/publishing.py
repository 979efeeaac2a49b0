"""What `plan publish:M`, `abandon`, `unpublish` and `publish-new` share."""

from __future__ import annotations

from collections.abc import Iterator

from buildlib import errors
from buildlib.core.catalog import Model
from buildlib.core.stages import target_of
from buildlib.doit_parts.session import Session
from buildlib.ports.target import Target, TargetState
from buildlib.steps.context import RunOptions
from buildlib.steps.publish import gate, make_request
from buildlib.steps.targets import open_target


def target_and_model(session: Session, name: str) -> tuple[Target, Model]:
    """A model and where it is published to."""
    subject = session.subject(name)
    return open_target(session.workspace, target_of(subject)), subject.model


def plan_publish(session: Session, name: str) -> Iterator[str]:
    """Diff, message, sizes and what is missing; changes nothing."""
    subject = session.subject(name)
    missing = gate(session.workspace, subject, RunOptions())
    try:
        request = make_request(session.workspace, subject, RunOptions())
        state = open_target(session.workspace, target_of(subject)).inspect(request)
    except errors.BuildError as error:
        # The gate has said it already: as an obstacle, with the command that helps.
        said = any(error.what in one.what for one in missing)
        if not said and not (isinstance(error, errors.RailRefused) and any(one.rail for one in missing)):
            yield error.render()
    else:
        yield from _state_lines(state)
    for obstacle in missing:
        yield _not_yet(obstacle.what, obstacle.remedy)


def _state_lines(state: TargetState) -> Iterator[str]:
    yield state.summary
    for change in state.files:
        old = f"{_size(change.old_size)} -> " if change.old_size is not None else ""
        new = _size(change.new_size) if change.new_size is not None else "removed"
        sign = "A" if change.old_size is None else "D" if change.new_size is None else "M"
        yield f"  {sign} {change.path}  {old}{new} ({change.storage})"
    yield from (f"  {line}" for line in state.diff.splitlines())
    if state.files or state.diff:
        yield f"  {state.message}"
    for check in state.refused:
        yield _not_yet(check.what, check.remedy)


def _not_yet(what: str, remedy: str | None) -> str:
    return f"Not yet: {what.rstrip('.')}. {remedy or ''}".rstrip()


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count} bytes"
