"""Bytes off the device, and hashes of what lies there."""

from __future__ import annotations

import json
import os
import sys

from . import wire
from .hashes import BLOCK
from .main import Request
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def do_send(request: Request) -> dict[str, Any]:
    """Says {"event": "body", "length": N}, then N raw bytes of `path` from `offset`, then the last line.

    `size`, if given, is what the file must measure. Raises Refusal(transfer) before the body when it does not.
    """
    path = request.places.real(str(request.args["path"]))
    offset = int(request.args.get("offset", 0))
    with open(path, "rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        expected = request.args.get("size")
        if expected is not None and before.st_size != expected:
            raise Refusal(
                "transfer",
                "the file on the device has another size",
                where=str(request.args["path"]),
                expected=f"{expected} bytes",
                got=f"{before.st_size} bytes",
                remedy="build the step again that made it",
            )
        left = min(int(request.args.get("length", before.st_size)), max(before.st_size - offset, 0))
        file.seek(offset)
        wire.quiet()
        out = sys.stdout.buffer
        out.write(json.dumps({"event": "body", "length": left}).encode() + b"\n")
        out.flush()
        sent = 0
        while sent < left:
            block = file.read(min(BLOCK, left - sent))
            if not block:
                # The promised length must hold for the last line to be found: an honest end is to hang up.
                out.flush()
                os._exit(3)
            out.write(block)
            sent += len(block)
        out.flush()
        wire.loud()
    return {"sent": sent}


def do_hash(request: Request) -> dict[str, Any]:
    """{device path: {size, sha256} or None for a missing one} of `files`."""
    return {"files": files(request, list(request.args["files"]))}


def files(request: Request, paths: list[str]) -> dict[str, Any]:
    """Size and sha256 of files, None for what is missing or no file."""
    found: dict[str, Any] = {}
    for path in paths:
        real = request.places.real(path)
        found[path] = None
        if os.path.isfile(real):
            digest, signature = request.hashes.file(real)
            found[path] = {"size": signature[2], "sha256": digest}
    return found
