"""A finding of a verdict: one thing that is not as it should be."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Severity = Literal["refuse", "warn"]

REBUILD_SAME: Final = "compile it again with this model's flags, then verify again"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """code: stable, for programs. what: one clause. guide: section of the compile guide that knows this failure."""

    code: str
    severity: Severity
    what: str
    expected: str
    found: str
    guide: str | None = None
    remedy: str


def refuse(code: str, what: str, *, expected: str, found: str, guide: str | None = None, remedy: str) -> Finding:
    """A finding that keeps the artifact from being installed or published."""
    return Finding(code=code, severity="refuse", what=what, expected=expected, found=found, guide=guide, remedy=remedy)


def warn(code: str, what: str, *, expected: str, found: str, guide: str | None = None, remedy: str) -> Finding:
    """A finding that a person should read."""
    return Finding(code=code, severity="warn", what=what, expected=expected, found=found, guide=guide, remedy=remedy)
