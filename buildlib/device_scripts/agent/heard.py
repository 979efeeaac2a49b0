"""Which flags this device's tinygrad hears: it never says of an unknown one that it is ignored."""

from __future__ import annotations

import os
import re

from .hashes import HashCache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = re.compile(rb"""["']([A-Z][A-Z0-9_]+)["']""")
HOME = b"ContextVar"
"""A package without this class reads its flags in a way that is not known here."""


def heard(hashes: HashCache, package: str | None, digest: str | None, wanted: list[str]) -> list[str] | None:
    """Those of the wanted names that the package's sources mention as a text of their own; None if that says nothing.

    package: directory of tinygrad; digest: of its contents, under which the names are remembered.
    """
    if package is None or digest is None:
        return None
    key = "names:" + digest
    known: Any = hashes.recall(key)
    if known is None:
        known = _names(package)
        hashes.remember(key, known)
    return sorted(set(wanted) & set(known)) if known else None


def _names(package: str) -> list[str]:
    found: set[bytes] = set()
    judged = False
    for folder, folders, files in os.walk(package):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in files:
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb") as file:
                    text = file.read()
                judged = judged or HOME in text
                found.update(NAME.findall(text))
    return sorted(name.decode() for name in found) if judged else []
