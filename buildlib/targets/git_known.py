"""Hashes of large files in a repository, remembered: a plain blob's sha256 costs reading all of it."""

from __future__ import annotations

import hashlib

import msgspec

from buildlib.core.sources.lfs_pointer import POINTER_LIMIT
from buildlib.store import files
from buildlib.targets import git_tree
from buildlib.targets.git_commands import Git
from buildlib.targets.git_preconditions import Repository


class Known:
    """Blob oid -> sha256. A cache, sealed: losing it costs time, a wrong line would pass other bytes for published."""

    def __init__(self, repository: Repository) -> None:
        self._path = repository.state / "blobs"

    def read(self) -> dict[str, str]:
        """What is known; nothing where the file is missing or broken."""
        try:
            return msgspec.json.decode(files.read_sealed(self._path), type=dict[str, str])
        except (OSError, ValueError, RecursionError):
            return {}

    def note(self, git: Git, commit: str, paths: set[str]) -> None:
        """Adds the large plain files of a commit."""
        known = self.read()
        for file in git_tree.files_at(git, commit, *sorted(paths)).values() if paths else ():
            if file.oid not in known and git_tree.blob_size(git, file.oid) >= POINTER_LIMIT:
                known[file.oid] = hashlib.sha256(git_tree.blob(git, file.oid)).hexdigest()
        files.write_sealed(self._path, msgspec.json.encode(known))
