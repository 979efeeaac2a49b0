"""The HTTP client: redirects within a scheme only, and addresses shown without their secrets."""

from __future__ import annotations

import http.client
import ipaddress
import urllib.parse
import urllib.request
from typing import IO, Any

from buildlib.errors import SourceError


class _SameScheme(urllib.request.HTTPRedirectHandler):
    """Follows redirects within a scheme only: what was asked of https must not come over http or from a disk."""

    max_redirections = 5

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and urllib.parse.urlsplit(newurl).netloc != urllib.parse.urlsplit(req.full_url).netloc:
            request.remove_header("Authorization")
        return request

    def http_error_302(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: http.client.HTTPMessage
    ) -> http.client.HTTPResponse | None:
        # Here and not in `redirect_request`: urllib answers some schemes by an HTTPError before it asks that.
        target = headers.get("location") or headers.get("uri") or ""
        check_lead(req.full_url, target)
        response: http.client.HTTPResponse | None = super().http_error_302(req, fp, code, msg, headers)
        return response

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def check_lead(url: str, target: str) -> None:
    """Raises SourceError where a server leads somewhere that is refused: out of its scheme, or into this machine."""
    try:
        here, there = urllib.parse.urlsplit(url), urllib.parse.urlsplit(urllib.parse.urljoin(url, target))
    except ValueError as error:
        raise _no_address(url, target, error) from None
    if there.scheme != here.scheme:
        raise _led(url, target, "redirected to another scheme, which is refused", f"{here.scheme}://")
    check_outward(url, target)


def check_outward(url: str, target: str) -> None:
    """Raises SourceError where a server elsewhere leads into this machine."""
    try:
        here, there = urllib.parse.urlsplit(url), urllib.parse.urlsplit(urllib.parse.urljoin(url, target))
        inward = _is_inside(there.hostname) and not _is_inside(here.hostname)
    except ValueError as error:
        raise _no_address(url, target, error) from None
    if inward:
        raise _led(url, target, "redirected to this machine itself, which is refused", "a server elsewhere")


def _no_address(url: str, target: str, error: ValueError) -> SourceError:
    return _led(url, target, f"redirected to what is no address ({error}), which is refused", "an address")


def _led(url: str, target: str, what: str, expected: str) -> SourceError:
    remedy = "if that address is right, write it in models.yaml yourself"
    return SourceError(what, where=shown(url), expected=expected, got=shown(target), remedy=remedy)


def _is_inside(host: str | None) -> bool:
    """True for this machine and its own link, by name or number; what a name stands for is not asked."""
    name = (host or "").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_link_local or address.is_unspecified


def shown(url: str) -> str:
    """A URL for people and logs: without user info and query, which may hold secrets."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "...=" if parts.query else "", ""))[:300]
    except ValueError:
        return url[:100]


def open_url(request: urllib.request.Request, timeout: float) -> http.client.HTTPResponse:
    """Opens a request; redirects stay within its scheme. Raises what urllib raises, and SourceError."""
    # Not build_opener(): its default list opens file: and ftp: too.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.UnknownHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        _SameScheme,
    ):
        opener.add_handler(handler())
    response: http.client.HTTPResponse = opener.open(request, timeout=timeout)
    return response
