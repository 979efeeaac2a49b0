"""What known_hosts files say about a host key. Values only: text in, verdict out.

Source: sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT".
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

DEFAULT_PORT = 22
REVOKED = "@revoked"
Verdict = Literal["known", "unknown", "changed", "revoked"]


@dataclass(frozen=True, kw_only=True)
class KnownKey:
    """One line of a known_hosts file that concerns a host. line counts from 1; blob is the public key as sent."""

    file: str
    line: int
    marker: str
    key_type: str
    blob: bytes


def entry_name(host: str, port: int) -> str:
    """The name that a host has in known_hosts: bare on port 22, else `[host]:port`."""
    host = host.lower()
    return host if port == DEFAULT_PORT else f"[{host}]:{port}"


def fingerprint(blob: bytes) -> str:
    """`SHA256:...` as OpenSSH prints it: base64 without padding."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def entry_line(name: str, key_type: str, blob: bytes) -> str:
    """A line to append to a known_hosts file, newline included."""
    return f"{name} {key_type} {base64.b64encode(blob).decode()}\n"


def keys_for(name: str, file: str, text: str) -> list[KnownKey]:
    """Every key that the text of one known_hosts file gives for an entry name. Lines that are no entries are skipped,
    as OpenSSH does; so are certificate authorities, which this build does not trust."""
    found = []
    # Only a newline ends a line for OpenSSH: what splitlines() adds could hide a second entry in a comment.
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if len(fields) < 3 or fields[0].startswith("#") or marker not in ("", REVOKED):
            continue
        try:
            blob = base64.b64decode(fields[2], validate=True)
        except binascii.Error:
            continue
        if _matches(fields[0], name):
            found.append(KnownKey(file=file, line=number, marker=marker, key_type=fields[1], blob=blob))
    return found


def judge(known: Iterable[KnownKey], blob: bytes) -> tuple[Verdict, KnownKey | None]:
    """What to think of a key, and the line that says so.

    A host that is known by any key at all and shows another one has "changed", also when only the type differs: the
    known types were asked for first, so an honest host would have shown one of them.
    """
    keys = list(known)
    for key in keys:
        if key.marker == REVOKED and key.blob == blob:
            return "revoked", key
    trusted = [key for key in keys if key.marker != REVOKED]
    for key in trusted:
        if key.blob == blob:
            return "known", key
    return ("changed", trusted[0]) if trusted else ("unknown", None)


def _matches(patterns: str, name: str) -> bool:
    if patterns.startswith("|1|"):
        return _matches_hashed(patterns, name)
    matched = False
    for pattern in patterns.lower().split(","):
        negated = pattern.startswith("!")
        # "[" opens a port here, not a set of characters.
        if fnmatch.fnmatchcase(name, pattern.removeprefix("!").replace("[", "[[]")):
            if negated:
                return False
            matched = True
    return matched


def _matches_hashed(pattern: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in pattern.split("|")[2:4])
    except ValueError:
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)
