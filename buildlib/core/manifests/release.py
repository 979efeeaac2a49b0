"""What publishing decides: where files go, what they are called, what the manifests and the commit say. Pure."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

from buildlib.core.catalog import Model, Target
from buildlib.errors import TargetError

Storage = Literal["plain", "lfs", "chunks"]

CHUNK_SIZE = 49 * 1024 * 1024
"""Bytes of one chunk, openpilot's: under the 50 MB above which hosts warn (facts, section 1)."""

MAX_PLAIN: Mapping[str, int] = {"github.com": 100 * 1024 * 1024, "gitlab.com": 100 * 1024 * 1024}
"""Bytes above which a host refuses a plain file in git."""


def directory(target: Target, model: Model) -> str:
    """The directory of a model's files, relative to the repository: `models/recompiled16/model-No PP`."""
    path = _filled(target.directory, _words(target, model), f"targets.{target.name}.directory").strip("/")
    if any(part in ("", ".", "..") for part in path.split("/")) or "\\" in path or "\0" in path:
        raise TargetError(
            "the directory of a model leaves the repository",
            where=f"targets.{target.name}.directory",
            expected="a relative path without . or ..",
            got=repr(path),
        )
    return path


def fixed_part(directory: str) -> str:
    """The part of a target's directory that all models share (`models/recompiled16`): made with one tinygrad."""
    return directory.split("{", 1)[0].rpartition("/")[0].strip("/")


def moved_url(url: str, path: str) -> str | None:
    """A former catalog's URL with the directory of a new one; path: of the file there. None where they are not alike.

    `https://host/raw/models/recompiled16/model-X/y.pkl` and `models/recompiled17/model-X/y.pkl`: one part differs.
    """
    head, _, query = url.partition("?")
    old, new = head.split("/"), path.split("/")
    if len(old) < len(new) + 3:  # scheme, nothing, host
        return None
    differing = [place for place in range(1, len(new) + 1) if unquote(old[-place]) != new[-place]]
    if len(differing) > 1:
        return None
    for place in differing:
        old[-place] = quote(new[-place])
    return "/".join(old) + ("?" + query if query else "")


def file_url(target: Target, model: Model, path: str) -> str | None:
    """The public URL of a model's file in the target, percent-encoded; None when the manifest's own URL is to stay.

    `url` may hold {path} or {artifact}, else it ends where the path begins.
    """
    if target.url is None:
        return None
    plain = {**_words(target, model), "path": path, "artifact": PurePosixPath(path).name}
    plain["directory"] = str(PurePosixPath(path).parent)
    words = {key: quote(word, safe="/") for key, word in plain.items()}
    filled = _filled(target.url, words, f"targets.{target.name}.url")
    return filled if "{path}" in target.url or "{artifact}" in target.url else f"{filled.rstrip('/')}/{words['path']}"


def message(target: Target, model: Model, changes: str) -> str:
    """The commit's subject. changes: what changed in the key since the last publication ("OPENPILOT_HACKS=1")."""
    words = {**_words(target, model), "directory": directory(target, model), "changes": changes}
    return _filled(target.message, words, f"targets.{target.name}.message").strip()


def chunk_names(file_name: str, size: int, chunk_size: int = CHUNK_SIZE) -> tuple[str, ...]:
    """Names of the pieces of a file of this size, openpilot's form: `NAME.chunk01of03`."""
    count = max(1, math.ceil(size / chunk_size))
    return tuple(f"{file_name}.chunk{number:02d}of{count:02d}" for number in range(1, count + 1))


def chunk_manifest_name(file_name: str) -> str:
    """The small file beside the chunks that holds their count."""
    return f"{file_name}.chunkmanifest"


def is_piece_of(name: str, file_name: str) -> bool:
    """True for the chunks of a file and their count, whatever their number."""
    return name == chunk_manifest_name(file_name) or bool(
        re.fullmatch(re.escape(file_name) + r"\.chunk\d{2,}of\d{2,}", name)
    )


def host_limit(remote_url: str) -> tuple[str, int] | None:
    """Host and the bytes that it takes as a plain file at most; None where no limit is known."""
    host = urlsplit(remote_url).hostname
    if host is None and (match := re.match(r"(?:[^@/]+@)?([^:/]+):", remote_url)):
        host = match.group(1)  # scp form, git@github.com:owner/name
    for name, limit in MAX_PLAIN.items():
        if host is not None and (host == name or host.endswith("." + name)):
            return host, limit
    return None


def _words(target: Target, model: Model) -> dict[str, str]:
    return {
        "name": model.name,
        "display_name": model.display_name,
        "folder": model.folder,
        "artifact": model.artifact,
        "branch": target.branch,
    }


def _filled(template: str, words: Mapping[str, str], where: str) -> str:
    pieces = []
    for text, field, _, _ in string.Formatter().parse(template):
        pieces.append(text)
        if field is not None and field not in words:
            known = ", ".join(f"{{{word}}}" for word in words)
            raise TargetError(f"unknown placeholder {{{field}}}", where=where, expected=known)
        pieces.append(words[field] if field is not None else "")
    return "".join(pieces)
