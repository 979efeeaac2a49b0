"""Attestations on disk: `attestations/MODEL/DATE-SHA.json`, in the project itself: reviewed and kept."""

from __future__ import annotations

from pathlib import Path

import msgspec

from buildlib.core.attestation import Attestation
from buildlib.store import files


def directory(root: Path, model: str) -> Path:
    """Where a model's attestations lie."""
    return root / "attestations" / model


def read_all(root: Path, model: str) -> list[Attestation]:
    """A model's attestations, oldest first; a file that cannot be read counts for nothing."""
    found: list[Attestation] = []
    for path in sorted(directory(root, model).glob("*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Attestation))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return [one for one in found if one.model == model]


def write(root: Path, attestation: Attestation) -> Path:
    """Keeps an attestation; its file."""
    short = "-".join(sha256[:8] for sha256 in attestation.artifacts.values())
    stamp = attestation.on.replace(":", "").replace("-", "")
    kind = "published-" if attestation.published else ""
    path = directory(root, attestation.model) / f"{stamp}-{kind}{short}.json"
    files.write(path, msgspec.json.format(msgspec.json.encode(attestation), indent=1) + b"\n")
    return path
