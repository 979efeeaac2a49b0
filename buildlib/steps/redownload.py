"""Downloads a published artifact by the manifest's own URL, as a device will, and compares it (guide, section 16).

Raw-file hosts serve the old bytes for minutes after a push: those are waited for. Bytes that are neither the old nor
the new ones are an error at once.
"""

from __future__ import annotations

import glob
import hashlib
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from buildlib.core.catalog import UrlSource
from buildlib.core.manifests.manifest import Entry
from buildlib.errors import BuildError, SourceError, SourceUnavailable, TargetError
from buildlib.ports.source import SourceContext
from buildlib.sources import url as url_source
from buildlib.store import files

PAUSE = 2.0
"""Seconds before the second try; doubled each time, up to LONGEST_PAUSE."""
LONGEST_PAUSE = 30.0


@dataclass(frozen=True, kw_only=True)
class Redownloaded:
    """The published bytes, back here. tries: how often the host was asked; seconds: until it showed them."""

    path: Path
    sha256: str
    size: int
    tries: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Time as a value, so that tests need not wait. sleep raises Cancelled when the run is to stop."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class _NotYet(Exception):
    """The host still shows what stood there before."""


def redownload(
    entry: Entry,
    former: tuple[Entry, ...],
    into: Path,
    context: SourceContext,
    *,
    timeout: float,
    clock: Clock | None = None,
) -> Redownloaded:
    """The file that a manifest's entry names, chunks joined, its sha256 checked.

    former: what manifests said before: their hashes are "not visible yet", and so is a missing file at a URL that is
    in none of them; () where nothing stood there.
    timeout: seconds to wait for the new bytes. into: the file to write.
    Raises TargetError ("not visible yet" after the timeout; other bytes), SourceError, Cancelled.
    """
    ticking = clock or Clock(sleep=lambda seconds: _sleep(seconds, context))
    started, pause, tries = ticking.now(), PAUSE, 0
    if entry.url is None:
        raise TargetError("the manifest gives no URL", where=entry.file_name, remedy="set `url` of the target")
    _forget(into)
    while True:
        tries += 1
        context.check_cancelled()
        try:
            size = _once(entry, former, into, context)
        except _NotYet as error:
            waited = ticking.now() - started
            if waited + pause > timeout:
                raise TargetError(
                    f"the published bytes are not visible yet: {error}",
                    where=entry.url,
                    expected=f"sha256 {entry.sha256}",
                    got=f"{tries} tries in {waited:.0f} s",
                    remedy="raw-file hosts take minutes after a push: run confirm again, or raise confirm_timeout",
                    guide="16",
                ) from None
            context.events.step(context.subject, "confirm", f"not visible yet, asking again in {pause:.0f} s")
            ticking.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)
        else:
            seconds = ticking.now() - started
            return Redownloaded(path=into, sha256=entry.sha256, size=size, tries=tries, seconds=seconds)


def _forget(into: Path) -> None:
    """Removes what an earlier run downloaded: it says nothing of what the host shows now."""
    for left in (into, *into.parent.glob(f"{glob.escape(into.name)}.*")):
        left.unlink(missing_ok=True)


def _once(entry: Entry, former: tuple[Entry, ...], into: Path, context: SourceContext) -> int:
    stood = {url: sha256 for known in former for url, sha256 in _shown(known)}
    old, shown = set(stood.values()), _shown(entry)
    if not entry.chunks:
        ((url, sha256),) = shown
        return _fetch(url, sha256, old, url not in stood, into, context)
    pieces = [into.with_name(f"{into.name}.{number:02d}") for number in range(1, len(shown) + 1)]
    for (url, sha256), piece in zip(shown, pieces, strict=True):
        _fetch(url, sha256, old, url not in stood, piece, context)
    whole = hashlib.sha256()
    with files.replacing(into) as output:
        for block in _blocks(pieces):
            whole.update(block)
            output.write(block)
    for piece in pieces:
        piece.unlink()
    if whole.hexdigest() != entry.sha256:
        raise TargetError(
            "the chunks are as the manifest says and do not make up the artifact",
            where=entry.url,
            expected=f"sha256 {entry.sha256}",
            got=whole.hexdigest(),
            remedy="publish again: the manifest mixes two artifacts",
        )
    return into.stat().st_size


def _fetch(url: str, sha256: str, old: set[str], new: bool, into: Path, context: SourceContext) -> int:
    """One file, whole and right; its size. new: nothing stood at its URL, so a missing file is "not yet"."""
    if into.is_file() and files.hash_file(into) == sha256:
        return into.stat().st_size
    try:
        spec = UrlSource(url=url, sha256=sha256)
        return url_source.Reader(spec, context).fetch(into).size
    except SourceUnavailable:
        raise
    except SourceError as error:
        if error.got in old:
            raise _NotYet("the host shows the former file") from None
        if new and ("404" in error.what or "410" in error.what):
            raise _NotYet("the host does not have it") from None
        raise _other_bytes(url, sha256, error) from None


def _other_bytes(url: str, sha256: str, error: BuildError) -> TargetError:
    return TargetError(
        f"what the host shows is not what was published: {error.what}",
        where=url,
        expected=f"sha256 {sha256}",
        got=error.got,
        remedy="compare manifest and file in the models repository; devices will refuse this download",
        guide="16",
    )


def _shown(entry: Entry) -> list[tuple[str, str]]:
    """URL and sha256 of each file that an entry names: the chunks, or the whole."""
    url = entry.url or ""
    return [(_beside(url, chunk.file_name), chunk.sha256) for chunk in entry.chunks] or [(url, entry.sha256)]


def _beside(url: str, name: str) -> str:
    parts = urllib.parse.urlsplit(url)
    path = parts.path.rpartition("/")[0] + "/" + urllib.parse.quote(name)
    return urllib.parse.urlunsplit(parts._replace(path=path))


def _blocks(paths: list[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(files.BLOCK):
                yield block


def _sleep(seconds: float, context: SourceContext) -> None:
    if context.cancel is None:
        time.sleep(seconds)
    else:
        context.cancel.wait(seconds)
        context.check_cancelled()
