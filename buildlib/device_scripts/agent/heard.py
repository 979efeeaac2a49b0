"""Which flags this device's tinygrad hears: it never says of an unknown one that it is ignored. And what it defines.

An artifact names classes of the tinygrad that captured it: one that lacks some of them cannot load it.
"""

from __future__ import annotations

import os
import re

from .hashes import HashCache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = re.compile(rb"""["']([A-Z][A-Z0-9_]+)["']""")
DEFINED = re.compile(rb"^[ \t]*(?:class +)?(_?[A-Z]\w*[a-z]\w*) *[:=(\[]", re.MULTILINE)
GENERATED = "autogen"
"""A folder of headers of other people's drivers, whose names are no tinygrad's."""
HOME = b"ContextVar"
"""A package without this class reads its flags in a way that is not known here."""


def heard(hashes: HashCache, package: str | None, digest: str | None, wanted: list[str]) -> list[str] | None:
    """Those of the wanted names that the package's sources mention as a text of their own, or define as a class.

    None if the sources say nothing of either.

    package: directory of tinygrad; digest: of its contents, under which the names are remembered.
    """
    if package is None or digest is None:
        return None
    key = "names-2:" + digest
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
                if GENERATED not in folder.split(os.sep):
                    found.update(DEFINED.findall(text))
    return sorted(name.decode() for name in found) if judged else []
