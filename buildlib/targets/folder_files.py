"""Artifacts in a directory: whole or in chunks, each read back before it takes its place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from buildlib.core.manifests import release
from buildlib.core.manifests.manifest import Chunk
from buildlib.core.manifests.release import Storage
from buildlib.errors import InputChanged, TargetError
from buildlib.ports.target import Artifact
from buildlib.store import files
from buildlib.targets.outgoing import check_bytes, chunk_paths, chunks_of, pieces_of
from buildlib.targets.publication import FilePlan


class FolderFiles:
    """Files below a root. AppleDouble companions (`._NAME`) are never taken for files."""

    def __init__(self, root: Path, hash_file: Callable[[Path], str]) -> None:
        self._root = root
        self._hash = hash_file

    def pieces(self, directory: str, name: str) -> list[str]:
        """Chunks of a file and their count, as they stand there."""
        where = self._root / directory
        names = sorted(path.name for path in where.iterdir()) if where.is_dir() else []
        return [f"{directory}/{found}" for found in names if release.is_piece_of(found, name)]

    def sha256(self, directory: str, name: str) -> str | None:
        """Of a file, whole or in chunks; None where it is not there."""
        whole = self._root / directory / name
        if whole.is_file():
            return self._hash(whole)
        pieces = [path for path in self.pieces(directory, name) if not path.endswith(".chunkmanifest")]
        if not pieces:
            return None
        hasher = hashlib.sha256()
        for piece in pieces:
            with (self._root / piece).open("rb") as file:
                while block := file.read(files.BLOCK):
                    hasher.update(block)
        return hasher.hexdigest()

    def plan(self, artifact: Artifact, directory: str, storage: Storage | None, url: str | None) -> FilePlan:
        """What an artifact needs in the folder. Raises TargetError where its bytes are wrong or names collide."""
        check_bytes(artifact)
        path = f"{directory}/{artifact.file_name}"
        self._check_case(directory, artifact.file_name)
        pieces = self.pieces(directory, artifact.file_name)
        whole = self._root / path
        chosen: Storage = storage or ("chunks" if pieces and not whole.exists() else "plain")
        chunks: tuple[Chunk, ...] = ()
        if chosen == "chunks":
            chunks = chunks_of(artifact)
            standing = chunk_paths(artifact, directory, chunks)
            removed = ({*pieces, path} if whole.exists() else set(pieces)) - standing
            present = (
                not removed
                and standing == set(pieces)
                and all(self._hash(self._root / directory / chunk.file_name) == chunk.sha256 for chunk in chunks)
            )
        else:
            removed = set(pieces)
            present = not removed and whole.is_file() and self._hash(whole) == artifact.sha256
        old = [self._root / piece for piece in pieces] or ([whole] if whole.is_file() else [])
        return FilePlan(
            artifact=artifact,
            path=path,
            storage=chosen,
            chunks=chunks,
            removed=tuple(sorted(removed)),
            present=present,
            url=url,
            old_size=sum(file.stat().st_size for file in old) if old else None,
        )

    def write(self, file: FilePlan) -> None:
        """Copies an artifact in. Raises InputChanged, StoreError."""
        where = (self._root / file.path).parent
        if file.storage == "chunks":
            for chunk, piece in zip(file.chunks, pieces_of(file.artifact.path), strict=True):
                _put(where / chunk.file_name, [piece], chunk.sha256)
            count = str(len(file.chunks)).encode()
            files.write(where / release.chunk_manifest_name(file.artifact.file_name), count)
        else:
            _put(self._root / file.path, pieces_of(file.artifact.path), file.artifact.sha256)
        for path in file.removed:
            (self._root / path).unlink(missing_ok=True)
            (self._root / path).with_name("._" + Path(path).name).unlink(missing_ok=True)

    def _check_case(self, directory: str, name: str) -> None:
        where = self._root / directory
        for found in where.iterdir() if where.is_dir() else ():
            if found.name != name and found.name.casefold() == name.casefold():
                raise TargetError(
                    "a file that differs in upper and lower case only is there already",
                    where=str(where),
                    expected=name,
                    got=found.name,
                    remedy="spell the artifact's name as it is published",
                )


def paths_of(file: FilePlan) -> dict[str, str]:
    """What an artifact's writing leaves: path -> sha256, "" where it removes one."""
    directory = file.path.rpartition("/")[0]
    gone = dict.fromkeys(file.removed, "")
    if file.storage != "chunks":
        return {file.path: file.artifact.sha256, **gone}
    count = f"{directory}/{release.chunk_manifest_name(file.artifact.file_name)}"
    pieces = {f"{directory}/{chunk.file_name}": chunk.sha256 for chunk in file.chunks}
    return {**pieces, count: hashlib.sha256(str(len(file.chunks)).encode()).hexdigest(), **gone}


def mode_of(path: Path) -> int:
    """Permissions of the file that is about to be replaced: a share's other writers keep theirs."""
    return path.stat().st_mode & 0o777 if path.is_file() else 0o644


def _put(path: Path, pieces: Iterable[bytes], sha256: str) -> None:
    """Writes a file and reads it back before it takes its place: what stands there stays until the bytes are right."""
    with files.replacing(path, mode=mode_of(path)) as file:
        for piece in pieces:
            file.write(piece)
        file.seek(0)
        stored = files.hash_stream(file)
        if stored != sha256:
            raise InputChanged("the artifact changed while it was copied", where=str(path), expected=sha256, got=stored)
