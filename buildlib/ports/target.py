"""What a publishing target can do: take artifacts and manifest entries, in one step, and give them back.

A new target is one file, and passes `tests/conformance/test_targets.py`. Which verdicts a publish needs is decided
before a target is asked; the rails (samples stay in sandboxes, one tinygrad at one URL) hold in the target too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Protocol

from buildlib.core.catalog import Model
from buildlib.core.manifests.catalog_release import NewCatalog
from buildlib.core.manifests.manifest import Chunk, Entry
from buildlib.core.manifests.release import Storage
from buildlib.ports.events import Events, Silent


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A file to publish. path: where its bytes are here, believed only after its hash was read. size: bytes."""

    file_name: str
    path: Path
    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """A file as it stands in a target. url: the manifest's own."""

    file_name: str
    path: str
    sha256: str
    size: int
    url: str | None = None
    chunks: tuple[Chunk, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Request:
    """One model's publication.

    message: the commit's subject, from `core.manifests.release.message`. build_time: UTC, `2026-08-23T22:01:27Z`.
    tinygrad: commit or content digest of the tinygrad that made the artifacts.
    confined: why they may go to sandboxes only ("made from a sample"); None when they may go anywhere.
    last_published: file name -> sha256 that we published last; another hash there is somebody else's work.
    cut_off: the same of our publications that were killed since, which may have reached the target or not.
    supersede: replace somebody else's newer entry. new_bundle: values of a bundle to add (publish-new).
    placed: the artifacts as they stand in another target already; then only manifests are written.
    """

    model: Model
    artifacts: tuple[Artifact, ...]
    message: str
    build_time: str
    tinygrad: str | None = None
    confined: str | None = None
    last_published: Mapping[str, str] = field(default_factory=dict)
    cut_off: tuple[Mapping[str, str], ...] = ()
    supersede: bool = False
    new_bundle: Mapping[str, object] | None = None
    placed: tuple[PublishedFile, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Check:
    """A precondition. what: one line; remedy: what to type where it does not hold."""

    name: str
    ok: bool
    what: str
    remedy: str | None = None


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """A path that a publish writes (new_size, bytes) or removes (None). old_size None: not there yet."""

    path: str
    old_size: int | None
    new_size: int | None
    storage: Storage


@dataclass(frozen=True, kw_only=True)
class TargetState:
    """What a publish would do. summary: `IQModels (branch main, clean, level with origin)`. diff: of the manifests.

    published: the files as they would stand; () where no plan could be made.
    """

    summary: str
    checks: tuple[Check, ...]
    files: tuple[FileChange, ...]
    diff: str
    message: str
    unpushed: str | None = None
    published: tuple[PublishedFile, ...] = ()

    @property
    def refused(self) -> tuple[Check, ...]:
        """The preconditions that do not hold."""
        return tuple(check for check in self.checks if not check.ok)


@dataclass(frozen=True, kw_only=True)
class Published:
    """A publication that stands. changed: False when it stood before. commit: None for targets without commits.

    entries: what the manifests now say, one an artifact. former: what they said before (for confirm, which waits while
    a host still shows that); () where nothing stood there, or nothing changed.
    """

    changed: bool
    commit: str | None
    files: tuple[PublishedFile, ...]
    paths: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    former: tuple[Entry, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What is in a target now, read without the network.

    entries: manifest path -> file name -> what it says (missing: no such entry). files: file name -> sha256 in the
    target. unpushed: our commit that did not reach the remote. problems: what could not be read, one line each.
    """

    entries: Mapping[str, Mapping[str, Entry]]
    files: Mapping[str, str]
    unpushed: str | None = None
    problems: tuple[str, ...] = ()

    def holds(self, wanted: Mapping[str, str]) -> bool:
        """True where file name -> sha256 is what files and every manifest say, and nothing waits for a push."""
        said = all(
            name in entries and entries[name].sha256 == sha256
            for entries in self.entries.values()
            for name, sha256 in wanted.items()
        )
        return said and self.unpushed is None and all(self.files.get(name) == sha for name, sha in wanted.items())


MakeCatalog = Callable[[Mapping[str, bytes]], NewCatalog]
"""From the present manifests (path -> bytes) to the catalog after them; see `catalog_release.new_catalog`."""


class Target(Protocol):
    """A place to publish to. Used from one thread at a time; several processes are kept apart by its own lock."""

    name: str

    def observe(self, model: Model) -> Observation:
        """What it holds of a model. Reads only, no network; raises nothing but for a target that is not there."""
        ...

    def inspect(self, request: Request) -> TargetState:
        """What publish would do, and what stands in its way. Changes nothing."""
        ...

    def publish(self, request: Request, events: Events = ..., cancel: Event | None = None) -> Published:
        """Files first, manifests last, all or nothing. Finishes or undoes what a killed run left.

        Raises TargetError (a precondition, a conflict, a refused push: nothing was changed), RailRefused, Cancelled.
        """
        ...

    def abandon(self, model: Model, *, sure: bool = False) -> str | None:
        """Drops a publication that did not reach the remote; what it was, or None where there was none (any more).

        sure: only where the remote says so. Raises TargetError where it does not answer then.
        """
        ...

    def unpublish(self, model: Model, message: str, events: Events = ..., cancel: Event | None = None) -> Published:
        """Puts the former artifact and entries back, as a publication of its own. Raises TargetError."""
        ...

    def manifests(self) -> Mapping[str, bytes]:
        """path -> bytes of the manifests as they stand here. Raises TargetError."""
        ...

    def start_catalog(self, make: MakeCatalog, events: Events = ..., cancel: Event | None = None) -> Published:
        """Adds a new catalog's manifests beside the old ones, which stay; nothing where they are there. TargetError."""
        ...


__all__ = [
    "Artifact",
    "Check",
    "Events",
    "FileChange",
    "MakeCatalog",
    "Observation",
    "Published",
    "PublishedFile",
    "Request",
    "Silent",
    "Target",
    "TargetState",
]
