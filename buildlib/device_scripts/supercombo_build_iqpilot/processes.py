"""Processes, as /proc shows them."""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MODEL_NAMES = ("modeld", "iqmodeld")


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat_of(pid: int) -> dict[str, Any]:
    """{parent, state, name, started (ticks since boot), cpu (ticks)}; empty for a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return {}
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return {
        "parent": int(fields[1]),
        "state": fields[0],
        "name": name,
        "started": int(fields[19]),
        "cpu": int(fields[11]) + int(fields[12]),
    }


def descends(pid: int, ancestors: set[int], everyone: dict[int, dict[str, Any]]) -> bool:
    seen = set()
    while pid in everyone and pid not in seen:
        seen.add(pid)
        pid = everyone[pid]["parent"]
        if pid in ancestors:
            return True
    return False


def runs_model(pid: int, name: str) -> bool:
    """By its name, its title or the script or module that it runs; a directory's name is not enough."""
    if name in MODEL_NAMES:
        return True
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(1 << 16).decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return False
    words = [word for word in words if word and not word.startswith("-")][:2]
    for word in words:
        parts = (word[:-3] if word.endswith(".py") else word).replace("/", ".").split(".")
        if parts[-1] in MODEL_NAMES or (
            len(parts) > 1 and parts[-1] in ("daemon", "main") and parts[-2] in MODEL_NAMES
        ):
            return True
    return False


def opened(pid: int) -> list[tuple[str, os.stat_result]]:
    """(where it points, status) of a process's open files that are real files."""
    found = []
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    for name in names:
        with contextlib.suppress(OSError):
            link = os.readlink(f"{folder}/{name}")
            if link.startswith("/") and not link.startswith("/dev/"):
                found.append((link, os.stat(f"{folder}/{name}")))
    return found


def mapped(pid: int) -> list[tuple[str, int, int]]:
    """(path, inode, bytes) of pickles that are in a process's memory; "(deleted)" follows the path of a removed one."""
    found = []
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            for line in file:
                fields = line.decode("utf-8", "replace").rstrip("\n").split(None, 5)
                # The kernel writes a line feed in a name as \012; other bytes stand as they are.
                if len(fields) == 6 and fields[5].replace(" (deleted)", "").endswith(".pkl"):
                    first, _, last = fields[0].partition("-")
                    found.append((fields[5], int(fields[4]), int(last, 16) - int(first, 16)))
    except OSError:
        pass
    return found
