"""One look at the device: what is part of keys (identity) and what never is (health). Mends what others left."""

from __future__ import annotations

import os
import time

from . import held, jobs, journal, locks, power, selector
from .backups import backups
from .guard import onroad_state
from .heard import heard
from .main import Request
from .places import free_bytes, make_dirs, read_text
from .processes import boot_id, model_processes
from .recovery import recover
from .send import files
from .toolchain import identify
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCONSCRIPT = "/iqpilot/selfdrive/iqmodeld/SConscript"


def do_probe(request: Request) -> dict[str, Any]:
    """{"identity", "people", "problems", "health", "files", "flags", "heard"} in one answer.

    toolchain: a spec for `toolchain.identify`, or None. files: device paths of ours to check. sconscript: device path
    (default: IQPilot's). params: more parameters to read. names: flags and classes of which "heard" says whether
    tinygrad knows them. Nothing is changed but what earlier commands left to mend, and missing cache directories are
    made (guide, section 4).
    """
    places, args = request.places, request.args
    mended = _mend(request)
    answer: dict[str, Any] = {"identity": None, "people": {}, "problems": [], "heard": None}
    if args.get("toolchain") is not None:
        found = identify(places, request.hashes, args["toolchain"])
        answer.update({name: found[name] for name in ("identity", "people", "problems")})
        package, digest = found["people"].get("tinygrad_path"), found["identity"]["tinygrad"]
        answer["heard"] = heard(request.hashes, package, digest, list(args.get("names", ())))
    answer["files"] = files(request, list(args.get("files", ())))
    answer["flags"] = _flags(request, args.get("sconscript") or places.paths["openpilot"] + SCONSCRIPT)
    answer["health"] = _health(request, mended)
    return answer


def _mend(request: Request) -> dict[str, Any]:
    try:
        return recover(request.places)
    except (Refusal, OSError) as error:
        text = error.value["what"] if isinstance(error, Refusal) else f"{error.strerror}: {error.filename}"
        return {"undone": [], "pending": [text]}


def _health(request: Request, mended: dict[str, Any]) -> dict[str, Any]:
    places = request.places
    extra = {
        key: read_text(os.path.join(places.params, os.path.basename(key))) for key in request.args.get("params", ())
    }
    return {
        "free": {name: free_bytes(getattr(places, name)) for name in ("state", "models", "sources")},
        "clock": time.time(),
        "onroad": onroad_state(places),
        "power_saving": power.is_on(places),
        "active_bundle": (active := read_text(os.path.join(places.params, selector.ACTIVE))),
        "model_manager": selector.described(selector.manager_processes(places)) if active else [],
        "params": extra,
        "boot": boot_id(places),
        "user": os.geteuid(),
        "directories": _directories(request),
        "model_processes": [f"pid {found.pid}: {' '.join(found.argv)[:120]}" for found in model_processes(places)],
        "jobs": jobs.listing(places),
        "backups": len(backups(places)),
        "lock": locks.holder(places),
        "journals": [{name: entry.get(name) for name in ("id", "what", "job")} for entry in journal.everything(places)],
        "held": held.names(places),
        "undone": mended["undone"],
        "pending": mended["pending"],
    }


def _directories(request: Request) -> dict[str, str]:
    """{device path: "ok" or what is wrong} of the directories that the compiling user must be able to write.

    Missing ones are made and each is tried by writing, while offroad. Else nothing is, and they are "not there yet".
    """
    places = request.places
    offroad = onroad_state(places) == "0"
    found = {}
    for real in (*places.caches, places.state, places.models):
        if not offroad:
            missing = "No such file or directory" if real == places.models else "not there yet"
            wrong = "not writable" if os.path.lexists(real) else missing
            found[places.device(real)] = "ok" if os.access(real, os.W_OK) else wrong
            continue
        try:
            if real != places.models:
                make_dirs(real, 0o700 if real == places.state else 0o755)
            trial = os.path.join(real, f".supercombo-trial-{os.getpid()}")
            os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            os.unlink(trial)
            found[places.device(real)] = "ok"
        except Refusal as refusal:
            found[places.device(real)] = f"{refusal.value['what']}: {refusal.value.get('got')}"
        except OSError as error:
            found[places.device(real)] = f"not writable: {error.strerror}"
    return found


def _flags(request: Request, path: str) -> dict[str, list[str]] | None:
    """Flags of every SConscript function for larch64; None if there is no such file."""
    real = request.places.real(path)
    if not os.path.isfile(real):
        return None
    digest, _ = request.hashes.file(real)
    known = request.hashes.recall("flags-2:" + digest)
    if known is None:
        from .sconscript import larch64_flags

        with open(real, encoding="utf-8", errors="replace") as file:
            known = larch64_flags(file.read())
        request.hashes.remember("flags-2:" + digest, known)
    return dict(known)
