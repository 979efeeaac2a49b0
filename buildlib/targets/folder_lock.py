"""A folder as it should be before anything is done in it: mounted, its links inside it, and ours alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from buildlib.core.catalog import Target as TargetSettings
from buildlib.errors import StoreError, TargetError
from buildlib.ports.events import Events
from buildlib.store import locks
from buildlib.targets import folder_journal
from buildlib.targets.inside import check_inside

LOCK_WAIT = 600.0
STATE = ".supercombo-build"
"""Directory inside the share for the lock, the journal and what was replaced."""


def require_mounted(root: Path, settings: TargetSettings) -> None:
    """Raises TargetError for a mount point without its share."""
    if not root.is_dir():
        why = "the folder is not there"
    elif settings.manifests and not any((root / path).is_file() for path in settings.manifests):
        why = "the folder has none of its manifests: the share is not mounted, or it is another folder"
    else:
        return
    raise TargetError(
        why,
        where=str(root),
        remedy="mount the share, or correct `repository` and `manifests` of the target in models.yaml",
    )


@contextlib.contextmanager
def locked(root: Path, settings: TargetSettings, purpose: str, events: Events, subject: str) -> Iterator[Path]:
    """Alone with the folder, and after whatever a killed run left was put back. The directory for our own files."""
    require_mounted(root, settings)
    state = root / STATE
    check_inside(root, (STATE, f"{STATE}/lock", *settings.manifests))
    try:
        state.mkdir(exist_ok=True)
    except OSError as error:
        raise TargetError(
            f"the folder cannot be written: {error.strerror}",
            where=str(root),
            remedy="mount the share for writing",
        ) from error
    waiting = lambda holder: events.step(subject, "publish", f"waits for {holder}")  # noqa: E731
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locks.exclusive(state / "lock", purpose, wait=LOCK_WAIT, on_wait=waiting))
        except OSError as error:
            raise StoreError(
                f"the share cannot be locked: {error.strerror}",
                where=str(state),
                remedy="mount it with locks (SMB or NFS 4), and publish from one workstation at a time until then",
            ) from error
        tell_left(folder_journal.mend(state, root), events, subject)
        yield state


def require_there(state: Path) -> None:
    """Raises TargetError where the share went away meanwhile: its mount point would take files that nobody sees."""
    if not state.is_dir():
        raise TargetError(
            "the share went away in the middle",
            where=str(state.parent),
            remedy="mount it again, then the same again: what was begun is put back first",
        )


def tell_left(paths: tuple[str, ...], events: Events, subject: str) -> None:
    """Says what a fault or a kill did not put back, since somebody has worked on it."""
    for path in paths:
        events.warning(subject, f"{path} holds somebody's newer work and was left as it is")
