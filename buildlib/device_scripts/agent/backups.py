"""What stood in an artifact's place before: copies under STATE/backups, each with a receipt in their index."""

from __future__ import annotations

import os
import time

from .active import copy_file, read_back, replace_file
from .hashes import Signature
from .main import Request
from .places import Places, as_record, read_json, require_space, unlink, write_json
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _index_file(places: Places) -> str:
    return os.path.join(places.state, "backups", "index.json")


def backups(places: Places, name: str | None = None) -> list[dict[str, Any]]:
    """Backups in the order in which they were made (their receipts, not the clock): {name, file, sha256, size, at}."""
    known = read_json(_index_file(places))
    entries = known if isinstance(known, list) else []
    entries = [entry for entry in entries if as_record(entry, name=str, file=str, sha256=str, size=int)]
    return [entry for entry in entries if name is None or entry["name"] == name]


def _write(places: Places, entries: list[dict[str, Any]]) -> None:
    places.state_dir("backups")
    write_json(_index_file(places), entries)


def do_backups(request: Request) -> dict[str, Any]:
    """{backups: [...]} of one `name` or of all."""
    return {"backups": backups(request.places, request.args.get("name"))}


def back_up(request: Request, name: str, active: str, sha256: str) -> dict[str, Any]:
    """Copies the active file to STATE/backups/NAME.bak.EPOCH, with a receipt. Bytes it has are not copied twice."""
    places = request.places
    entries = backups(places)
    for entry in entries:
        file = os.path.join(places.state, "backups", entry["file"])
        if entry["name"] == name and entry["sha256"] == sha256 and holds(request, file, sha256):
            entries.remove(entry)
            _write(places, [*entries, entry])
            return entry
    status = os.stat(active)
    require_space(places.state, status.st_size)
    epoch = int(time.time())
    folder = places.state_dir("backups")
    while os.path.exists(os.path.join(folder, f"{name}.bak.{epoch}")):
        epoch += 1
    file = f"{name}.bak.{epoch}"
    copy_file(active, os.path.join(folder, file), status)
    if not holds(request, os.path.join(folder, file), sha256):
        raise Refusal("device", "the backup does not read back as it was written", where=os.path.join(folder, file))
    entry = {"name": name, "file": file, "sha256": sha256, "size": status.st_size, "at": time.time()}
    _write(places, [*entries, entry])
    return entry


def holds(request: Request, file: str, sha256: str) -> bool:
    return os.path.isfile(file) and request.hashes.file(file)[0] == sha256


def prune(places: Places, name: str, keep: int) -> None:
    mine = backups(places, name)
    for entry in mine[: max(len(mine) - max(keep, 1), 0)]:
        drop(places, entry)


def drop(places: Places, entry: dict[str, Any]) -> None:
    _write(places, [other for other in backups(places) if other["file"] != entry["file"]])
    unlink(os.path.join(places.state, "backups", os.path.basename(entry["file"])))


def spare(request: Request, name: str, wanted: Callable[[str], bool]) -> dict[str, Any] | None:
    """The newest backup of a wanted sha256 that verifies."""
    folder = os.path.join(request.places.state, "backups")
    mine = [entry for entry in reversed(backups(request.places, name)) if wanted(entry["sha256"])]
    return next((one for one in mine if holds(request, os.path.join(folder, one["file"]), one["sha256"])), None)


def take(request: Request, active: str, entry: dict[str, Any], seen: Signature | None) -> None:
    """Puts a backup in the active file's place, and uses it up."""
    places = request.places
    require_space(places.models, entry["size"])
    replace_file(places, os.path.join(places.state, "backups", entry["file"]), active, entry["sha256"], seen)
    read_back(request, active, entry["sha256"])
    drop(places, entry)
