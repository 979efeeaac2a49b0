"""A download with its sha256: http, https and file."""

from __future__ import annotations

import re
import urllib.parse
import urllib.request
from pathlib import Path

from buildlib.core.catalog import UrlSource
from buildlib.errors import SourceError, SourceUnavailable, StoreError
from buildlib.ports.source import Fetched, Observed, SourceContext
from buildlib.sources.download import SIZE_LIMIT, Wanted, download
from buildlib.sources.http_client import shown
from buildlib.sources.plain_file import require_plain
from buildlib.store import files

SCHEMES = ("http", "https", "file")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Reader:
    """Reads a UrlSource. Its sha256 is known beforehand: observing it needs no network."""

    def __init__(self, spec: UrlSource, context: SourceContext) -> None:
        self.spec = spec
        self.context = context

    def observe(self) -> Observed:
        """The sha256 that models.yaml states."""
        self._check()
        return Observed(
            identity={"sha256": self.spec.sha256}, sha256=self.spec.sha256, detail={"url": shown(self.spec.url)}
        )

    def fetch(self, into: Path) -> Fetched:
        """Downloads it, resuming what an earlier try left in `NAME.part`."""
        scheme = self._check()
        if not _SHA256.fullmatch(self.spec.sha256):
            raise SourceError(
                "no sha256",
                where=shown(self.spec.url),
                expected="64 hex digits",
                got=self.spec.sha256[:80] or "nothing",
            )
        return self._bring(scheme, self.spec.sha256, into)

    def fetch_unknown(self, into: Path) -> Fetched:
        """Downloads whatever is there now, to learn its sha256; for `doit new` only."""
        return self._bring(self._check(), None, into)

    def _bring(self, scheme: str, expected: str | None, into: Path) -> Fetched:
        if scheme == "file":
            self.context.check_cancelled()
            size, sha256 = self._copy(expected, into)
        else:
            size, sha256 = download(Wanted(url=self.spec.url, sha256=expected), into, self.context)
        return Fetched(path=into, sha256=sha256, size=size, detail={"url": shown(self.spec.url)})

    def _check(self) -> str:
        """The URL's scheme. Raises SourceError for what will never be fetched."""
        url, where = self.spec.url, shown(self.spec.url)
        try:
            parts = urllib.parse.urlsplit(url)
            _ = parts.port
        except ValueError as error:
            raise SourceError(f"no URL: {error}", where=where, remedy="correct it in models.yaml") from None
        if parts.scheme not in SCHEMES:
            raise SourceError(
                "this scheme is not fetched",
                where=where,
                expected="http, https or file",
                got=parts.scheme or "none",
                remedy="for a repository use kind: git, for a file on a share kind: path",
            )
        if not url.isascii() or re.search(r"[\x00-\x20\x7f]", url):
            raise SourceError(
                "spaces and other letters must be percent-encoded in a URL",
                where=where,
                expected=urllib.parse.quote(url, safe=":/?#[]@!$&'()*+,;=%"),
            )
        if "@" in parts.netloc:
            raise SourceError(
                "a login inside a URL is refused: models.yaml is no place for secrets",
                where=where,
                remedy="use a source of kind git with a credential helper, or a path",
            )
        if parts.scheme != "file" and not parts.hostname:
            raise SourceError("the URL names no host", where=where, remedy="correct it in models.yaml")
        if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
            raise SourceError(
                "a file on another host",
                where=where,
                expected="file:///path",
                got=f"host {parts.netloc}",
                remedy="mount it and use kind: path",
            )
        return parts.scheme

    def _copy(self, expected: str | None, into: Path) -> tuple[int, str]:
        where = shown(self.spec.url)
        source = Path(urllib.request.url2pathname(urllib.parse.urlsplit(self.spec.url).path))
        arriving = into.with_name(into.name + ".part")
        try:
            require_plain(source, where)
            if (size := source.stat().st_size) > SIZE_LIMIT:
                raise SourceError(
                    "the file is too large",
                    where=where,
                    expected=f"at most {SIZE_LIMIT} bytes",
                    got=str(size),
                    remedy="check the address: it names something else",
                )
            sha256 = files.copy(source, arriving)
        except StoreError:
            raise
        except (OSError, ValueError) as error:
            raise SourceUnavailable(
                f"cannot be read: {getattr(error, 'strerror', None) or error}",
                where=where,
                remedy="mount the disk or share that holds it, or correct the address in models.yaml",
            ) from None
        if expected is not None and sha256 != expected:
            arriving.unlink()
            raise SourceError(
                "the file has another sha256",
                where=where,
                expected=f"sha256 {expected}",
                got=sha256,
                remedy="if the new file is the right one, write its sha256 in models.yaml",
            )
        arriving.replace(into)
        return into.stat().st_size, sha256
