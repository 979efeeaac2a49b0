"""What the judge of freshness may ask about the world. Implemented over files and probes by `steps.world`, and over
plain dictionaries in tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from buildlib.core.catalog import Catalog, Device, Model
from buildlib.core.receipt import Attempt, Receipt


class Subject(msgspec.Struct, frozen=True):
    """One model on one device, as the catalog has them."""

    catalog: Catalog
    model: Model
    device: Device


class SourceSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What a source is right now, as a key names it; None where it cannot be had, and problem says why.

    content: `{"sha256": ...}` of a file or download, the recipe of a sample, commit and oid of a file in git.
    assumed: it could not be looked at, and the last known content stands in for it.
    """

    content: Mapping[str, Any] | None
    problem: str | None = None
    remedy: str | None = None
    assumed: bool = False


class DeviceSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A device's last observation.

    identity: the toolchain, part of keys; None before the first probe. unit: which device this is. files: sha256 of
    what of ours is there, by remote path. reachable: the newest probe was answered. age: seconds since the last answer.
    """

    identity: Mapping[str, Any] | None = None
    unit: str = ""
    files: Mapping[str, str] = {}
    reachable: bool = False
    age: float = 0.0
    problem: str | None = None
    remedy: str | None = None


class World(Protocol):
    """Observations. Every method is cheap, and answers the same all through one judgement."""

    def source(self, subject: Subject, role: str) -> SourceSeen:
        """The content of a model's source."""
        ...

    def device(self, name: str) -> DeviceSeen:
        """The last observation of a device."""
        ...

    def file(self, path: str) -> str | None:
        """sha256 of a file here (path from the project's root), None where there is none."""
        ...

    def blob(self, sha256: str) -> bool:
        """True when the content store has these bytes."""
        ...

    def script(self, subject: Subject) -> str:
        """Digest of the script that would compile the model, or the remote path of the device's own."""
        ...

    def harness(self, subject: Subject) -> str | dict[str, str]:
        """Digest of the harness that validates an artifact; of a device's own, its and that of what watches it."""
        ...

    def published(self, subject: Subject, wanted: Mapping[str, str]) -> str | None:
        """Why the model's target does not hold these artifacts (file name -> sha256); None when it does."""
        ...

    def receipt(self, stage: str, key: str) -> Receipt | None:
        """The receipt of a step with this key."""
        ...

    def latest(self, subject: Subject, stage: str) -> Receipt | None:
        """The receipt of the model's last success at a stage on this device, under its former name too."""
        ...

    def attempt(self, subject: Subject, stage: str) -> Attempt | None:
        """The model's last failure at a stage."""
        ...
