"""Takes an install back: because somebody asks, or because the test that it was there for never ended."""

from __future__ import annotations

import os

from . import held, locks
from .active import look_at, model_name, remove_active
from .backups import backups, spare, take
from .guard import require_offroad
from .main import Request
from .places import Places, make_dirs
from .recovery import recover
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def do_rollback(request: Request) -> dict[str, Any]:
    """Puts back the newest backup of `name` that verifies, and uses it up; what a held install replaced, where one is.

    expect: sha256 that must be active now, else nothing is done (someone else has installed meanwhile).
    remove: with no backup left, the active file is removed instead of an error. model: what the workstation calls it,
    for the remedy. Returns {active, sha256 (None if removed), former, backup: its file, None where a hold was ended}.
    Raises Refusal: rail, busy, device.
    """
    places, args = request.places, request.args
    name = model_name(str(args["name"]))
    tested = _in_its_test(request, name)
    recover(places)
    require_offroad(places)
    lock = locks.acquire(places, request.owner, f"rollback {name}", float(args.get("wait", 0)))
    try:
        require_offroad(places)
        done = None if tested is None or args.get("expect") not in (None, tested) else _end_test(request, name, tested)
        if done is None:
            done = _roll_back(request, name, args.get("expect"), bool(args.get("remove")), args.get("model"))
        held.forget(places, name)
        return done
    finally:
        os.close(lock)


def _in_its_test(request: Request, name: str) -> str | None:
    """sha256 of the active file while it is held for its test."""
    tests = [step["sha256"] for _, step in held.holds(request.places, name)]
    active, _ = look_at(request, os.path.join(request.places.models, name)) if tests else (None, None)
    return active if active in tests else None


def _end_test(request: Request, name: str, tested: str) -> dict[str, Any] | None:
    """Ends the test of what was active, unless `recover` has: to go on from there would be one step too far back.

    None where the former file cannot come back.
    """
    held.take_back(request.places, name, tested)
    active = os.path.join(request.places.models, name)
    now, _ = look_at(request, active)
    if now == tested:
        return None
    return {"active": request.places.device(active), "former": tested, "sha256": now, "backup": None}


def _roll_back(
    request: Request, name: str, expect: str | None, remove: bool, model: str | None = None
) -> dict[str, Any]:
    places = request.places
    make_dirs(places.models)
    active = os.path.join(places.models, name)
    former, seen = look_at(request, active)
    if expect is not None and former != expect:
        raise Refusal(
            "input_changed",
            "another file is active than the one to roll back from",
            where=places.device(active),
            expected=f"sha256 {expect}",
            got=str(former),
        )
    result: dict[str, Any] = {"active": places.device(active), "former": former, "backup": None, "sha256": None}
    entry = spare(request, name, lambda sha256: sha256 != former)
    if entry is not None:
        take(request, active, entry, seen)
        return {**result, "sha256": entry["sha256"], "backup": entry["file"]}
    if not remove:
        what = "no backup verifies" if backups(places, name) else "there is no backup of it"
        remedy = f"doit install:{model or 'MODEL'} puts there what models.yaml declares"
        raise Refusal("device", what, where=places.device(active), remedy=remedy)
    remove_active(places, active, seen)
    return result


def undo(places: Places, step: dict[str, Any]) -> str:
    """A held install whose time is over: the former file comes back, unless something else was installed since."""
    request = Request({}, places)
    name = model_name(step["name"])
    active = os.path.join(places.models, name)
    present, seen = look_at(request, active)
    if present != step["sha256"]:
        return ""
    if step["former"] is None:
        remove_active(places, active, seen)
        return f"{name} removed"
    entry = spare(request, name, lambda sha256: sha256 == step["former"])
    if entry is None:
        return f"{name} stays: no backup of what was there before verifies"
    take(request, active, entry, seen)
    return f"{name} put back"
