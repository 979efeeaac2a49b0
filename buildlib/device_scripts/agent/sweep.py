"""Removes what belongs to no model any more, and nothing that the build did not put there itself."""

from __future__ import annotations

import os

from . import jobs, ledger, locks
from .backups import backups, drop
from .guard import require_offroad
from .main import Request
from .places import unlink
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def do_gc(request: Request) -> dict[str, Any]:
    """Lists what may go; removes it unless `dry` (the default). {items: [{kind, name, bytes}], removed: bool}.

    keep_files: device paths, keep_jobs: keys, keep_names: artifact names whose backups stay (`keep` of each).
    A file that no longer has the hash with which it was put there is somebody else's: it stays.
    """
    places, args = request.places, request.args
    dry = bool(args.get("dry", True))
    items = [*_uploads(request), *_parts(request), *_jobs(request), *_backups(request)]
    if not dry and items:
        require_offroad(places)
        lock = locks.acquire(places, request.owner, "gc", float(args.get("wait", 0)))
        try:
            require_offroad(places)
            for item in items:
                _remove(request, item)
        finally:
            os.close(lock)
    return {"items": [{name: item[name] for name in ("kind", "name", "bytes")} for item in items], "removed": not dry}


def _uploads(request: Request) -> list[dict[str, Any]]:
    keep = set(request.args.get("keep_files", ()))
    found = []
    for path, entry in sorted(ledger.known(request.places).items()):
        try:
            real, size, sha256 = request.places.owned(path), entry["size"], entry["sha256"]
        except (Refusal, KeyError, TypeError):
            # Put there when models.yaml named other paths: not a place to remove anything from now.
            continue
        if path in keep or not os.path.isfile(real) or os.path.getsize(real) != size:
            continue
        if request.hashes.file(real)[0] == sha256:
            found.append({"kind": "upload", "name": path, "bytes": size, "path": real})
    return found


def _parts(request: Request) -> list[dict[str, Any]]:
    sources, scripts = request.places.sources, _scripts(request)
    looked = [(sources, os.listdir(sources))] if os.path.isdir(sources) else []
    looked += [(folder, names) for folder, _, names in os.walk(scripts)]
    found = []
    for folder, names in looked:
        for name in sorted(names):
            real = os.path.join(folder, name)
            if name.startswith(".") and ".part" in name and os.path.isfile(real):
                size = os.stat(real).st_blocks * 512
                found.append({"kind": "part", "name": request.places.device(real), "bytes": size, "path": real})
    return found


def _scripts(request: Request) -> str:
    return os.path.join(request.places.state, "scripts")


def _jobs(request: Request) -> list[dict[str, Any]]:
    keep = set(request.args.get("keep_jobs", ()))
    found = []
    for job in jobs.every(request.places):
        if job.key not in keep and job.status() is not None and not job.running():
            size = sum(entry.stat().st_size for entry in os.scandir(job.dir) if entry.is_file())
            found.append({"kind": "job", "name": job.key, "bytes": size, "job": job})
    return found


def _backups(request: Request) -> list[dict[str, Any]]:
    names = set(request.args.get("keep_names", ()))
    count = int(request.args.get("keep", 3))
    everything = backups(request.places)
    found = []
    for name in sorted({entry["name"] for entry in everything}):
        mine = [entry for entry in everything if entry["name"] == name]
        # A name that no model has any more keeps its newest backup: it may be the only copy of what drove.
        spare = mine[: max(len(mine) - (count if name in names else 1), 0)]
        found += [{"kind": "backup", "name": e["file"], "bytes": e["size"], "backup": e} for e in spare]
    return found


def _remove(request: Request, item: dict[str, Any]) -> None:
    if item["kind"] == "job":
        item["job"].remove()
    elif item["kind"] == "backup":
        drop(request.places, item["backup"])
    else:
        unlink(item["path"])
        _remove_empty(os.path.dirname(item["path"]), _scripts(request))
    if item["kind"] == "upload":
        ledger.forget(request.places, item["name"])


def _remove_empty(folder: str, top: str) -> None:
    """The directories of a script that is gone."""
    while folder.startswith(top + "/") and not os.listdir(folder):
        os.rmdir(folder)
        folder = os.path.dirname(folder)
