"""The device's lock. It lies on the device, held by the process that works there, so it outlives a workstation."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time

from .places import Places
from .wire import Refusal, event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASK_AGAIN = 0.25


def _open(places: Places) -> int:
    return os.open(os.path.join(places.state_dir(), "lock"), os.O_RDWR | os.O_CREAT, 0o600)


def _owner(handle: int) -> dict[str, Any]:
    try:
        value = json.loads(os.pread(handle, 4096, 0))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def try_flock(handle: int, mode: int = fcntl.LOCK_EX) -> bool:
    """True when the lock is ours now."""
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def acquire(places: Places, owner: str, purpose: str, wait: float = 0.0) -> int:
    """A handle that holds the lock until it is closed. Raises Refusal(busy) naming the holder after `wait` seconds."""
    handle = _open(places)
    deadline = time.monotonic() + max(wait, 2 * ASK_AGAIN)
    told = 0.0
    while not try_flock(handle):
        holder = _owner(handle)
        now = time.monotonic()
        if now >= deadline:
            os.close(handle)
            raise Refusal(
                "busy",
                "another job works on this device",
                got=describe(holder),
                remedy=remedy(holder, owner),
            )
        if now - told >= 1.0:
            told = now
            event("waiting", holder=describe(holder))
        time.sleep(ASK_AGAIN)
    text = json.dumps({"owner": owner, "purpose": purpose, "since": time.time(), "pid": os.getpid()})
    os.ftruncate(handle, 0)
    os.pwrite(handle, text.encode(), 0)
    return handle


def holder(places: Places) -> dict[str, Any] | None:
    """Who holds the lock now; None when it is free."""
    path = os.path.join(places.state, "lock")
    if not os.path.exists(path):
        return None
    handle = os.open(path, os.O_RDWR)
    try:
        return None if try_flock(handle, fcntl.LOCK_SH) else _owner(handle)
    finally:
        os.close(handle)


def remedy(holder: dict[str, Any], asking: str) -> str:
    """How the one who asks gets on: its own earlier job may compile what is not declared any more."""
    if holder.get("owner") == asking:
        return (
            "it is this checkout's own, from before models.yaml or a source changed: wait, or undo the change, "
            "let doit take the job up, and end it with Ctrl-C"
        )
    return "wait for it, or end it with doit from its own checkout"


def describe(owner: dict[str, Any]) -> str:
    """The holder in words."""
    if not owner:
        return "someone unknown"
    since = time.strftime("%H:%M:%S", time.localtime(owner.get("since", 0)))
    return f"{owner.get('owner')}, {owner.get('purpose') or owner.get('subject')}, since {since} (device time)"
