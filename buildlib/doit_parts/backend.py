"""doit's database, emptied of meaning: receipts are the truth, so only `doit ignore` marks are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from buildlib.store import files

IGNORE = "ignore:"


class MarksBackend:
    """A doit backend that remembers which tasks a person asked to ignore, and forgets all else at the run's end."""

    desc = "receipts under .build are the truth; only `doit ignore` is stored here"

    def __init__(self, name: str, codec: Any, *, module_name: str | None = None) -> None:
        self.name = name
        self._values: dict[str, dict[str, Any]] = {}
        try:
            marks = json.loads(Path(name).read_bytes())
            self._ignored = {str(task): str(mark) for task, mark in marks.items()}
        except (OSError, ValueError, AttributeError, RecursionError):
            self._ignored = {}
        self._stored = dict(self._ignored)

    def get(self, task_id: str, dependency: str) -> Any:
        """A value of this run, or an ignore mark."""
        if dependency == IGNORE:
            return self._ignored.get(task_id)
        return self._values.get(task_id, {}).get(dependency)

    def set(self, task_id: str, dependency: str, value: Any) -> None:
        """Keeps an ignore mark; anything else lives until the run ends."""
        if dependency == IGNORE:
            self._ignored[task_id] = value
        else:
            self._values.setdefault(task_id, {})[dependency] = value

    def in_(self, task_id: str) -> bool:
        """True when something is known of the task."""
        return task_id in self._values or task_id in self._ignored

    def remove(self, task_id: str) -> None:
        """Forgets a task."""
        self._values.pop(task_id, None)
        self._ignored.pop(task_id, None)

    def remove_all(self) -> None:
        """Forgets every task."""
        self._values.clear()
        self._ignored.clear()

    def dump(self) -> None:
        """Writes the marks where they changed."""
        if self._ignored != self._stored:
            files.write(Path(self.name), json.dumps(self._ignored).encode())
            self._stored = dict(self._ignored)
