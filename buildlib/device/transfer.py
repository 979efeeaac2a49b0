"""Files to and from a device: in ranges, each resumable, checked as a whole before they get their name.

One stream is the fastest on a near link; over a distance several ranges at once fill it.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import msgspec

from buildlib import errors
from buildlib.device.trailing import Trailing
from buildlib.store.files import hash_file, sync_directory

if TYPE_CHECKING:
    from buildlib.device.link import DeviceLink

Progress = Callable[[int, int], None]
"""(bytes done, bytes in all); called from worker threads, one at a time."""

WORTH_SPLITTING = 8 << 20
NOTE_SECONDS = 0.5


class Range(msgspec.Struct):
    """Bytes start to end of a file; those before `done` are there."""

    start: int
    end: int
    done: int


@dataclass
class Ranges:
    """The ranges of one file, how far they are, and who is told."""

    size: int
    items: list[Range]
    on_progress: Progress | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def done(self) -> int:
        """Bytes that are there."""
        return sum(item.done - item.start for item in self.items)

    def reached(self, item: Range, offset: int) -> None:
        """A range has come to an offset."""
        with self.lock:
            item.done = offset
            if self.on_progress is not None:
                self.on_progress(self.done, self.size)


def split(size: int, link: DeviceLink) -> list[Range]:
    """Equal ranges; a small file stays in one piece."""
    count = size // WORTH_SPLITTING
    count = min(count, link.streams()) if count > 1 else 1
    edges = [size * number // count for number in range(count + 1)]
    return [Range(start, end, start) for start, end in itertools.pairwise(edges)]


def push(
    link: DeviceLink,
    local: Path,
    remote: str,
    *,
    sha256: str,
    on_progress: Progress | None = None,
    mode: int = 0o644,
    lacking: bool = False,
) -> bool:
    """See `DeviceLink.push`."""
    size = local.stat().st_size
    what: dict[str, object] = {"path": remote, "size": size, "sha256": sha256, "mode": mode}
    for again in (True, False):
        try:
            begin = {"have": False, "ranges": []} if lacking and again else link.call("receive_begin", **what)
            return _push_once(link, local, size, what, begin, on_progress)
        except errors.TransferFailed as error:
            if hash_file(local) != sha256:
                raise errors.InputChanged(
                    "the file changed while it was sent",
                    where=str(local),
                    expected=f"sha256 {sha256}",
                    remedy="nothing was put on the device; run it again",
                ) from error
            if not again:
                raise
    raise AssertionError


def _push_once(
    link: DeviceLink,
    local: Path,
    size: int,
    what: dict[str, object],
    begin: dict[str, Any],
    on_progress: Progress | None,
) -> bool:
    if begin["have"]:
        if on_progress is not None:
            on_progress(size, size)
        return False
    known = [msgspec.convert(item, Range) for item in begin["ranges"]]
    # Ranges that leave gaps are of no use; the agent names its part by content, so a fresh start overwrites equals.
    whole = sum(item.end - item.start for item in known) == size
    ranges = Ranges(size, known if known and whole else split(size, link), on_progress)
    finished = False

    def send(link: DeviceLink, item: Range) -> None:
        arrived = item.done
        fresh = True

        def once() -> dict[str, object]:
            nonlocal arrived, fresh, finished
            # What was taken from us is not what arrived: after a lost link the agent says how far it came.
            if not fresh and _look(link, what, item):
                return {}
            fresh, arrived = False, max(arrived, item.done)
            start = item.done
            with local.open("rb") as file:
                file.seek(start)
                body = _Counted(file, item.end - start, lambda taken: ranges.reached(item, start + taken))
                args = {**what, "start": item.start, "end": item.end, "offset": start, "finish": True}
                answer = link.ask("receive", args, body=body)  # type: ignore[arg-type]
                finished = finished or bool(answer["finished"])
                return answer

        link.repeat(once, lambda: arrived)

    _in_parallel(link, ranges, send)
    if not finished:
        link.call("receive_finish", **what)
    return True


def _look(link: DeviceLink, what: dict[str, object], item: Range) -> bool:
    """Sets a range to what the device has of it; True if the whole file is in its place already."""
    begin = link.ask("receive_begin", what)
    item.done = item.start
    for entry in begin["ranges"]:
        if (entry["start"], entry["end"]) == (item.start, item.end):
            item.done = entry["done"]
    return bool(begin["have"])


def fetch(
    link: DeviceLink, remote: str, local: Path, *, sha256: str, size: int, on_progress: Progress | None = None
) -> None:
    """See `DeviceLink.fetch`."""
    # Long names grow by a suffix: 255 bytes is what file systems take.
    short = local.name.encode()[:120].decode(errors="ignore")
    part = local.with_name(f".{short}.{sha256[:16]}.part")
    local.parent.mkdir(parents=True, exist_ok=True)
    for again in (True, False):
        got = _fetch_once(link, remote, part, size, on_progress)
        if got == sha256 and part.stat().st_size == size:
            break
        part.unlink()
        if not again:
            raise errors.TransferFailed(
                "the file from the device is not the one that was made there",
                where=f"{link.device.name}:{remote}",
                expected=f"{size} bytes, sha256 {sha256}",
                got=f"sha256 {got}",
                remedy="something on the device replaced it: build the step again",
            )
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.replace(local)
    sync_directory(local.parent)


def _fetch_once(link: DeviceLink, remote: str, part: Path, size: int, on_progress: Progress | None) -> str:
    note = Note(part.with_name(part.name + ".ranges"))
    ranges = Ranges(size, note.read(part, size) or split(size, link), on_progress)
    with part.open("rb+" if part.exists() else "wb+") as file:
        file.truncate(size)
    trailing = Trailing(part) if len(ranges.items) == 1 else None
    if trailing is not None:
        trailing.reached = ranges.items[0].done

    def take_range(link: DeviceLink, item: Range) -> None:
        with part.open("rb+", buffering=0) as file:

            def once() -> dict[str, object]:
                file.seek(item.done)
                args = {"path": remote, "offset": item.done, "length": item.end - item.done, "size": size}
                return link.ask("send", args, on_body=take)

            def take(block: bytes) -> None:
                _write_all(file, block)
                ranges.reached(item, item.done + len(block))
                if trailing is not None:
                    trailing.reached = item.done
                note.write(ranges)

            link.repeat(once, lambda: item.done)

    try:
        _in_parallel(link, ranges, take_range)
        digest = trailing.finish() if trailing is not None else hash_file(part)
    finally:
        if trailing is not None:
            trailing.stop()
        note.write(ranges, now=True)
    note.path.unlink(missing_ok=True)
    return digest


def _in_parallel(link: DeviceLink, ranges: Ranges, work: Callable[[DeviceLink, Range], None]) -> None:
    """Works on all unfinished ranges, each over a connection of its own; the first failure is raised when all ended."""
    left = [item for item in ranges.items if item.done < item.end]
    if not left and len(ranges.items) == 1:
        left = ranges.items
    links = link.siblings(len(left))
    if len(links) < 2:
        for item in left:
            work(link, item)
        return
    with ThreadPoolExecutor(len(links), thread_name_prefix=f"{link.device.name}-range") as pool:
        jobs = [pool.submit(work, other, item) for other, item in zip(links, left, strict=True)]
    for job in jobs:
        job.result()


def _write_all(file: IO[bytes], block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[file.write(view) :]


class Note:
    """How far the ranges of a part came, beside it. A wrong one costs a transfer: the sha256 decides."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._written = 0.0

    def read(self, part: Path, size: int) -> list[Range] | None:
        """The ranges of an earlier try; None if there was none."""
        with contextlib.suppress(OSError, ValueError, msgspec.DecodeError, RecursionError):
            items = msgspec.json.decode(self.path.read_bytes(), type=list[Range])
            good = all(item.start <= item.done <= item.end for item in items)
            if good and sum(item.end - item.start for item in items) == size == part.stat().st_size:
                return items
        return None

    def write(self, ranges: Ranges, *, now: bool = False) -> None:
        """Writes twice a second at most."""
        with self._lock:
            if not now and time.monotonic() - self._written < NOTE_SECONDS:
                return
            self._written = time.monotonic()
            with contextlib.suppress(OSError):
                self.path.write_bytes(msgspec.json.encode(ranges.items))


class _Counted(io.RawIOBase):
    """At most `length` bytes of a file, told to `count` as they are taken."""

    def __init__(self, file: BinaryIO, length: int, count: Callable[[int], None]) -> None:
        self._file = file
        self._left = length
        self._count = count
        self._taken = 0

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        block = self._file.read(wanted)
        self._left -= len(block)
        self._taken += len(block)
        if block:
            self._count(self._taken)
        return block
