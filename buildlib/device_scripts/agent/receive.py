"""Bytes onto the device: in ranges, resumable, checked, and under their name only when they are whole.

A part file is named by its content's sha256, so a part never holds bytes of two files, and a range may be written
twice without harm. How far each range came lies beside it; the final sha256 decides, not that note.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from . import ledger
from .guard import require_offroad
from .hashes import BLOCK, hash_file
from .jobs import require_unused
from .main import Request
from .places import hidden, make_dirs, own_like_folder, require_space, sync_dir, unlink
from .trailing import Trailing
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NOTE_EVERY = 4 << 20


class Part:
    """The unfinished form of one file."""

    def __init__(self, request: Request) -> None:
        args = request.args
        self.device_path = str(args["path"])
        self.path = request.places.owned(self.device_path)
        self.size = int(args["size"])
        self.sha256 = str(args["sha256"]).lower()
        folder, name = os.path.split(self.path)
        self.folder = folder
        self.part = os.path.join(folder, hidden(name, f"{self.sha256[:16]}.part"))

    def note(self, start: int, end: int) -> str:
        """Where the progress of a range is kept."""
        return f"{self.part}.{start}-{end}"

    def ranges(self) -> list[dict[str, int]]:
        """Ranges begun earlier: [{start, end, done}], done is the offset up to which bytes are there."""
        found = []
        prefix = os.path.basename(self.part) + "."
        if os.path.exists(self.part) and os.path.isdir(self.folder):
            for name in sorted(os.listdir(self.folder)):
                if name.startswith(prefix):
                    start, _, end = name[len(prefix) :].partition("-")
                    with contextlib.suppress(ValueError, OSError), open(os.path.join(self.folder, name)) as file:
                        done = int(file.read() or "0")
                        if int(start) <= done <= int(end) <= self.size:
                            found.append({"start": int(start), "end": int(end), "done": done})
        return found

    def whole(self) -> bool:
        """True when the ranges leave no gap."""
        reached = 0
        for entry in sorted(self.ranges(), key=lambda entry: entry["start"]):
            if entry["start"] > reached:
                return False
            reached = max(reached, entry["done"])
        return reached == self.size

    def discard(self) -> None:
        """Removes the part and its notes."""
        for entry in self.ranges():
            unlink(self.note(entry["start"], entry["end"]))
        unlink(self.part)


def do_receive_begin(request: Request) -> dict[str, Any]:
    """What is there already: {have: bool, ranges: [{start, end, done}]}. Makes the folder, checks the space.

    Raises Refusal: rail, device, busy (a running job reads that file).
    """
    part = Part(request)
    if os.path.isfile(part.path) and os.path.getsize(part.path) == part.size:
        digest, _ = request.hashes.file(part.path)
        if digest == part.sha256:
            return {"have": True, "ranges": []}
    require_offroad(request.places)
    require_unused(request.places, part.device_path, request.owner)
    make_dirs(part.folder)
    ranges = part.ranges()
    there = sum(entry["done"] - entry["start"] for entry in ranges)
    require_space(part.folder, part.size - there)
    return {"have": False, "ranges": ranges}


def do_receive(request: Request) -> dict[str, Any]:
    """Writes the body at `offset` of the range `start` to `end`; with `finish`, the last range of all checks and
    renames the whole.

    Returns {done: offset reached, finished: bool}. Raises Refusal: transfer (the body ended early, or the hash is
    another), rail (onroad), device (no space).
    """
    part = Part(request)
    start, end = int(request.args.get("start", 0)), int(request.args.get("end", part.size))
    offset = int(request.args.get("offset", start))
    require_offroad(request.places)
    make_dirs(part.folder)
    if offset == start:
        require_space(part.folder, end - start)
    digest = None
    handle = os.open(part.part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        trailing = Trailing(handle) if (start, end) == (0, part.size) else None
        try:
            offset = _write(request, handle, part, start, end, offset, trailing)
        finally:
            if trailing is not None:
                trailing.stop()
        if trailing is not None and offset == end:
            digest = trailing.finish()
        os.fsync(handle)
    finally:
        os.close(handle)
    if offset < end:
        raise Refusal("transfer", "the upload ended early", where=part.device_path, expected=f"{end}", got=f"{offset}")
    return {"done": offset, "finished": bool(request.args.get("finish")) and _finish_alone(request, part, digest)}


def do_receive_finish(request: Request) -> dict[str, Any]:
    """All ranges have come: checks the whole and renames it. Repeated, it finds the file in its place."""
    part = Part(request)
    if _finish_alone(request, part, None):
        return {"finished": True}
    if os.path.exists(part.part) or not os.path.isfile(part.path) or hash_file(part.path)[0] != part.sha256:
        raise Refusal("transfer", "the upload has gaps", where=part.device_path, remedy="run the step again")
    return {"finished": True}


def _finish_alone(request: Request, part: Part, digest: str | None) -> bool:
    """Finishes a whole part; False if it has gaps, or another range's command has finished it just now."""
    try:
        handle = os.open(part.part, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not os.path.exists(part.part) or not part.whole():
            return False
        require_offroad(request.places)
        _finish(request, part, digest)
        return True
    finally:
        os.close(handle)


def _write(
    request: Request, handle: int, part: Part, start: int, end: int, offset: int, trailing: Trailing | None
) -> int:
    """Writes the body from `offset` on; the offset that was reached."""
    note = os.open(part.note(start, end), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    noted = asked = offset
    last_look = time.monotonic()
    if trailing is not None:
        trailing.reached = offset
    try:
        while offset < end:
            block = request.body.read(min(BLOCK, end - offset))
            if not block:
                break
            view = memoryview(block)
            while view:
                count = os.pwrite(handle, view, offset)
                offset += count
                view = view[count:]
            if trailing is not None:
                trailing.reached = offset
            if offset - noted >= NOTE_EVERY:
                os.pwrite(note, b"%020d" % offset, 0)
                noted = offset
            now = time.monotonic()
            if now - last_look >= 1.0 and offset > asked:
                require_offroad(request.places)
                last_look, asked = now, offset
        return offset
    finally:
        os.pwrite(note, b"%020d" % offset, 0)
        os.close(note)


def _finish(request: Request, part: Part, digest: str | None) -> None:
    size = os.path.getsize(part.part)
    if digest is None:
        digest, _ = hash_file(part.part)
    if size != part.size or digest != part.sha256:
        part.discard()
        raise Refusal(
            "transfer",
            "the file arrived changed; the part was discarded",
            where=part.device_path,
            expected=f"{part.size} bytes, sha256 {part.sha256}",
            got=f"{size} bytes, sha256 {digest}",
            remedy="the source may change while it is sent; else check the device's disk",
        )
    require_offroad(request.places)
    require_unused(request.places, part.device_path, request.owner)
    mode = int(request.args.get("mode", 0o644))
    os.chmod(part.part, mode)
    own_like_folder(part.part)
    for entry in part.ranges():
        unlink(part.note(entry["start"], entry["end"]))
    os.replace(part.part, part.path)
    sync_dir(part.folder)
    ledger.add(request.places, {part.device_path: {"size": part.size, "sha256": part.sha256}})
