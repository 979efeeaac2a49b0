"""What the selector's parameters say of bundles, in any spelling."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def folded(key: str) -> str:
    """One spelling for `file_name` and `fileName`."""
    return "".join(letter for letter in key.lower() if letter.isalnum())


def named(node: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """(file name, {sha256, url}) of each artifact under a JSON value; chunks are not artifacts."""
    if isinstance(node, dict):
        fields = {folded(key): value for key, value in node.items()}
        download = fields.get("downloaduri") or fields.get("download")
        holder = {folded(key): value for key, value in download.items()} if isinstance(download, dict) else fields
        if isinstance(fields.get("filename"), str) and isinstance(holder.get("sha256"), str):
            url = holder.get("url") or holder.get("uri") or ""
            yield fields["filename"], {"sha256": holder["sha256"].lower(), "url": str(url)}
        for key, value in node.items():
            if folded(key) != "chunks":
                yield from named(value)
    elif isinstance(node, list):
        for item in node:
            yield from named(item)


def parsed(text: str | None) -> Any:
    """The value of a JSON parameter; None for one that is unset or damaged."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def bundles_of(text: str | None) -> list[dict[str, Any]]:
    """The bundles of the device's list: an object with `bundles`, or the array itself."""
    value = parsed(text)
    listed = value.get("bundles") if isinstance(value, dict) else value
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def short_name(bundle: dict[str, Any]) -> str | None:
    fields = {folded(key): value for key, value in bundle.items()}
    name = fields.get("shortname") or fields.get("internalname")
    return name if isinstance(name, str) else None
