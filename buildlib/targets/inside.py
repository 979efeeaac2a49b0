"""Paths that stay in their target: others can write to a share or a clone, and plant links and journals in it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from buildlib.errors import TargetError


def check_inside(root: Path, paths: Iterable[str]) -> None:
    """Raises TargetError for a path that leads out of root, by its own words or through a symbolic link."""
    try:
        top = root.resolve()
    except (OSError, RuntimeError) as error:
        raise _leads_out(root, root.name, str(error)) from None
    for path in paths:
        parts = PurePosixPath(path).parts
        if not parts or parts[0] == "/" or ".." in parts or "\0" in path or "\\" in path:
            raise _leads_out(root, path, "no path inside it")
        try:
            real = (root / path).resolve()
        except (OSError, RuntimeError) as error:  # links that lead to each other
            raise _leads_out(root, path, str(error)) from None
        if not real.is_relative_to(top):
            raise _leads_out(root, path, f"it leads to {real}")


def _leads_out(root: Path, path: str, why: str) -> TargetError:
    return TargetError(
        "a path leads out of the target, and is neither read nor written",
        where=f"{root}: {path}",
        expected="files and folders of its own, no links to other places",
        got=why[:300],
        remedy="see who put it there (ls -l), and replace the link by a folder",
    )
