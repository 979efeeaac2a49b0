"""The work behind `doit update [M ...]`: follow git sources' refs and write models.lock."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event

from buildlib.core.catalog import GitSource
from buildlib.core.sources.lockfile import NAME as LOCK_NAME
from buildlib.core.sources.lockfile import Lock, render_lock
from buildlib.ports.events import Events, Silent
from buildlib.ports.source import SourceContext
from buildlib.sources import git
from buildlib.store import files
from buildlib.store.lock_file import read_lock
from buildlib.store.workspace import Workspace


def update_pins(
    workspace: Workspace,
    models: Sequence[str],
    *,
    events: Events | None = None,
    cancel: Event | None = None,
) -> tuple[Lock, Lock]:
    """The work behind `doit update [M ...]`: asks where git sources' refs point now and writes models.lock.

    models: names; empty means all, and then pins of models that are gone are dropped. Returns the lock before and
    after (`lockfile.changes` tells what moved). All or nothing: one repository that fails leaves the file alone.
    """
    catalog, lock_file = workspace.catalog, workspace.root / LOCK_NAME
    before = after = read_lock(lock_file)
    keep: set[str] = set()
    for name, model in catalog.models.items():
        for role, source in model.sources.items():
            if not isinstance(source, GitSource):
                continue
            keep.add(f"{name}/{role}")
            if models and name not in models:
                continue
            context = SourceContext(
                root=workspace.root,
                state=workspace.state / "sources",
                hash_file=files.hash_file,
                subject=name,
                pin=before.pin(name, role),
                events=events or Silent(),
                cancel=cancel,
            )
            after = after.with_pin(name, role, git.Reader(source, context).resolve())
    if not models:
        after = after.without(keep)
    if after != before:
        files.write(lock_file, render_lock(after).encode())
    return before, after
