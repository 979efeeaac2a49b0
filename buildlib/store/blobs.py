"""The content store: every ONNX and artifact once, under its sha256. Blobs are read-only and never edited."""

from __future__ import annotations

import uuid
from pathlib import Path

from buildlib.errors import StoreError
from buildlib.store import files
from buildlib.store.stat_cache import StatCache

DIGITS = frozenset("0123456789abcdef")


class BlobStore:
    """A directory of blobs, `ab/cdef...` by sha256. hashes is asked before a blob is believed."""

    def __init__(self, root: Path, hashes: StatCache) -> None:
        self._root = root
        self._hashes = hashes

    def path(self, sha256: str) -> Path:
        """Where a blob is or would be."""
        return Path(self._place(sha256))

    def _place(self, sha256: str) -> str:
        if len(sha256) != 64 or not DIGITS.issuperset(sha256):
            raise StoreError("not a sha256", expected="64 lower-case hex digits", got=repr(sha256)[:80])
        return f"{self._root}/{sha256[:2]}/{sha256[2:]}"

    def has(self, sha256: str) -> bool:
        """True when the blob is there and its bytes still have that hash."""
        return self._hashes.sha256(self._place(sha256)) == sha256

    def add(self, source: Path) -> str:
        """Takes a copy of a file in; its sha256. Bytes are read once."""
        incoming = self._root / "incoming" / uuid.uuid4().hex
        sha256 = files.copy(source, incoming, mode=0o444)
        self._settle(incoming, sha256)
        return sha256

    def adopt(self, source: Path, sha256: str) -> None:
        """Takes over a file on the same file system whose hash the caller has just read, without a copy."""
        source.chmod(0o444)
        self._settle(source, sha256)

    def restore(self, sha256: str, destination: Path) -> None:
        """Writes a blob's bytes to a file in one step. Raises StoreError when the blob is lost or damaged."""
        try:
            written = files.copy(self.path(sha256), destination)
        except FileNotFoundError as error:
            raise StoreError("the content store has lost this blob", where=sha256) from error
        if written != sha256:
            destination.unlink(missing_ok=True)
            raise StoreError("a blob in the content store is damaged", where=sha256, got=written)
        self._hashes.note(destination, sha256)

    def all(self) -> dict[str, int]:
        """Every blob's sha256 and size in bytes."""
        return {
            f"{file.parent.name}{file.name}": file.stat().st_size
            for file in self._root.glob("[0-9a-f][0-9a-f]/*")
            if len(file.name) == 62
        }

    def remove(self, sha256: str) -> None:
        """Drops a blob; one that is not there is fine."""
        self.path(sha256).unlink(missing_ok=True)

    def _settle(self, incoming: Path, sha256: str) -> None:
        final = self.path(sha256)
        final.parent.mkdir(parents=True, exist_ok=True)
        incoming.replace(final)
        files.sync_directory(final.parent)
        self._hashes.note(final, sha256)
