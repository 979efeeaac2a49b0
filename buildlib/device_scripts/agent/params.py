"""The device's parameters: one file each. Read freely; written only from a short list, by rename."""

from __future__ import annotations

import binascii
import os
import re

from . import journal, locks
from .guard import require_offroad
from .main import Request
from .places import Places, own_like_folder, read_regular, sync_dir, unlink, write_flushed
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WRITABLE = (
    "ModelManager_ActiveBundle",
    "ModelManager_DownloadIndex",
    "ModelManager_DownloadRef",
    "ModelManager_LastSyncTime",
)
"""Never IsOnroad, IsOffroad or OffroadMode, never ModelManager_ClearCache (it deletes files, backups too)."""


def read(places: Places, key: str) -> bytes | None:
    """A parameter's bytes; None if it is unset."""
    if "/" in key or key in ("", ".", ".."):
        raise Refusal("request", "no parameter has that name", got=repr(key))
    path = os.path.join(places.params, key)
    value = read_regular(path, 4 << 20)
    if value is None and os.path.lexists(path):
        raise Refusal("device", "a parameter cannot be read", where=places.device(path), expected="a readable file")
    return value


def write(places: Places, key: str, value: bytes | None) -> None:
    """Replaces a parameter by rename, under the parameters' own lock as the device's Params does; None unsets it.

    Raises Refusal(rail) for a key that is not in `WRITABLE`.
    """
    if key not in WRITABLE:
        raise Refusal("rail", "the agent does not write this parameter", got=key, expected=", ".join(WRITABLE))
    import fcntl

    target = os.path.join(places.params, key)
    lock = os.open(os.path.join(os.path.dirname(places.params), ".lock"), os.O_RDWR | os.O_CREAT, 0o777)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if value is None:
            unlink(target)
        else:
            _replace(places, key, value, target)
        sync_dir(places.params)
    finally:
        os.close(lock)


def _replace(places: Places, key: str, value: bytes, target: str) -> None:
    """By rename, all of it or nothing: a disk that fills up in the middle leaves the former value and no other file."""
    for torn in [name for name in os.listdir(places.params) if re.fullmatch(rf"\.tmp_{key}_[0-9]+", name)]:
        unlink(os.path.join(places.params, torn))  # ours, of a writer that was killed: the lock is held
    temporary = os.path.join(places.params, f".tmp_{key}_{os.getpid()}")
    try:
        write_flushed(temporary, value, 0o666)
        own_like_folder(temporary)
        os.replace(temporary, target)
    except BaseException:
        unlink(temporary)
        raise


def do_params_read(request: Request) -> dict[str, Any]:
    """{values: {key: text or None}} for `keys`."""
    values: dict[str, Any] = {}
    for key in request.args["keys"]:
        value = read(request.places, key)
        values[key] = None if value is None else value.decode("utf-8", "replace")
    return {"values": values}


def do_params_write(request: Request) -> dict[str, Any]:
    """Writes `values` {key: text or None}. With `hold` seconds, the device puts the old ones back after that time.

    Without `hold` the change is lasting. Returns {journal: id or None}: `recover` with `undo: [id]` puts back at once.
    """
    places = request.places
    hold = request.args.get("hold")
    require_offroad(places)
    lock = locks.acquire(places, request.owner, "parameters", float(request.args.get("wait", 0)))
    try:
        require_offroad(places)
        entry = None
        if hold is not None:
            entry = journal.begin(places, "parameters", hold=float(hold))
        for key, text in request.args["values"].items():
            if entry is not None:
                journal.add(places, entry, undo_of(places, key))
            write(places, key, None if text is None else str(text).encode())
    finally:
        os.close(lock)
    return {"journal": entry["id"] if entry else None}


def undo_of(places: Places, key: str) -> dict[str, Any]:
    """The journal step that brings a parameter back to its present value."""
    old = read(places, key)
    return {
        "undo": "param",
        "key": key,
        "old": None if old is None else binascii.b2a_base64(old, newline=False).decode(),
    }
