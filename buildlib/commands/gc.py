"""`doit gc`: what belongs to no model any more, listed; removed with `--yes`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec

from buildlib.commands.base import ProjectCommand, opt_yes
from buildlib.commands.gc_device import collect_on_device
from buildlib.core.freshness import judge_model
from buildlib.core.receipt import Receipt
from buildlib.core.world import DeviceSeen, Subject
from buildlib.doit_parts.session import Session
from buildlib.steps.world import FileWorld
from buildlib.store import leftovers
from buildlib.store.workspace import Workspace

opt_device = {
    "name": "device",
    "short": "",
    "long": "device",
    "type": str,
    "default": "",
    "help": "collect on this device instead of here",
}


class Garbage(msgspec.Struct, frozen=True):
    """Something to remove: its path, its size in bytes, and why nobody needs it."""

    path: Path
    size: int
    why: str


class GcCommand(ProjectCommand):
    """Looks at the workstation, or with `--device` at what the build has put on a device."""

    name = "gc"
    doc_purpose = "list, and with --yes remove, what belongs to no model any more"
    doc_usage = "[--device NAME] [--yes]"
    own_options = (opt_yes, opt_device)
    writes = True
    takes_words = False

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Lists or removes."""
        if options["device"]:
            return collect_on_device(session, options["device"], remove=options["yes"])
        found = collect(session.workspace)
        for garbage in found:
            print(f"{garbage.size / 1e6:8.1f} MB  {session.workspace.relative(garbage.path)}  {garbage.why}")
        total = sum(garbage.size for garbage in found) / 1e6
        if not found:
            print("Nothing to collect.")
        elif not options["yes"]:
            print(f"{total:.1f} MB in {len(found)} places. `doit gc --yes` removes them.")
        else:
            for garbage in found:
                remove(garbage.path)
            print(f"{total:.1f} MB removed.")
        return 0


def remove(path: Path) -> None:
    """Removes a file or a directory; one that is gone already is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def collect(workspace: Workspace) -> list[Garbage]:
    """What no model of models.yaml owns, under its present or its former name."""
    models = workspace.catalog.models
    owned = {*models, *(model.was for model in models.values() if model.was)}
    receipts = list(workspace.receipts.all())
    claimed = _claimed(workspace, owned)
    orphans = [receipt for receipt in receipts if receipt.model not in owned and receipt.key not in claimed]
    kept = [receipt for receipt in receipts if receipt not in orphans]
    found = [
        Garbage(path, _size(path), f"artifacts of {path.name}, which models.yaml does not have")
        for path in _children(workspace.root / "artifacts")
        if path.is_dir() and path.name not in owned
    ]
    found += [
        Garbage(path, _size(path), f"an artifact that {model.name} has under another name now")
        for model in models.values()
        for path in _children(workspace.root / "artifacts" / model.name)
        if path.name.endswith((".pkl", ".pkl.sha256"))
        and path.name.removesuffix(".sha256") not in model.artifacts.values()
    ]
    found += [Garbage(workspace.receipts.path(r.stage, r.key), 1000, f"receipt of {r.model}") for r in orphans]
    found += [
        Garbage(path, _size(path), f"latest keys of {path.stem}")
        for path in _children(workspace.state / "latest")
        if path.stem not in owned
    ]
    found += [
        Garbage(path, _size(path), f"failed attempt of {path.stem}")
        for stage in _children(workspace.state / "attempts")
        for path in _children(stage)
        if path.stem not in owned
    ]
    needed = set().union(*(_blobs_of(receipt) for receipt in kept)) if kept else set()
    found += [
        Garbage(workspace.blobs.path(sha256), size, "no receipt names these bytes")
        for sha256, size in sorted(workspace.blobs.all().items())
        if sha256 not in needed
    ]
    cut = [*leftovers.find(workspace), *(workspace.state / "incoming").glob("*.part")]
    found += [Garbage(path, _size(path), "left by a build that was cut") for path in cut]
    return found


def _claimed(workspace: Workspace, owned: set[str]) -> set[str]:
    """Keys that models of models.yaml have now, or had last: whoever made their receipts, they count for these."""
    claimed = {key for name in owned for key in workspace.receipts.latest(name).values()}
    catalog = workspace.catalog
    seen: dict[str, DeviceSeen] = {}
    for model in catalog.models.values():
        for device in catalog.devices.values():
            judged = judge_model(Subject(catalog, model, device), FileWorld(workspace, seen))
            claimed |= {judgement.key for judgement in judged.values() if judgement.key is not None}
    return claimed


def _blobs_of(receipt: Receipt) -> set[str]:
    entries = (*receipt.result.get("sources", {}).values(), *receipt.result.get("artifacts", {}).values())
    return {entry["sha256"] for entry in entries if isinstance(entry, dict)} | {t.sha256 for t in receipt.targets}


def _children(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _size(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        return sum(_size(child) for child in path.iterdir())
    return path.lstat().st_size
