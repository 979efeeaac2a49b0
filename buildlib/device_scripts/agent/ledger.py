"""What the build put on this device, by device path: `gc` removes nothing else."""

from __future__ import annotations

import os

from .places import Places, as_record, read_json, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = "uploads.json"


def known(places: Places) -> dict[str, Any]:
    """{device path: {size, sha256}}."""
    found = read_json(os.path.join(places.state, NAME))
    entries = found.items() if isinstance(found, dict) else ()
    return {path: entry for path, entry in entries if as_record(entry, size=int, sha256=str)}


def add(places: Places, entries: dict[str, Any]) -> None:
    """Notes files that were put here, in one write."""
    before = known(places)
    after = {**before, **entries}
    if after != before:
        write_json(os.path.join(places.state_dir(), NAME), after)


def forget(places: Places, path: str) -> None:
    """Takes back what `add` noted."""
    entries = known(places)
    entries.pop(path, None)
    write_json(os.path.join(places.state, NAME), entries)
