"""Puts an artifact among the device's models, with a way back. Every rail is in the same command as the change."""

from __future__ import annotations

import hashlib
import os
import time

from . import held, ledger, locks
from .guard import require_offroad
from .hashes import BLOCK, Signature, signature
from .main import Request
from .places import Places, as_record, hidden, make_dirs, read_json, require_space, sync_dir, unlink, write_json
from .recovery import recover
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def model_name(name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise Refusal("request", "not a bare file name", got=repr(name))
    return name


def _index_file(places: Places) -> str:
    return os.path.join(places.state, "backups", "index.json")


def backups(places: Places, name: str | None = None) -> list[dict[str, Any]]:
    """Backups in the order in which they were made (their receipts, not the clock): {name, file, sha256, size, at}."""
    known = read_json(_index_file(places))
    entries = known if isinstance(known, list) else []
    entries = [entry for entry in entries if as_record(entry, name=str, file=str, sha256=str, size=int)]
    return [entry for entry in entries if name is None or entry["name"] == name]


def _write_backups(places: Places, entries: list[dict[str, Any]]) -> None:
    places.state_dir("backups")
    write_json(_index_file(places), entries)


def do_backups(request: Request) -> dict[str, Any]:
    """{backups: [...]} of one `name` or of all."""
    return {"backups": backups(request.places, request.args.get("name"))}


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
        held.take_back_others(places, name, sha256)
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
            entry = _back_up(request, name, active, former)
            result["backup"] = places.device(os.path.join(places.state, "backups", entry["file"]))
        held.forget(places, name)
        if hold is not None:
            result["journal"] = held.begin(places, name, sha256, former, hold)
        replace_file(places, source, active, sha256, seen)
        _read_back(request, active, sha256)
        _prune(places, name, int(args.get("keep", 3)))
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


def copy_file(
    source: str, target: str, like: os.stat_result | None, allowed: Callable[[str], None] = lambda sha256: None
) -> None:
    """Copies under a temporary name in the target's folder, flushes, renames. Owner and mode as `like`.

    allowed: gets the sha256 of what was copied, and raises where it must not take its place: the copy may have taken
    seconds, in which the car was switched on or the source was written to.
    """
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, hidden(name, "installing"))
    unlink(temporary)
    digest = hashlib.sha256()
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with open(source, "rb", buffering=0) as file:
                while block := file.read(BLOCK):
                    digest.update(block)
                    view = memoryview(block)
                    while view:
                        view = view[os.write(handle, view) :]
            if like is not None:
                os.fchmod(handle, like.st_mode & 0o7777)
                if os.geteuid() == 0:
                    os.fchown(handle, like.st_uid, like.st_gid)
            os.fsync(handle)
        finally:
            os.close(handle)
        allowed(digest.hexdigest())
        os.replace(temporary, target)
    except BaseException:
        unlink(temporary)
        raise
    sync_dir(folder)


def look_at(request: Request, active: str) -> tuple[str | None, Signature | None]:
    """(sha256, signature) of the file in an artifact's place; (None, None) if there is none."""
    return request.hashes.file(active) if os.path.isfile(active) else (None, None)


def require_same(places: Places, active: str, seen: Signature | None) -> None:
    """Raises Refusal(input_changed) unless the place holds what was `seen` there: right before it is taken."""
    present = signature(os.stat(active)) if os.path.isfile(active) else None
    if present != seen:
        raise Refusal(
            "input_changed",
            "somebody else has put another file in this place meanwhile",
            where=places.device(active),
            remedy="nothing was changed; keep the model selector and other people off it, then run the step again",
        )


def replace_file(places: Places, source: str, active: str, sha256: str, seen: Signature | None) -> None:
    """Makes the active file a copy of `source`, if at the rename that still is `sha256`, the car still is off, and
    what is replaced still is what was `seen` there: anything newer is somebody else's, and nobody has a backup of it.
    """

    def allowed(copied: str) -> None:
        if copied != sha256:
            raise Refusal(
                "input_changed",
                "the file changed while it was copied to its place",
                where=places.device(source),
                expected=f"sha256 {sha256}",
                got=copied,
                remedy="nothing was installed; run the step again",
            )
        require_same(places, active, seen)
        require_offroad(places)

    try:
        like = os.stat(active)
    except FileNotFoundError:
        folder = os.stat(places.models)
        like = os.stat_result((0o644, 0, 0, 0, folder.st_uid, folder.st_gid, 0, 0, 0, 0))
    require_offroad(places)
    copy_file(source, active, like, allowed)


def _read_back(request: Request, active: str, sha256: str) -> None:
    digest, _ = request.hashes.file(active)
    if digest != sha256:
        raise Refusal(
            "device",
            "the installed file does not read back as it was written",
            where=request.places.device(active),
            expected=f"sha256 {sha256}",
            got=digest,
            remedy="doit rollback MODEL, then check the device's disk",
        )


def _back_up(request: Request, name: str, active: str, sha256: str) -> dict[str, Any]:
    """Copies the active file to STATE/backups/NAME.bak.EPOCH, with a receipt. Bytes it has are not copied twice."""
    places = request.places
    entries = backups(places)
    for entry in entries:
        file = os.path.join(places.state, "backups", entry["file"])
        if entry["name"] == name and entry["sha256"] == sha256 and _holds(request, file, sha256):
            entries.remove(entry)
            _write_backups(places, [*entries, entry])
            return entry
    status = os.stat(active)
    require_space(places.state, status.st_size)
    epoch = int(time.time())
    folder = places.state_dir("backups")
    while os.path.exists(os.path.join(folder, f"{name}.bak.{epoch}")):
        epoch += 1
    file = f"{name}.bak.{epoch}"
    copy_file(active, os.path.join(folder, file), status)
    if not _holds(request, os.path.join(folder, file), sha256):
        raise Refusal("device", "the backup does not read back as it was written", where=os.path.join(folder, file))
    entry = {"name": name, "file": file, "sha256": sha256, "size": status.st_size, "at": time.time()}
    _write_backups(places, [*entries, entry])
    return entry


def _holds(request: Request, file: str, sha256: str) -> bool:
    return os.path.isfile(file) and request.hashes.file(file)[0] == sha256


def _prune(places: Places, name: str, keep: int) -> None:
    mine = backups(places, name)
    for entry in mine[: max(len(mine) - max(keep, 1), 0)]:
        drop(places, entry)


def drop(places: Places, entry: dict[str, Any]) -> None:
    _write_backups(places, [other for other in backups(places) if other["file"] != entry["file"]])
    unlink(os.path.join(places.state, "backups", os.path.basename(entry["file"])))


def do_rollback(request: Request) -> dict[str, Any]:
    """Puts back the newest backup of `name` that verifies, and uses it up.

    expect: sha256 that must be active now, else nothing is done (someone else has installed meanwhile).
    remove: with no backup left, the active file is removed instead of an error. model: what the workstation calls it,
    for the remedy. Returns {active, sha256 (None if removed), former, backup}. Raises Refusal: rail, busy, device.
    """
    places, args = request.places, request.args
    name = model_name(str(args["name"]))
    recover(places)
    require_offroad(places)
    lock = locks.acquire(places, request.owner, f"rollback {name}", float(args.get("wait", 0)))
    try:
        require_offroad(places)
        done = _roll_back(request, name, args.get("expect"), bool(args.get("remove")), args.get("model"))
        held.forget(places, name)
        return done
    finally:
        os.close(lock)


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
    entry = _spare(request, name, lambda sha256: sha256 != former)
    if entry is not None:
        _take(request, active, entry, seen)
        return {**result, "sha256": entry["sha256"], "backup": entry["file"]}
    if not remove:
        what = "no backup verifies" if backups(places, name) else "there is no backup of it"
        remedy = f"doit install:{model or 'MODEL'} puts there what models.yaml declares"
        raise Refusal("device", what, where=places.device(active), remedy=remedy)
    _remove(places, active, seen)
    return result


def _spare(request: Request, name: str, wanted: Callable[[str], bool]) -> dict[str, Any] | None:
    """The newest backup of a wanted sha256 that verifies."""
    folder = os.path.join(request.places.state, "backups")
    mine = [entry for entry in reversed(backups(request.places, name)) if wanted(entry["sha256"])]
    return next((one for one in mine if _holds(request, os.path.join(folder, one["file"]), one["sha256"])), None)


def _take(request: Request, active: str, entry: dict[str, Any], seen: Signature | None) -> None:
    """Puts a backup in the active file's place, and uses it up."""
    places = request.places
    require_space(places.models, entry["size"])
    replace_file(places, os.path.join(places.state, "backups", entry["file"]), active, entry["sha256"], seen)
    _read_back(request, active, entry["sha256"])
    drop(places, entry)


def _remove(places: Places, active: str, seen: Signature | None) -> None:
    require_same(places, active, seen)
    require_offroad(places)
    unlink(active)
    sync_dir(places.models)


def undo(places: Places, step: dict[str, Any]) -> str:
    """A held install whose time is over: the former file comes back, unless something else was installed since."""
    request = Request({}, places)
    name = model_name(step["name"])
    active = os.path.join(places.models, name)
    present, seen = look_at(request, active)
    if present != step["sha256"]:
        return ""
    if step["former"] is None:
        _remove(places, active, seen)
        return f"{name} removed"
    entry = _spare(request, name, lambda sha256: sha256 == step["former"])
    if entry is None:
        return f"{name} stays: no backup of what was there before verifies"
    _take(request, active, entry, seen)
    return f"{name} put back"
