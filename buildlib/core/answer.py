"""What of a probe's answer can change a build, as one digest. Imports next to nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def answer_digest(answer: Mapping[str, Any]) -> str:
    """sha256 over all of an answer but the device's passing health: equal digests, equal observations."""
    health = answer.get("health", {})
    stable = {name: value for name, value in answer.items() if name != "health"}
    stable["health"] = {name: health.get(name) for name in ("params", "undone", "pending")}
    return hashlib.sha256(json.dumps(stable, sort_keys=True).encode()).hexdigest()
