"""Files of the machine: the artifacts under test, parameters, the heads of message queues."""

from __future__ import annotations

import hashlib
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Artifact:
    """A file under test: which bytes lie under its path before, during and after."""

    def __init__(self, path: str, asked: str) -> None:
        self.path = path
        self.real = os.path.realpath(path)
        self.asked = asked.lower()
        self.before = signature(path)
        self.before["sha256"] = sha256_of(path)
        self.after: dict[str, Any] = {}
        self.identity = (self.before.get("device"), self.before.get("inode"))
        self.moved: float | None = None

    def look(self, now: float) -> None:
        if self.moved is None and {**signature(self.path), "sha256": self.before["sha256"]} != self.before:
            self.moved = now

    def finish(self, now: float) -> None:
        self.look(now)
        self.after = {**signature(self.path), "sha256": sha256_of(self.path)}

    def told(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "asked": self.asked,
            "before": self.before,
            "after": self.after,
            "moved": self.moved,
        }


def signature(path: str) -> dict[str, Any]:
    try:
        status = os.stat(path)
    except OSError:
        return {}
    return {
        "device": status.st_dev,
        "inode": status.st_ino,
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns,
    }


def sha256_of(path: str) -> str | None:
    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()


def text_of(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(4096).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def active_files(path: str) -> tuple[list[str], list[str]]:
    """File names and sha256 that the active bundle names, in either spelling; empty where none is active."""
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read(4 << 20))
    except (OSError, ValueError, RecursionError):
        return [], []
    names: list[str] = []
    digests: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            for key, inner in node.items():
                if key in ("file_name", "fileName") and isinstance(inner, str):
                    names.append(inner)
                elif key == "sha256" and isinstance(inner, str):
                    digests.append(inner.lower())
                else:
                    walk(inner)
        elif isinstance(node, list):
            for inner in node:
                walk(inner)

    walk(value)
    return sorted(names), sorted(digests)


def writer_of(shared: str, name: str) -> int | None:
    """Where a message queue's writer stands; None where there is no such queue."""
    for path in (f"{shared}/msgq_{name}", f"{shared}/{name}"):
        try:
            with open(path, "rb") as file:
                return int.from_bytes(file.read(16)[8:], "little")
        except OSError:
            continue
    return None


def write_report(path: str, report: dict[str, Any]) -> None:
    with open(path + ".part", "w") as file:
        json.dump(report, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)
