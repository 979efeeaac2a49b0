"""Receipts: what a finished step leaves behind, and what a failed one does. Files of these are the project's truth."""

from __future__ import annotations

from typing import Any

import msgspec

UNSEALED = "0" * 64


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A file by content. path is relative to the project's root; size in bytes; sha256 in lower-case hex."""

    path: str
    size: int
    sha256: str


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A step that ended well.

    parts is the whole key in the open, so that `explain` can name every difference. targets are files here that must
    exist with these bytes for the step to count as done. sample: something that went into it was made up.
    """

    stage: str
    model: str
    device: str | None = None
    key: str
    key_format: int
    version: int | str
    parts: dict[str, Any]
    result: dict[str, Any]
    targets: tuple[FileRecord, ...] = ()
    sample: bool = False
    finished: str
    """UTC, `2026-08-23T22:01:27Z`."""
    seconds: float
    tool: str = ""
    seal: str = UNSEALED
    """sha256 of the file with this field all zeros, so that damage is told from truth."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A step that failed: the last one only, kept as evidence until the step succeeds."""

    stage: str
    model: str
    device: str | None = None
    key: str | None
    error: str
    finished: str
    log: str | None = None
    refused: dict[str, str] = {}
    """Role -> sha256 of artifacts that a verdict was against; empty where the step came to no verdict."""
