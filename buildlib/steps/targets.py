"""Opens the target that a model is published to; a sandbox on this machine is opened with its own server's URL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import msgspec

from buildlib import errors
from buildlib.core import catalog
from buildlib.core.manifests.manifest import Entry
from buildlib.ports.events import Events, Silent
from buildlib.ports.source import SourceContext
from buildlib.ports.target import Target
from buildlib.sandbox import Sandbox, open_sandbox
from buildlib.steps.redownload import redownload
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


def open_target(
    workspace: Workspace, settings: catalog.Target, *, events: Events | None = None, cancel: Event | None = None
) -> Target:
    """The target of one kind, one file each under `targets`; or two of them, one of which takes the artifacts.

    events, cancel: for downloads between the two.
    """
    if settings.files is None:
        return _open_one(workspace, resolved(workspace, settings))
    from buildlib.targets.split import Split

    files = file_settings(workspace, settings)
    context = SourceContext(
        root=workspace.root,
        state=workspace.state / "sources",
        hash_file=workspace.hash_file,
        subject=settings.name,
        events=events or Silent(),
        cancel=cancel,
    )

    def fetch_back(entry: Entry, former: tuple[Entry, ...]) -> None:
        into = workspace.state / "incoming" / f"back-{entry.sha256[:16]}"
        into.parent.mkdir(parents=True, exist_ok=True)
        with serving(workspace, files):
            redownload(entry, former, into, context, timeout=files.confirm_timeout).path.unlink(missing_ok=True)

    return Split(
        settings.name,
        _open_one(workspace, files),
        _open_one(workspace, resolved(workspace, settings)),
        fetch_back,
    )


def file_settings(workspace: Workspace, settings: catalog.Target) -> catalog.Target:
    """Settings of the target that takes the artifacts for another one, which has the manifests."""
    files = resolved(workspace, workspace.catalog.targets[str(settings.files)])
    return msgspec.structs.replace(files, manifests=(), succeeds=(), url=files.url or settings.url)


def _open_one(workspace: Workspace, settings: catalog.Target) -> Target:
    root = root_of(workspace, settings)
    if settings.kind == "huggingface":
        from buildlib.targets.hugging_face import HuggingFace

        return HuggingFace(settings, workspace.state / "targets" / settings.name)
    if settings.sandbox and settings.kind == "git" and not root.exists():
        raise errors.TargetError("there is no sandbox yet", where=settings.repository, remedy="doit sandbox")
    if settings.kind == "git":
        from buildlib.targets.git_repository import GitRepository

        return GitRepository(settings, root)
    from buildlib.targets.folder import Folder

    return Folder(settings, root, hash_file=workspace.hash_file)


@contextlib.contextmanager
def serving(workspace: Workspace, settings: catalog.Target) -> Iterator[None]:
    """Runs a sandbox's server for as long as the block needs it; other targets have their own."""
    places = [settings] if settings.files is None else [settings, file_settings(workspace, settings)]
    with contextlib.ExitStack() as servers:
        for one in places:
            sandbox = sandbox_of(workspace, one)
            if sandbox is not None:
                servers.enter_context(sandbox.serving())
        yield
