"""Puts an artifact among the device's models, with a way back. Every rail is in the same command as the change."""

from __future__ import annotations

import os

from . import held, ledger, locks
from .active import look_at, model_name, read_back, replace_file
from .backups import back_up, prune
from .guard import require_offroad
from .main import Request
from .places import Places, make_dirs, require_space, unlink
from .recovery import recover
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def do_install(request: Request) -> dict[str, Any]:
    """Makes models/`name` the bytes of `source` (device path) with `sha256`; the former file is backed up first.

    A source that was sent for this alone, into STATE/incoming, is removed afterwards: it is on the disk twice else.
    keep: how many backups of this name stay. hold: it is there for a test, and after so many seconds the device puts
    the former file back, unless `install_keep` was called. Without it, it is there to stay. Returns {already, active,
    size, sha256, backup (device path or None), former (sha256 or None), journal: what holds it, or None}. Raises
    Refusal: rail, busy, input_changed, device.
    """
    places, args = request.places, request.args
    name = model_name(str(args["name"]))
    sha256 = str(args["sha256"]).lower()
    hold = None if args.get("hold") is None else float(args["hold"])
    active = os.path.join(places.models, name)
    recover(places)
    require_offroad(places)
    lock = locks.acquire(places, request.owner, f"install {name}", float(args.get("wait", 0)))
    try:
        require_offroad(places)
        # What was there before a test of other bytes is what the backup must hold.
        held.take_back(places, name, other_than=sha256)
        former, seen = look_at(request, active)
        result = {"active": places.device(active), "sha256": sha256, "former": former, "backup": None, "journal": None}
        source = places.real(str(args["source"]))
        if former == sha256:
            _drop_incoming(places, source)
            journal = held.settle(places, name, sha256, hold)
            return {**result, "already": True, "size": os.path.getsize(active), "journal": journal}
        size = _check_source(request, source, sha256)
        make_dirs(places.models, 0o755)
        require_space(places.models, size)
        if former is not None:
            entry = back_up(request, name, active, former)
            result["backup"] = places.device(os.path.join(places.state, "backups", entry["file"]))
        held.forget(places, name)
        if hold is not None:
            result["journal"] = held.begin(places, name, sha256, former, hold)
        try:
            replace_file(places, source, active, sha256, seen)
        except Refusal:
            # It comes before the rename: nothing is there for a test.
            held.forget(places, name)
            raise
        read_back(request, active, sha256)
        prune(places, name, int(args.get("keep", 3)))
        _drop_incoming(places, source)
        return {**result, "already": False, "size": size}
    finally:
        os.close(lock)


def _drop_incoming(places: Places, source: str) -> None:
    if os.path.dirname(source) == os.path.join(places.state, "incoming"):
        unlink(source)
        ledger.forget(places, places.device(source))


def _check_source(request: Request, source: str, sha256: str) -> int:
    if not os.path.isfile(source):
        raise Refusal("device", "the artifact is not on the device", where=source, remedy="run the step again")
    digest, signature = request.hashes.file(source)
    if digest != sha256:
        raise Refusal(
            "input_changed",
            "the artifact on the device is not the one that was verified",
            where=request.places.device(source),
            expected=f"sha256 {sha256}",
            got=digest,
            remedy="nothing was installed; compile again",
        )
    return signature[2]
