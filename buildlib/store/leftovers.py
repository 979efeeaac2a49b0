"""What a build that was cut left behind: temporary files that will never take their places.

Parts of downloads (`incoming/*.part`) are none: they are resumed.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from buildlib.store.workspace import Workspace


def find(workspace: Workspace) -> Iterator[Path]:
    """Temporary files of `store.files`, blobs and samples that were never finished. Only true under the build lock.

    The caches are left out: commands that only read write them too, and take no lock.
    """
    for top in _tops(workspace):
        yield from (path for path in _walk(top) if path.name.startswith(".") and path.suffix == ".tmp")
    yield from _children(workspace.state / "blobs" / "incoming")
    yield from (path for path in _children(workspace.state / "incoming") if path.suffix != ".part")


def sweep(workspace: Workspace) -> None:
    """Removes them. What cannot be removed stays."""
    for path in list(find(workspace)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


def _tops(workspace: Workspace) -> list[Path]:
    ours = ("receipts", "latest", "attempts", "devices", "blobs")
    return [workspace.root / "artifacts", *(workspace.state / name for name in ours)]


def _walk(top: Path) -> Iterator[Path]:
    for path in _children(top):
        if path.is_dir() and not path.is_symlink():
            if path.name != "root":  # an embedded device's own files
                yield from _walk(path)
        else:
            yield path


def _children(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
