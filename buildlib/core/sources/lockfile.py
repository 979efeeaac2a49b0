"""models.lock: what moving references were resolved to. Pure: text in, values out, and back.

One JSON object, keys sorted, two spaces, so that a change is a short diff. Only `doit update` and `doit new` write it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from buildlib.errors import SourceError

FORMAT = 1
NAME = "models.lock"
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Pin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One git source, resolved.

    repository, ref, path: as models.yaml said them; where that has changed since, the pin is void.
    commit: 40 (or 64) hex digits. lfs: the LFS oid where the path holds a pointer. sha256, size: of the content.
    """

    repository: str
    ref: str
    path: str
    commit: str
    lfs: str | None = None
    sha256: str
    size: int

    def is_for(self, repository: str, ref: str, path: str) -> bool:
        """True while models.yaml still asks for what was resolved."""
        return (self.repository, self.ref, self.path) == (repository, ref, path)


class Lock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of models.lock: "MODEL/ROLE" -> Pin."""

    format: int = FORMAT
    sources: Mapping[str, Pin] = {}

    def pin(self, model: str, role: str) -> Pin | None:
        """The pin of a model's source."""
        return self.sources.get(f"{model}/{role}")

    def with_pin(self, model: str, role: str, pin: Pin) -> Lock:
        """A lock in which that source is resolved so."""
        return Lock(sources={**self.sources, f"{model}/{role}": pin})

    def without(self, keep: set[str]) -> Lock:
        """A lock with only those "MODEL/ROLE" that are in `keep`: what models.yaml no longer names is dropped."""
        return Lock(sources={key: pin for key, pin in self.sources.items() if key in keep})


def parse_lock(text: str, *, path: str = NAME) -> Lock:
    """Text -> Lock; empty text is an empty lock. Raises SourceError with the line where it can be told."""
    if not text.strip():
        return Lock()
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(("<<<<<<< ", ">>>>>>> ")) or line == "=======":
            raise SourceError(
                "an unfinished merge",
                where=f"{path}:{number}",
                expected="JSON",
                got=line[:40],
                remedy=f"git checkout --theirs {path}, then doit update",
            )
    try:
        lock = msgspec.json.decode(text.encode(), type=Lock)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise SourceError(
            "cannot be read", where=path, expected=f"models.lock, format {FORMAT}", got=str(error), remedy=_AGAIN
        ) from None
    if lock.format != FORMAT:
        raise SourceError(
            "another format", where=path, expected=f"format {FORMAT}", got=str(lock.format), remedy=_AGAIN
        )
    for key, pin in lock.sources.items():
        _check(pin, f"{path}: {key}")
    return lock


_AGAIN = "git checkout models.lock, or delete it and doit update"


def _check(pin: Pin, where: str) -> None:
    if not _COMMIT.fullmatch(pin.commit):
        raise SourceError("a bad commit", where=where, expected="40 hex digits", got=pin.commit[:80], remedy=_AGAIN)
    if not _SHA256.fullmatch(pin.sha256):
        raise SourceError("a bad sha256", where=where, expected="64 hex digits", got=pin.sha256[:80], remedy=_AGAIN)
    if pin.lfs is not None and pin.lfs != pin.sha256:
        raise SourceError("an LFS oid that is not its sha256", where=where, expected=pin.sha256, got=pin.lfs[:80])
    if pin.size < 0:
        raise SourceError("a bad size", where=where, expected="bytes", got=str(pin.size), remedy=_AGAIN)


def render_lock(lock: Lock) -> str:
    """The text of a lock: the same lock is always the same bytes."""
    return msgspec.json.format(msgspec.json.encode(lock, order="sorted"), indent=2).decode() + "\n"


def changes(before: Lock, after: Lock) -> list[str]:
    """What an update moved, one line a source: `nopp: 9c8d21f4 -> 0a1b77e0 (main)`."""
    lines = []
    for key in sorted({*before.sources, *after.sources}):
        old, new = before.sources.get(key), after.sources.get(key)
        name = key.removesuffix("/supercombo")
        if old == new:
            continue
        if new is None:
            lines.append(f"{name}: no longer in models.yaml")
        elif old is None:
            lines.append(f"{name}: {new.commit[:8]} ({new.ref})")
        else:
            same = ", the same content" if old.sha256 == new.sha256 else ""
            lines.append(f"{name}: {old.commit[:8]} -> {new.commit[:8]} ({new.ref}){same}")
    return lines
