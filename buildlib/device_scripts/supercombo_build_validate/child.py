"""The child: loads the artifact, proves which bytes that were, has it driven, and tells all that it sees."""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import io
import json
import os
import pickle
import signal
import sys
import time
import traceback
from typing import Any

from .findings import Failure, Message, Tell, Use, found, said


def child_main(options: argparse.Namespace, use: Use) -> int:
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    pipe = os.fdopen(options.child, "w", buffering=1)

    def tell(message: Message) -> None:
        pipe.write(json.dumps(message) + "\n")

    try:
        run_child(options, tell, use)
    except Failure as failure:
        report_failure(failure, tell)
    except BrokenPipeError:
        return 1  # the watchdog is gone
    except Exception as error:  # noqa: BLE001 - the harness's own fault must not look like the artifact's
        traceback.print_exc()
        tell({"finding": found("broken", "the harness failed", "to run", said(error))})
    tell({"end": True})
    return 0


def run_child(options: argparse.Namespace, tell: Tell, use: Use) -> None:
    tell({"doing": "loading the artifact", "phase": "load"})
    try:
        file = options.artifact.open("rb")
    except OSError as error:
        raise Failure("no_artifact", "the artifact cannot be read", "a file", error.strerror or str(error)) from error
    with file:
        before = signature(os.fstat(file.fileno()))
        tell({"proof": {"before": before}})
        root = load(options, file, tell)
        from tinygrad import Device

        warp_device = os.environ.get("WARP_DEV") or Device.DEFAULT
        tell({"facts": {"backend": Device.DEFAULT, "warp_backend": warp_device, "python": sys.version.split()[0]}})
        try:
            use(root, options, tell)
        except Failure as failure:
            report_failure(failure, tell)
        check_unmoved(options, file, before, tell)


class Hashed(io.RawIOBase):
    """A file that remembers the sha256 of all that was read of it."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        self.sha256.update(memoryview(buffer)[:count])
        return int(count)


def signature(stat: os.stat_result) -> Message:
    return {
        "device": stat.st_dev,
        "inode": stat.st_ino,
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "ctime_ns": stat.st_ctime_ns,
    }


def load(options: argparse.Namespace, file: io.BufferedReader, tell: Tell) -> Any:
    """Unpickles the artifact, and proves which bytes that were. Other bytes than asked for are not unpickled."""
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    tell({"proof": {"real_path": str(options.artifact.resolve()), "sha256": digest}})
    if options.sha256 not in (None, digest):
        raise Failure("other_bytes", "the file is another than shall be tested", options.sha256, digest)
    file.seek(0)
    reader = Hashed(file)
    buffered = io.BufferedReader(reader, 1 << 20)
    started = time.monotonic()
    try:
        root = pickle.load(buffered)  # noqa: S301 - the artifact that this device is about to run anyway
    except Exception as error:
        raise Failure("not_loaded", "it cannot be loaded here", "a pickle of this tinygrad", said(error)) from error
    tell({"facts": {"load_s": round(time.monotonic() - started, 3)}})
    while buffered.read(1 << 20):
        pass
    if reader.sha256.hexdigest() != digest:
        raise Failure("moved", "the file changed while it was loaded", digest, reader.sha256.hexdigest())
    return root


def check_unmoved(options: argparse.Namespace, file: io.BufferedReader, before: Message, tell: Tell) -> None:
    """The path still names the very file that was loaded, and nobody wrote into it."""
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        after: Message | None = signature(options.artifact.stat())
    except OSError:
        after = None
    tell({"proof": {"after": after, "sha256_after": digest}})
    if after is None or after["inode"] != before["inode"] or after["device"] != before["device"]:
        raise Failure("moved", "another file lies under the path now", str(before), str(after or "none"))
    if after != before:
        raise Failure("moved", "the file was written into while it ran", str(before), str(after))


def report_failure(failure: Failure, tell: Tell) -> None:
    if failure.__cause__ is not None:
        traceback.print_exception(failure.__cause__)
    tell({"finding": failure.finding})
