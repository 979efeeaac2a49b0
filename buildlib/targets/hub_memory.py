"""What a hub's branch was last seen to hold, kept in a file: looking whether something is fresh needs no network."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec

from buildlib.core.catalog import Model
from buildlib.core.catalog import Target as TargetSettings
from buildlib.core.manifests import release
from buildlib.core.manifests.manifest import Entry
from buildlib.errors import TargetError
from buildlib.store import files
from buildlib.targets import publication
from buildlib.targets.hub import Hub


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """What a commit held: manifest -> bytes, path of an artifact -> sha256."""

    commit: str
    manifests: dict[str, bytes]
    files: dict[str, str]


class Memory:
    """state: the file."""

    def __init__(self, settings: TargetSettings, hub: Hub, state: Path) -> None:
        self._settings = settings
        self._hub = hub
        self._state = state

    def look(self, commit: str, model: Model, *, remember: bool = True) -> Seen:
        """What a commit holds of a model. remember: it is the branch's own."""
        manifests = {path: self.manifest(commit, path) for path in self._settings.manifests}
        paths = tuple(artifact_path(self._settings, model, name) for name in model.artifacts.values())
        there = self._hub.files(commit, paths)
        seen = Seen(
            commit=commit,
            manifests=manifests,
            files={path: self._hub.sha256(commit, file) for path, file in there.items()},
        )
        known = self.remembered()
        others = {path: sha256 for path, sha256 in (known.files if known else {}).items() if path not in paths}
        if remember:
            self._remember(dataclasses.replace(seen, files={**others, **seen.files}))
        return seen

    def manifest(self, commit: str, path: str) -> bytes:
        data = self._hub.read(commit, path)
        if data is None:
            raise TargetError(
                "no such manifest in the repository",
                where=f"{self._hub.repository}/{path}",
                remedy="correct `manifests` of the target in models.yaml, or commit the manifest first",
            )
        return data

    def remembered(self) -> Seen | None:
        """What was seen last; None before the first look, or where the file is lost."""
        try:
            return msgspec.json.decode(self._state.read_bytes(), type=Seen)
        except (OSError, msgspec.DecodeError, RecursionError):
            return None

    def _remember(self, seen: Seen) -> None:
        self._state.parent.mkdir(parents=True, exist_ok=True)
        files.write(self._state, msgspec.json.encode(seen))


def artifact_path(settings: TargetSettings, model: Model, name: str) -> str:
    """Where a model's file stands in the repository."""
    return f"{release.directory(settings, model)}/{name}"


def entries_of(seen: Seen, model: Model) -> tuple[Entry, ...]:
    """A model's entries, one an artifact, from the first manifest that has it."""
    found = {path: publication.entries_in(data, path, model) for path, data in seen.manifests.items()}
    return publication.former_entries(found)
