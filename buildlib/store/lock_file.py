"""models.lock on disk."""

from __future__ import annotations

from pathlib import Path

from buildlib.core.sources.lockfile import Lock, parse_lock
from buildlib.errors import SourceError


def read_lock(lock_file: Path) -> Lock:
    """models.lock; an empty one where there is none. Raises SourceError where it cannot be read."""
    try:
        return parse_lock(lock_file.read_text(encoding="utf-8"), path=lock_file.name)
    except FileNotFoundError:
        return Lock()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot be read: {error}", where=lock_file.name, remedy="git checkout models.lock") from None
