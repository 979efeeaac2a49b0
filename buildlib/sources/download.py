"""Downloads of known content over HTTP: resumed, bounded, never redirected to another scheme.

The standard library's client is enough (decision 70). Every download has its sha256 beforehand, so a resumed one needs
no ETag: if the whole is wrong after a resume, it is fetched once more from its start, and then the error names both.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from buildlib.core.sources.file_kinds import what_else
from buildlib.errors import SourceError, SourceUnavailable, StoreError
from buildlib.ports.source import SourceContext
from buildlib.sources.http_client import open_url, shown
from buildlib.store import files

BLOCK = 1 << 18
SIZE_LIMIT = 2 << 30
"""Bytes. An ONNX is one protobuf message, and those end at 2 GiB."""
TIMEOUT = 30.0
"""Seconds without a byte before a server is called silent."""
PATIENCE = 4
"""Tries in a row without a new byte."""
MOST_TRIES = 64
SLOWEST = 100
"""Bytes a second. What comes slower, over a whole MEASURED, is a connection kept busy and no download."""
MEASURED = 60.0
"""Seconds."""
_RETRY = {408, 425, 429, 500, 502, 503, 504}
_NUMBER = r"[0-9]{1,18}"
_RANGE = re.compile(rf"bytes ({_NUMBER})-({_NUMBER})/({_NUMBER}|\*)")
_RANGE_TOTAL = re.compile(rf"bytes \*/({_NUMBER})")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A download: its address, what its bytes are, and how much may come."""

    url: str
    sha256: str | None
    """None where nobody knows it yet: then nothing is resumed, for nothing could show a mixture of two files."""
    size: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    limit: int = SIZE_LIMIT
    timeout: float = TIMEOUT
    pause: float = 0.25
    """Seconds before the second try; doubled each time."""


class _Broken(Exception):
    """The connection ended early or the server asks to come again: worth another try."""


def download(wanted: Wanted, into: Path, context: SourceContext) -> tuple[int, str]:
    """Makes `into` the wanted content; its size in bytes and sha256. What came before stays in `NAME.part` on every
    failure but a wrong hash and a file too large. Raises SourceError, SourceUnavailable, Cancelled.
    """
    part = into.with_name(into.name + ".part")
    into.parent.mkdir(parents=True, exist_ok=True)
    if wanted.sha256 is None:
        part.unlink(missing_ok=True)
    for _ in range(PATIENCE):
        size, sha256, pieced = _complete(wanted, part, context)
        if sha256 == wanted.sha256 or not pieced:
            break
        part.unlink(missing_ok=True)  # pieces of two files, it may be: only one that came whole says what is there
    if wanted.sha256 is not None and sha256 != wanted.sha256:
        error = _wrong_hash(wanted, part, size, sha256)
        part.unlink(missing_ok=True)
        raise error
    part.replace(into)
    files.sync_directory(into.parent)
    return size, sha256


def _complete(wanted: Wanted, part: Path, context: SourceContext) -> tuple[int, str, bool]:
    """Brings the part to its whole length, over as many connections as it takes; True where they were several."""
    idle = 0
    for _ in range(MOST_TRIES):
        context.check_cancelled()
        before = _size(part)
        try:
            _once(wanted, part, context)
        except _Broken as error:
            idle = 0 if _size(part) > before else idle + 1
            if wanted.sha256 is None:
                part.unlink(missing_ok=True)
            if idle >= PATIENCE:
                raise _gave_up(wanted, part, str(error)) from None
            _wait(wanted.pause * 2**idle, context)
            continue
        return _size(part), files.hash_file(part), before > 0
    raise _gave_up(wanted, part, "the connection keeps breaking")


def _gave_up(wanted: Wanted, part: Path, why: str) -> SourceUnavailable:
    came = _size(part)
    kept = f"; {came} bytes are kept and the next run goes on from there" if came else ""
    return SourceUnavailable(
        f"the download does not come through: {why}",
        where=shown(wanted.url),
        remedy=f"check the network and the address, then run doit again{kept}",
    )


def _wait(seconds: float, context: SourceContext) -> None:
    if context.cancel is not None:
        context.cancel.wait(seconds)
        context.check_cancelled()
    else:
        time.sleep(seconds)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _once(wanted: Wanted, part: Path, context: SourceContext) -> None:
    """One request. Returns when the part is whole, as the server counts; raises _Broken when it is not."""
    offset = _size(part)
    headers = {"User-Agent": "supercombo-build", "Accept-Encoding": "identity", **wanted.headers}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    request = urllib.request.Request(wanted.url, headers=headers)  # noqa: S310 - the caller checked the scheme
    try:
        with open_url(request, wanted.timeout) as response:
            _receive(wanted, part, response, offset, context)
    except urllib.error.HTTPError as error:
        _refused(wanted, part, offset, error)
    except urllib.error.URLError as error:
        raise _unreachable(wanted, error.reason) from None
    except (TimeoutError, socket.timeout):  # noqa: UP041 - one class since 3.10, named twice for the reader
        raise _Broken(f"silent for {wanted.timeout:g} s") from None
    except (http.client.HTTPException, OSError) as error:
        raise _Broken(f"the connection broke ({type(error).__name__})") from None
    except ValueError as error:  # a name of a host that none can have, a header that is none
        raise SourceError(
            f"the address cannot be asked: {error}", where=shown(wanted.url), remedy="correct it in models.yaml"
        ) from None


def _refused(wanted: Wanted, part: Path, offset: int, error: urllib.error.HTTPError) -> None:
    with error:
        if error.code == 416 and offset:
            total = _RANGE_TOTAL.search(error.headers.get("Content-Range") or "")
            if total and int(total.group(1)) == offset:
                return
            part.unlink(missing_ok=True)
            raise _Broken("the file there is shorter than what had come")
        if error.code in _RETRY:
            raise _Broken(f"the server answers {error.code} {error.reason}")
        remedy = {
            401: "it wants a login: use a source of kind git with a credential helper, or a path",
            403: "it refuses: use a source of kind git with a credential helper, or a path",
            404: "correct the address in models.yaml",
            410: "the file is gone: correct the address in models.yaml",
        }.get(error.code, "open the address in a browser")
        kind = SourceError if error.code in {404, 410} else SourceUnavailable
        raise kind(f"the server answers {error.code} {error.reason}", where=shown(wanted.url), remedy=remedy)


def _unreachable(wanted: Wanted, reason: object) -> Exception:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return SourceUnavailable(
            f"its certificate is not trusted: {reason.verify_message}",
            where=shown(wanted.url),
            remedy="install the certificate authority, or on a Mac run Python's 'Install Certificates.command'",
        )
    if isinstance(reason, socket.gaierror):
        return _Broken(f"the host's name is unknown ({reason.strerror})")
    if isinstance(reason, TimeoutError):
        return _Broken(f"silent for {wanted.timeout:g} s")
    return _Broken(str(getattr(reason, "strerror", None) or reason))


def _receive(
    wanted: Wanted, part: Path, response: http.client.HTTPResponse, offset: int, context: SourceContext
) -> None:
    total, start = _promised(wanted, response, offset)
    most = wanted.limit if wanted.size is None else min(wanted.limit, wanted.size)
    if total is not None and wanted.size is not None and total != wanted.size:
        raise SourceError(
            "the download has another length",
            where=shown(wanted.url),
            expected=f"{wanted.size} bytes",
            got=f"{total}",
            remedy="the server holds another file: check the address",
        )
    if total is not None and total > most:
        part.unlink(missing_ok=True)
        raise _too_large(wanted, most, total)
    received = start
    pace = _Pace(start)
    with _Writer(part, start) as file:
        # read1: a connection that breaks keeps what came; read(n) would lose up to a block.
        while block := response.read1(BLOCK):
            received += len(block)
            if received > most:
                part.unlink(missing_ok=True)
                raise _too_large(wanted, most, None)
            file.write(block)
            pace.check(received)
            context.events.progress(context.subject, "source", received, total)
            context.check_cancelled()
    if total is not None and received < total:
        raise _Broken(f"the connection ended at {received} of {total} bytes")
    if wanted.size is not None and received < wanted.size:
        # Without a stated length a cut looks like an end.
        raise _Broken(f"the connection ended at {received} of {wanted.size} bytes")


class _Pace:
    """Tells a server that drips from one that is slow: single bytes reset every timeout of the connection's own."""

    def __init__(self, received: int) -> None:
        self.begun, self.received = time.monotonic(), received

    def check(self, received: int) -> None:
        """Raises _Broken where too little came in the time that is measured."""
        now = time.monotonic()
        if now - self.begun < MEASURED:
            return
        if received - self.received < SLOWEST * MEASURED:
            raise _Broken(f"it drips: {received - self.received} bytes in {now - self.begun:.0f} s")
        self.begun, self.received = now, received


class _Writer:
    """The part, written from `start` on. What the disk refuses is a StoreError, told from what the network does."""

    def __init__(self, part: Path, start: int) -> None:
        self.part = part
        with self._disk():
            self.file = part.open("r+b" if start else "wb")
            if start:
                self.file.seek(start)
                self.file.truncate()

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"cannot be written: {error.strerror or error}",
                where=str(self.part),
                remedy="check the free space (`df -h`), then run doit again: it goes on from what came",
            ) from error

    def __enter__(self) -> _Writer:
        return self

    def write(self, block: bytes) -> None:
        with self._disk():
            self.file.write(block)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with self._disk():
                self.file.flush()
                os.fsync(self.file.fileno())
                self.file.close()
        except StoreError:
            with contextlib.suppress(OSError):
                self.file.close()
            if kind is None:
                raise


def _promised(wanted: Wanted, response: http.client.HTTPResponse, offset: int) -> tuple[int | None, int]:
    """The whole file's length as the server says (None: it does not), and where this answer's bytes start."""
    packed = (response.headers.get("Content-Encoding") or "identity").strip().lower()
    if response.status not in (200, 206) or packed != "identity":
        raise SourceUnavailable(
            "the server does not answer with the file itself",
            where=shown(wanted.url),
            expected="status 200, as it is",
            got=f"status {response.status}" + (f", packed ({packed[:40]})" if packed != "identity" else ""),
            remedy="open the address in a browser",
        )
    length = response.headers.get("Content-Length") or ""
    announced = int(length) if re.fullmatch(_NUMBER, length) else None
    if response.status == 206:
        matched = _RANGE.fullmatch((response.headers.get("Content-Range") or "").strip())
        if not offset or matched is None or int(matched.group(1)) != offset:
            raise _Broken("the server sent another range than was asked for")
        stated = matched.group(3)
        if stated != "*":
            return int(stated), offset
        return (None if announced is None else offset + announced), offset
    # A server without ranges answers 200 with the whole file: it starts anew.
    return announced, 0


def _too_large(wanted: Wanted, most: int, total: int | None) -> SourceError:
    return SourceError(
        "the download is too large",
        where=shown(wanted.url),
        expected=f"at most {most} bytes",
        got=f"{total} bytes" if total is not None else "more",
        remedy="check the address: it names another file",
    )


def _wrong_hash(wanted: Wanted, part: Path, size: int, sha256: str) -> SourceError:
    with part.open("rb") as file:
        other = what_else(file.read(4096))
    return SourceError(
        "the download has another sha256" + (f": it is {other[0]}" if other else f" ({size} bytes)"),
        where=shown(wanted.url),
        expected=f"sha256 {wanted.sha256}",
        got=sha256,
        remedy=other[1] if other else "if the new file is the right one, write its sha256 in models.yaml",
    )
