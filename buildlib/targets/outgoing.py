"""An artifact on its way out: its bytes are those that were verified, whole or in chunks of openpilot's form."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from buildlib.core.manifests import release
from buildlib.core.manifests.manifest import Chunk
from buildlib.errors import TargetError
from buildlib.ports.target import Artifact
from buildlib.store import files


def check_bytes(artifact: Artifact) -> None:
    """Reads the file once more. Raises TargetError where its hash is another."""
    if files.hash_file(artifact.path) != artifact.sha256:
        raise TargetError(
            "the artifact's bytes are not those that were verified",
            where=str(artifact.path),
            expected=artifact.sha256,
            remedy="run doit again; it restores the file from the content store",
            guide="12",
        )


def pieces_of(path: Path) -> Iterator[bytes]:
    """A file's chunks, one after the other; one empty chunk for an empty file."""
    with path.open("rb") as file:
        first = True
        while (piece := file.read(release.CHUNK_SIZE)) or first:
            first = False
            yield piece


def chunks_of(artifact: Artifact) -> tuple[Chunk, ...]:
    """Names and hashes of the chunks that an artifact is cut into."""
    names = release.chunk_names(artifact.file_name, artifact.size)
    return tuple(
        Chunk(file_name=name, sha256=hashlib.sha256(piece).hexdigest())
        for name, piece in zip(names, pieces_of(artifact.path), strict=True)
    )


def chunk_paths(artifact: Artifact, directory: str, chunks: tuple[Chunk, ...]) -> set[str]:
    """The paths of an artifact in chunks: each of them, and their count."""
    names = [chunk.file_name for chunk in chunks]
    return {f"{directory}/{name}" for name in (*names, release.chunk_manifest_name(artifact.file_name))}
