"""Captured jits of older tinygrads, small enough to keep: tensors and kernels are filled with one byte, lengths stay.

    python -m tests.support.kept_captures DIRECTORY

writes `captured/tinygrad-VERSION.tar.xz` beside the tests that read them, from DIRECTORY/tinygrad-VERSION/*.pkl, as
`tests/integration/test_artifacts_of_older_tinygrads.py` leaves them in `.pytest_cache/compiled files`.
"""

from __future__ import annotations

import io
import struct
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.rewriting import rewrite

KEPT = Path(__file__).parent.parent / "integration" / "captured"
SMALL = 200
"""Bytes up to which a payload stays as it is."""


def filled(payload: bytes) -> bytes:
    """As many bytes, none of them zero; zeros stay zeros."""
    return payload if len(payload) <= SMALL or not any(payload) else b"\x01" * len(payload)


def filled_pickle(pickle: bytes) -> bytes:
    """A pickle with its payloads filled."""

    def edit(name: str, argument: object, raw: bytes) -> bytes | None:
        if name not in ("BINBYTES", "BINBYTES8", "BYTEARRAY8") or not isinstance(argument, bytes | bytearray):
            return None
        return raw[: len(raw) - len(argument)] + filled(bytes(argument))

    return rewrite(pickle, edit)


def filled_artifact(data: bytes) -> bytes:
    """An artifact of either container: a plain pickle, or one with its buffers behind it."""
    if data[:1] == b"\x80":
        return filled_pickle(data)
    pickle, *buffers = _parts(data)
    return b"".join(
        struct.pack("<q", len(part)) + part for part in (filled_pickle(pickle), *(filled(part) for part in buffers))
    )


def _parts(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<q", data, at)
        yield data[at + 8 : at + 8 + length]
        at += 8 + length


def write(directory: Path, archive: Path) -> None:
    """All artifacts of a directory, in an archive that depends on nothing else."""
    with tarfile.open(archive, "w:xz") as tar:
        for path in sorted(directory.glob("*.pkl")):
            data = filled_artifact(path.read_bytes())
            entry = tarfile.TarInfo(path.name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def unpack(version: str, directory: Path) -> None:
    """Puts what was kept of a tinygrad into a directory."""
    with tarfile.open(KEPT / f"tinygrad-{version}.tar.xz") as tar:
        for entry in tar:
            content = tar.extractfile(entry)
            assert content is not None
            (directory / entry.name).write_bytes(content.read())


if __name__ == "__main__":
    for made in sorted(Path(sys.argv[1]).glob("tinygrad-*")):
        write(made, KEPT / f"{made.name}.tar.xz")
