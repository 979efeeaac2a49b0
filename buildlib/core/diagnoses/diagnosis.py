"""What a log says went wrong, and what to do. Pure: text in, findings out.

Every sign that shows is reported: one never hides another. The last error that no sign explains is shown whole and
called unknown, and never explained by a guess.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import msgspec

from buildlib.core.diagnoses.jit_mismatch import Difference, differences
from buildlib.core.diagnoses.log_text import Block, clean_lines, error_blocks
from buildlib.core.diagnoses.sign import Severity, Sign
from buildlib.core.diagnoses.signs import SIGNS
from buildlib.core.verdicts.shapes import frame_skip_of

_EVIDENCE: Final = 300
LONGEST: Final = 8 * 1024 * 1024
"""Characters (of a file: bytes) at the end of a log that are read."""
_RANK: Final[dict[Severity, int]] = {"failure": 0, "warning": 1, "note": 2}
_MISMATCH: Final = "args mismatch in JIT"


class Diagnosed(msgspec.Struct, frozen=True, kw_only=True):
    """A sign that shows in a log.

    evidence: the first line that shows it, shortened. line: its number, from 1. count: lines that show it.
    captured, passed: the two sides of a mismatch, where the log tells them.
    """

    code: str
    severity: Severity
    cause: str
    remedy: str
    guide: str | None
    evidence: str
    line: int
    count: int = 1
    captured: str | None = None
    passed: str | None = None


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """findings: failures first, causes before consequences, notes last. unknown: the last unexplained error, whole."""

    findings: tuple[Diagnosed, ...]
    unknown: str | None

    @property
    def failures(self) -> tuple[Diagnosed, ...]:
        return tuple(one for one in self.findings if one.severity == "failure")


def diagnose(text: str) -> Diagnosis:
    """Reads a log of any kind: compile, harness, crash, tmux pane. Beyond 8 MiB only the end is read."""
    log = _Log(text[-LONGEST:])
    found: list[tuple[int, Diagnosed]] = []
    explained: set[int] = set()
    for rank, sign in enumerate(SIGNS):
        hits = log.hits(sign)
        if len(hits) < sign.times:
            continue
        if sign.severity == "failure":
            explained.update(hits)
        number, match = next(iter(hits.items()))
        found.append((rank, _diagnosed(sign, log.lines, number, match, len(hits))))
    for number, message in log.mismatches():
        found.extend((-1, one) for one in _explain(differences(message), log.lines, number))
    found.sort(key=lambda one: (_RANK[one[1].severity], one[0]))
    return Diagnosis(findings=_unique(one for _, one in found), unknown=_unknown(log.blocks, explained))


class _Log:
    """A log, its errors, and where in it patterns show."""

    def __init__(self, text: str) -> None:
        self.lines = clean_lines(text)
        self.blocks = error_blocks(self.lines)
        self._quoted = {number for block in self.blocks for number in block.quoted}
        self._text = "\n".join(self.lines)
        self._starts = list(accumulate((len(line) + 1 for line in self.lines), initial=0))

    def hits(self, sign: Sign) -> dict[int, re.Match[str]]:
        """Line number -> match, for each line that shows the sign, first ones first; source code shows none."""
        found: dict[int, re.Match[str]] = {}
        for match in re.finditer(sign.pattern, self._text, re.MULTILINE):
            number = bisect_right(self._starts, match.start()) - 1
            if number in found or number in self._quoted:
                continue
            if not (sign.unless and re.search(sign.unless, self.lines[number])):
                found[number] = match
        for block in self.blocks if sign.block else ():
            in_block = re.search(sign.block or "", block.text, re.MULTILINE)
            if in_block:
                found.setdefault(block.error, in_block)
        return dict(sorted(found.items()))

    def mismatches(self) -> Iterator[tuple[int, str]]:
        """(line number, message with its continuation lines) of each "args mismatch in JIT"."""
        for number, line in enumerate(self.lines):
            if _MISMATCH in line and number not in self._quoted:
                last = next((block.last for block in self.blocks if block.first <= number <= block.last), number)
                yield number, "\n".join(self.lines[number : last + 1])


def _diagnosed(sign: Sign, lines: list[str], number: int, match: re.Match[str], count: int) -> Diagnosed:
    sides = match.groupdict()
    captured = sides.get("captured") or sides.get("captured2")
    passed = sides.get("passed") or sides.get("passed2")
    return Diagnosed(
        code=sign.code,
        severity=sign.severity,
        cause=sign.cause,
        remedy=sign.remedy,
        guide=sign.guide,
        evidence=_shorten(lines[number]),
        line=number + 1,
        count=count,
        captured=_depth(captured),
        passed=_depth(passed),
    )


def _depth(number: str | None) -> str | None:
    if number is None:
        return None
    skip = frame_skip_of(int(number), {})
    return f"arg={number}" + (f" (frame skip {skip})" if skip else "")


_WHY: Final = {
    "device": (
        "jit_device",
        "was captured on another backend than the runtime's",
        "rebuild on the device with DEV and WARP_DEV of the runtime and OPENPILOT_HACKS=1",
        "11",
    ),
    "frame_skip": (
        "jit_frame_skip",
        "was captured with another frame_skip",
        "compile with the runtime's --frame-skip, 4 on IQPilot",
        "11",
    ),
    "names": (
        "jit_names",
        "differ: the artifact is of another contract than the runtime's",
        "compile with the script that belongs to this runtime; is a stale artifact still loaded?",
        "11",
    ),
    "shape": (
        "jit_shape",
        "was captured with another shape",
        "compile for this model's size and this camera's padded frame",
        "10",
    ),
    "dtype": (
        "jit_dtype",
        "was captured with another dtype",
        "compile with the script that belongs to this runtime",
        "11",
    ),
}


def _explain(found: tuple[Difference, ...], lines: list[str], number: int) -> Iterator[Diagnosed]:
    """One finding a kind of difference, naming all arguments that have it."""
    for kind, (code, cause, remedy, guide) in _WHY.items():
        same = [one for one in found if one.kind == kind]
        if not same:
            continue
        first = next((one for one in same if one.argument == "img_q"), same[0])
        captured, passed = first.captured, first.passed
        if kind == "frame_skip":
            captured, passed = (_depth(side.removeprefix("arg=")) or side for side in (captured, passed))
        arguments = ", ".join(dict.fromkeys(one.argument for one in same))
        yield Diagnosed(
            code=code,
            severity="failure",
            cause=f"{arguments} {cause}",
            remedy=remedy,
            guide=guide,
            evidence=_shorten(lines[number]),
            line=number + 1,
            captured=captured,
            passed=passed,
        )


def _unique(found: Iterator[Diagnosed]) -> tuple[Diagnosed, ...]:
    """The same finding of a repeated error once, with its count."""
    kept: dict[tuple[str, str, str | None, str | None], Diagnosed] = {}
    for one in found:
        key = (one.code, one.cause, one.captured, one.passed)
        former = kept.get(key)
        kept[key] = msgspec.structs.replace(former, count=former.count + one.count) if former else one
    return tuple(kept.values())


def _unknown(blocks: list[Block], explained: set[int]) -> str | None:
    """The last error, unless a sign stands in it."""
    if not blocks:
        return None
    last = blocks[-1]
    known = any(last.first <= number <= last.last for number in explained)
    return None if known else last.text


def _shorten(line: str) -> str:
    stripped = line.strip()
    return stripped if len(stripped) <= _EVIDENCE else stripped[:_EVIDENCE] + "..."
