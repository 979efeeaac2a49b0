"""Opens the target that a model is published to; a sandbox on this machine is opened with its own server's URL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from buildlib import errors
from buildlib.core import catalog
from buildlib.ports.target import Target
from buildlib.sandbox import Sandbox, open_sandbox
from buildlib.store.workspace import Workspace


def root_of(workspace: Workspace, settings: catalog.Target) -> Path:
    """The directory of a repository or share; relative paths start at the project's root."""
    return workspace.root / Path(settings.repository).expanduser()


def sandbox_of(workspace: Workspace, settings: catalog.Target) -> Sandbox | None:
    """The sandbox that a target is, if `doit sandbox` made it."""
    if not settings.sandbox:
        return None
    with contextlib.suppress(errors.TargetError):
        return open_sandbox(root_of(workspace, settings).parent)
    return None


def resolved(workspace: Workspace, settings: catalog.Target) -> catalog.Target:
    """A target's settings, with what only the sandbox itself knows: the port of its server."""
    sandbox = sandbox_of(workspace, settings)
    if sandbox is None or settings.url is not None:
        return settings
    return msgspec.structs.replace(settings, url=sandbox.target().url)


def open_target(workspace: Workspace, settings: catalog.Target) -> Target:
    """The target of one kind: one file each under `targets`."""
    root, placed = root_of(workspace, settings), resolved(workspace, settings)
    if settings.sandbox and not root.exists():
        raise errors.TargetError("there is no sandbox yet", where=settings.repository, remedy="doit sandbox")
    if settings.kind == "git":
        from buildlib.targets.git_repository import GitRepository

        return GitRepository(placed, root)
    if settings.kind == "folder":
        from buildlib.targets.folder import Folder

        return Folder(placed, root, hash_file=workspace.hash_file)
    raise errors.TargetError(f"targets of kind {settings.kind} are not built in", where=f"targets.{settings.name}")


@contextlib.contextmanager
def serving(workspace: Workspace, settings: catalog.Target) -> Iterator[None]:
    """Runs a sandbox's server for as long as the block needs it; other targets have their own."""
    sandbox = sandbox_of(workspace, settings)
    if sandbox is None:
        yield
        return
    with sandbox.serving():
        yield
