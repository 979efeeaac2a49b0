"""An artifact as one run of bytes: a plain file, or the chunks that openpilot cuts for hosts with a size limit.

Chunks are `NAME.chunk01of03`, `NAME.chunk02of03`, ... beside a `NAME.chunkmanifest` (facts, section 1). Nothing is
joined on disk: reads go to the chunk that holds them. A memory map is avoided: a file that shrinks meanwhile would
end the process.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from buildlib.errors import ArtifactError
from buildlib.store import files

_CHUNK = re.compile(r"(?P<name>.+)\.chunk(?P<number>\d{2,4})of(?P<count>\d{2,4})")
_MANIFEST = ".chunkmanifest"
_MAX_CHUNKS = 1000


def chunk_paths(path: Path) -> tuple[Path, ...]:
    """The files that make up the artifact that `path` names, in order.

    path: the artifact, any of its chunks, its chunk manifest, or the name that chunks beside it were cut from.
    Raises ArtifactError when there is no such file, or a chunk is missing.
    """
    if path.name.endswith(_MANIFEST):
        return _chunks_of(path.with_name(path.name.removesuffix(_MANIFEST)))
    if found := _CHUNK.fullmatch(path.name):
        return _chunks_of(path.with_name(found["name"]))
    if path.is_file():
        return (path,)
    if path.exists():
        got = "a folder" if path.is_dir() else files.special(path)
        raise ArtifactError(
            "no plain file", where=str(path), expected="an artifact's file", got=got, remedy="name a file"
        )
    return _chunks_of(path)


def _chunks_of(base: Path) -> tuple[Path, ...]:
    found: dict[int, dict[int, Path]] = {}
    for one in sorted(base.parent.iterdir()) if base.parent.is_dir() else ():
        match = _CHUNK.fullmatch(one.name)
        if match and match["name"] == base.name and one.is_file():
            found.setdefault(int(match["count"]), {})[int(match["number"])] = one
    if not found:
        raise ArtifactError(
            "no such artifact",
            where=str(base),
            expected=f"the file, or its chunks {base.name}.chunk01ofNN",
            remedy="`doit status` shows which artifacts exist",
        )
    declared = _declared_count(base)
    if len(found) > 1 and declared not in found:
        raise ArtifactError(
            "chunks of different splits lie together",
            where=str(base),
            got=", ".join(f"{len(have)} of {count}" for count, have in sorted(found.items())),
            remedy="delete the chunks of the older split",
        )
    count = declared if declared in found else next(iter(found))
    if declared is not None and declared != count:
        raise ArtifactError(
            "chunk manifest and chunks disagree", where=str(base), expected=f"{declared} chunks", got=f"{count}"
        )
    missing = [number for number in range(1, min(count, _MAX_CHUNKS) + 1) if number not in found[count]]
    if missing or not 0 < count <= _MAX_CHUNKS or len(found[count]) != count:
        raise ArtifactError(
            "a chunk is missing",
            where=str(base),
            expected=f"{count} chunks",
            got=f"{len(found[count])}" + (f", without number {missing[0]}" if missing else ""),
            remedy="fetch all chunks again",
            guide="11",
        )
    return tuple(found[count][number] for number in range(1, count + 1))


def _declared_count(base: Path) -> int | None:
    manifest = base.with_name(base.name + _MANIFEST)
    try:
        with manifest.open("rb") as file:
            text = file.read(64 * 1024)
    except OSError:
        return None
    if text.strip().isdigit():
        return int(text.strip()[:9])
    names = re.findall(rb"\.chunk\d+of(\d+)", text)
    return int(names[0][:9]) if names else None


class ByteSource:
    """Random reads over the files of one artifact. A context manager; not safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self.paths = chunk_paths(path)
        self.name = path.name
        self._files: list[tuple[int, int, BinaryIO]] = []
        self.size = 0
        try:
            for one in self.paths:
                file = one.open("rb", buffering=0)
                length = file.seek(0, 2)
                self._files.append((self.size, length, file))
                self.size += length
        except OSError as error:
            self.close()
            raise ArtifactError("cannot be read", where=str(path), got=error.strerror or str(error)) from error

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end."""
        parts: list[bytes] = []
        try:
            for start, size, file in self._files:
                if length <= 0 or offset < start:
                    break
                if offset >= start + size:
                    continue
                file.seek(offset - start)
                want = min(length, start + size - offset)
                while want > 0:
                    block = file.read(want)
                    if not block:
                        raise ArtifactError("shrank while it was read", where=self.name, remedy="read it again")
                    parts.append(block)
                    want -= len(block)
                    offset += len(block)
                    length -= len(block)
        except OSError as error:
            raise ArtifactError("cannot be read", where=self.name, got=error.strerror or str(error)) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        for _, _, file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
