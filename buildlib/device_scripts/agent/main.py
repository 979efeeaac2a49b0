"""Reads one request, does it, answers. The last line is {"ok": ...} or {"error": ...}."""

from __future__ import annotations

import errno
import importlib
import io
import json
import sys

from . import wire
from .guard import onroad_state
from .hashes import HashCache
from .places import Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

OPS = {
    "layout": "layout",
    "probe": "probe",
    "receive_begin": "receive",
    "receive": "receive",
    "receive_finish": "receive",
    "receive_small": "small",
    "send": "send",
    "hash": "send",
    "job_start": "start",
    "job_follow": "follow",
    "job_cancel": "start",
    "job_list": "jobs",
    "job_run": "runner",
    "install": "install",
    "rollback": "rollback",
    "backups": "backups",
    "install_keep": "held",
    "install_prolong": "held",
    "params_read": "params",
    "params_write": "params",
    "recover": "recovery",
    "signals": "signals",
    "selector": "selector",
    "gc": "sweep",
}
"""Which module does which op, as the function `do_OP`; imported only when asked for."""


class Request:
    """What an op gets: its arguments, the device's places, the body that follows the request line."""

    def __init__(self, args: dict[str, Any], places: Places, body: BinaryIO | None = None) -> None:
        self.args = args
        self.places = places
        self.body: BinaryIO = body or io.BytesIO()
        self.hashes = HashCache(places)

    @property
    def owner(self) -> str:
        """Who asks: user, host and checkout."""
        return str(self.args.get("owner") or "unknown")


def answer(stream: BinaryIO) -> dict[str, Any]:
    """The last line for the request on a stream."""
    try:
        args = json.loads(stream.readline())
        op = args.pop("op")
        if op not in OPS:
            raise wire.Refusal("request", "unknown operation", got=repr(op))
        request = Request(args, Places(args.pop("paths")), stream)
        try:
            module = importlib.import_module(f"{__package__}.{OPS[op]}")
            return {"ok": getattr(module, f"do_{op}")(request)}
        finally:
            # A device that is onroad, or does not say, is not written to, not even by a cache.
            if onroad_state(request.places) == "0":
                request.hashes.save()
    except wire.Refusal as refusal:
        return {"error": refusal.value}
    except BrokenPipeError:
        raise
    except OSError as error:
        return {"error": _os_error(error)}
    except Exception as error:  # noqa: BLE001  (a bug of ours must reach the workstation as a value)
        import traceback

        return {
            "error": {
                "kind": "internal",
                "what": f"the device agent failed: {type(error).__name__}: {error}",
                "trace": traceback.format_exc(),
            }
        }


def _os_error(error: OSError) -> dict[str, Any]:
    remedies = {
        errno.ENOSPC: "doit gc --device, or remove files from the disk by hand",
        errno.EDQUOT: "doit gc --device, or remove files from the disk by hand",
        errno.EROFS: "the disk is mounted read-only: check the device's dmesg",
        errno.EACCES: "set sudo: true for the device in models.yaml, or change the file's owner",
        errno.EPERM: "set sudo: true for the device in models.yaml, or change the file's owner",
    }
    value = {"kind": "device", "what": error.strerror or str(error)}
    if error.filename is not None:
        value["where"] = str(error.filename)
    if error.errno in remedies:
        value["remedy"] = remedies[error.errno]
    return value


def main() -> int:
    """The agent's exit status is 0 whenever its last line was said: the line tells the rest."""
    wire.start_beating()
    try:
        wire.emit(answer(sys.stdin.buffer))
    except BrokenPipeError:
        return 1
    return 0
