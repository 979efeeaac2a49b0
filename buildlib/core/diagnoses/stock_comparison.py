"""Two ways to compile set side by side: ours and a stock openpilot tree's (guide, section 18). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from buildlib.core.verdicts.findings import Finding, refuse, warn

MEANINGS: Final[Mapping[str, str]] = {
    "DEV": "the device",
    "WARP_DEV": "the warp's device",
    "IMAGE": "image-typed convolutions",
    "FLOAT16": "half storage in the image path",
    "NOLOCALS": "no local memory",
    "JIT_BATCH_SIZE": "graph batch",
    "OPENPILOT_HACKS": "folds moved assigns; without it artifacts look valid and behave otherwise",
}
"""What a difference in a flag means (facts, section 2)."""

_IMAGE_IS_TRUTH: Final = (0, 13)
_HACKS_SINCE: Final = (0, 13)


class Toolchain(msgspec.Struct, frozen=True, kw_only=True):
    """One way to compile. None for what is not known.

    flags: the environment's flags, exact text. tinygrad: identity (commit or digest). script: sha256.
    version: tinygrad's version as numbers, (0, 14).
    """

    name: str
    flags: Mapping[str, str]
    tinygrad: str | None = None
    version: tuple[int, ...] | None = None
    script: str | None = None


def version_numbers(text: object) -> tuple[int, ...] | None:
    """`0.14.0` -> (0, 14, 0); None for a version that is not known."""
    parts = str(text or "").split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else None


def compare_toolchains(ours: Toolchain, stock: Toolchain) -> tuple[Finding, ...]:
    """Every difference; those that change what an artifact does are refusals, the rest warnings."""
    return (*_flags(ours, stock), *_identities(ours, stock))


def _flags(ours: Toolchain, stock: Toolchain) -> Iterator[Finding]:
    for flag in sorted({*ours.flags, *stock.flags}):
        if flag == "WARP_DEV" and flag not in stock.flags and ours.flags.get("DEV") == ours.flags[flag]:
            continue  # read by our compile script alone (guide, section 5); elsewhere the warp follows DEV
        mine, theirs = ours.flags.get(flag), stock.flags.get(flag)
        if mine == theirs:
            continue
        harmless = _harmless(flag, mine, theirs, ours.version)
        make = warn if harmless or flag not in MEANINGS else refuse
        yield make(
            "flag_differs",
            f"{flag} differs from {stock.name} ({MEANINGS.get(flag, 'a flag that only one of them sets')})"
            + (f"; {harmless}" if harmless else ""),
            expected=_shown(flag, theirs),
            found=_shown(flag, mine),
            guide="18",
            remedy=f"set {flag}: {theirs!r} in the model's profile, compile and validate again"
            if theirs is not None
            else f"unset {flag} in the model's profile, compile and validate again",
        )
    if ours.version and ours.version < _HACKS_SINCE and "OPENPILOT_HACKS" in ours.flags:
        yield refuse(
            "flag_not_heard",
            "OPENPILOT_HACKS is not known to this tinygrad and has no effect",
            expected="tinygrad 0.13 or newer",
            found=".".join(map(str, ours.version)),
            guide="18",
            remedy="take the tinygrad that the stock tree pins",
        )


def _harmless(flag: str, mine: str | None, theirs: str | None, version: tuple[int, ...] | None) -> str | None:
    both_set = (mine or "0") != "0" and (theirs or "0") != "0"
    if flag == "IMAGE" and version and version >= _IMAGE_IS_TRUTH and both_set:
        return "from tinygrad 0.13 on only its truth counts"
    if (mine or "0") == (theirs or "0") and flag in ("IMAGE", "FLOAT16", "NOLOCALS", "OPENPILOT_HACKS"):
        return "0 is the same as unset"
    return None


def _identities(ours: Toolchain, stock: Toolchain) -> Iterator[Finding]:
    if ours.tinygrad and stock.tinygrad and ours.tinygrad != stock.tinygrad:
        yield refuse(
            "tinygrad_differs",
            f"compiles with another tinygrad than {stock.name}",
            expected=stock.tinygrad,
            found=ours.tinygrad,
            guide="18",
            remedy="artifacts of one do not load in the other: compile with the one that will run them",
        )
    if ours.script and stock.script and ours.script != stock.script:
        yield warn(
            "script_differs",
            f"compiles with another script than {stock.name}",
            expected=stock.script,
            found=ours.script,
            guide="18",
            remedy="compare the two; an artifact must have the contract of the runtime that loads it",
        )


def _shown(flag: str, value: str | None) -> str:
    return f"{flag} unset" if value is None else f"{flag}={value}"
