"""What `plan publish:M`, `abandon`, `unpublish` and `publish-new` share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from buildlib import errors
from buildlib.core.catalog import Model
from buildlib.core.gate import Obstacle
from buildlib.core.stages import target_of
from buildlib.doit_parts.session import Session
from buildlib.ports.target import Check, Target, TargetState
from buildlib.steps.context import RunOptions
from buildlib.steps.publish import gate, make_request
from buildlib.steps.targets import open_target


def target_and_model(session: Session, name: str) -> tuple[Target, Model]:
    """A model and where it is published to."""
    subject = session.subject(name)
    return open_target(session.workspace, target_of(subject)), subject.model


@dataclass(frozen=True, kw_only=True)
class Publication:
    """What `publish:M` would do. state: None where that cannot be told. problems: what hinders it, with its remedy."""

    state: TargetState | None
    problems: tuple[errors.BuildError | Check | Obstacle, ...]


def plan_publish(session: Session, name: str) -> Publication:
    """Asks the target; changes nothing."""
    subject = session.subject(name)
    missing = gate(session.workspace, subject, RunOptions())
    try:
        request = make_request(session.workspace, subject, RunOptions())
        state = open_target(session.workspace, target_of(subject)).inspect(request)
    except errors.BuildError as error:
        # The gate has said it already: as an obstacle, with the command that helps.
        said = any(error.what in one.what for one in missing)
        said = said or (isinstance(error, errors.RailRefused) and any(one.rail for one in missing))
        return Publication(state=None, problems=tuple(missing) if said else (error, *missing))
    return Publication(state=state, problems=(*state.refused, *missing))


def as_lines(publication: Publication) -> Iterator[str]:
    """For a terminal."""
    if publication.state is not None:
        yield from _state_lines(publication.state)
    for problem in publication.problems:
        if isinstance(problem, errors.BuildError):
            yield problem.render()
        else:
            yield f"Not yet: {problem.what.rstrip('.')}. {problem.remedy or ''}".rstrip()


def as_values(publication: Publication) -> dict[str, Any]:
    """For programs: {target, files, diff, message, problems}; sizes in bytes, null where nothing is or will be."""
    state = publication.state
    return {
        "target": state.summary if state else None,
        "files": [msgspec.to_builtins(change) for change in state.files] if state else [],
        "diff": state.diff if state else "",
        "message": state.message if state else None,
        "problems": [
            {
                "what": problem.headline() if isinstance(problem, errors.BuildError) else problem.what,
                "remedy": problem.remedy,
            }
            for problem in publication.problems
        ],
    }


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


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count} bytes"
