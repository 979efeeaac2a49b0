"""Git LFS pointer files: what a repository holds in place of a large file (git-lfs, docs/spec.md)."""

from __future__ import annotations

import re

import msgspec

POINTER_LIMIT = 1024
"""Bytes. A pointer is shorter; anything longer is content."""
_VERSIONS = (b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/")
_OID = re.compile(rb"^oid sha256:([0-9a-f]{64})$", re.MULTILINE)
_SIZE = re.compile(rb"^size (\d{1,18})$", re.MULTILINE)


class LfsPointer(msgspec.Struct, frozen=True):
    """oid: sha256 of the content, 64 hex digits. size: bytes of the content."""

    oid: str
    size: int


def looks_like_pointer(start: bytes) -> bool:
    """True when a file that starts so is a pointer, whole or damaged."""
    return start.startswith(_VERSIONS)


def parse_pointer(content: bytes) -> LfsPointer | None:
    """The pointer in a whole file's content; None where it is no (valid) pointer."""
    if len(content) >= POINTER_LIMIT or not looks_like_pointer(content):
        return None
    oid, size = _OID.search(content), _SIZE.search(content)
    if oid is None or size is None:
        return None
    return LfsPointer(oid.group(1).decode(), int(size.group(1)))
