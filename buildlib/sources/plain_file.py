"""A file that is read as a source: no pipe, socket or device, which a reader would wait for without end."""

from __future__ import annotations

from pathlib import Path

from buildlib.errors import SourceError
from buildlib.store import files


def require_plain(path: Path, where: str) -> None:
    """Raises SourceError for what is neither file nor folder, OSError where nothing is. where: for the message."""
    if odd := files.special(path):
        raise SourceError(
            "no plain file",
            where=where,
            expected="an ONNX file",
            got=odd,
            remedy="write what comes out of it to a file, and name that",
        )
