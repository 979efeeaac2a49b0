"""What a kind of source can do: say what its bytes are, cheaply, and fetch them.

A kind is one file in `buildlib/sources`, named like its `kind:` in models.yaml, with a class `Reader`; `sources.reader`
finds it by that name. It passes `tests/conformance/test_sources.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Protocol

from buildlib.core.sources.lockfile import Pin
from buildlib.errors import Cancelled
from buildlib.ports.events import Events, Silent


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What a source is now, as far as can be said without fetching it.

    identity: canonical, and part of the source step's key: content where it is known, else what names it for good.
    sha256: of the content, 64 hex digits; None where only a fetch can tell.
    size: bytes; None where only a fetch can tell.
    detail: for people and for `explain`: path, url, commit, lfs, ref.
    """

    identity: Mapping[str, str]
    sha256: str | None
    size: int | None = None
    detail: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A source that has arrived: a whole file with that content."""

    path: Path
    sha256: str
    size: int
    detail: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SourceContext:
    """What a source needs from around it.

    root: the project's root, which relative paths are taken from.
    state: directory for what lasts between runs (mirrors of repositories).
    hash_file: sha256 of a file's content; the caller's may remember.
    subject: the model, for events and errors.
    role: which part of the model its ONNX is.
    pin: the source's entry in models.lock.
    cancel: once set, fetching ends with Cancelled and what has come is kept to be resumed.
    """

    root: Path
    state: Path
    hash_file: Callable[[Path], str]
    subject: str = ""
    role: str = "supercombo"
    pin: Pin | None = None
    events: Events = field(default_factory=Silent)
    cancel: Event | None = None

    def check_cancelled(self) -> None:
        """Raises Cancelled once the run was asked to stop."""
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled("stopped while a source was fetched", where=self.subject or None)


class SourceReader(Protocol):
    """One source of one model."""

    def observe(self) -> Observed:
        """What it is now. No network. Raises SourceError; SourceUnavailable where it may only be away."""
        ...

    def fetch(self, into: Path) -> Fetched:
        """Makes `into` the source's content, whole or not at all. Raises SourceError, SourceUnavailable, Cancelled.

        What had come of an interrupted fetch stays beside it as `NAME.part` and is resumed where the kind can.
        """
        ...


class MovingSource(SourceReader, Protocol):
    """A source with a reference that can move: only `resolve` follows it."""

    def resolve(self) -> Pin:
        """Asks where the reference points now. The only method besides `fetch` that uses the network."""
        ...
