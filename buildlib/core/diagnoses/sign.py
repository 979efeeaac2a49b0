"""A sign of failure in a log, as data."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Severity = Literal["failure", "warning", "note"]

COPY_AGAIN: Final = "copy it again; do not use it until local size and sha256 are the device's"


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """pattern: a regular expression, searched in one line, or in a whole error block if `in_block`.

    times: so many lines must show it. unless: a pattern in the same line that takes the sign back.
    """

    code: str
    pattern: str
    cause: str
    remedy: str
    guide: str | None = None
    severity: Severity = "failure"
    block: str | None = None
    times: int = 1
    unless: str | None = None
