"""The key of a step: one canonical value that holds everything its result depends on.

Equal keys mean that the step need not run again; unequal keys mean that it must. Unequal bytes mean nothing by
themselves: compilers vary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

KEY_FORMAT = 1
"""Raised when the meaning of keys changes; every step then runs again, and says that this is why."""

Parts = Mapping[str, Any]
"""What a key is made of: JSON values only, by subject (`onnx`, `flags`, `arguments`, `toolchain`, ...)."""

_encoder = msgspec.json.Encoder(order="deterministic")


def canonical(value: object) -> bytes:
    """The one JSON text of a value: mapping keys sorted, no spaces, UTF-8."""
    return _encoder.encode(value)


def digest(value: object) -> str:
    """sha256 of a value's canonical form, 64 hex digits."""
    return hashlib.sha256(canonical(value)).hexdigest()


def step_key(stage: str, version: int | str, parts: Parts, key_format: int = KEY_FORMAT) -> str:
    """The key of one step, 64 hex digits.

    version: the step's own: an integer for a local step, the digest of its script for one that runs on a device.
    """
    return digest({"format": key_format, "stage": stage, "version": version, "parts": parts})


class Difference(msgspec.Struct, frozen=True):
    """One thing that is not as it was; None means absent."""

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.path}: {_short(self.before)} -> {_short(self.after)}"


def differences(before: object, after: object, path: str = "") -> list[Difference]:
    """Every leaf in which two parts differ, in the order of their paths."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        found: list[Difference] = []
        for name in sorted({*before, *after}):
            inner = f"{path}.{name}" if path else str(name)
            found += differences(before.get(name), after.get(name), inner)
        return found
    return [] if before == after else [Difference(path, before, after)]


def _short(value: object) -> str:
    if value is None:
        return "unset"
    text = value if isinstance(value, str) else canonical(value).decode()
    return f"{text[:8]}..." if _is_digest(text) else text


def _is_digest(text: str) -> bool:
    return len(text) in (40, 64) and all(c in "0123456789abcdef" for c in text)
