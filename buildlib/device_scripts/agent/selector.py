"""The device's model selector: is there one, what has it chosen, and a file out of its way until it is put back."""

from __future__ import annotations

import json
import os
import subprocess

from . import journal, locks
from .active import copy_file, look_at, model_name, replace_file, require_same
from .guard import require_offroad
from .main import Request
from .places import Places, make_dirs, read_text, require_space, sync_dir, unlink
from .processes import Process, all_processes, inside
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PREFIX = "ModelManager_"
ACTIVE = PREFIX + "ActiveBundle"
MANAGER_NAMES = ("models_manager", "model_manager", "modelmanager")
ASK_PARAMS = """
from openpilot.common.params import Params
for key in ("ModelManager_DownloadIndex", "ModelManager_DownloadRef"):
    try:
        Params().check_key(key)
        print(key)
    except Exception:
        pass
"""
"""An openpilot that knows neither has no selector, or not one that the build can ask."""


def runs_manager(process: Process) -> bool:
    """Is it the selector's background process, by its name, its title or the module that it runs?"""
    if process.name in MANAGER_NAMES:
        return True
    words = process.argv[:1]
    if words and os.path.basename(words[0]).startswith("python"):
        words = [word for word in process.argv[1:] if not word.startswith("-")][:1]
        if "-m" in process.argv:
            words = process.argv[process.argv.index("-m") + 1 :][:1]
    for word in words:
        parts = word.removesuffix(".py").replace("/", ".").split(".")
        if parts[-1] in MANAGER_NAMES or parts[-2:] == ["models", "manager"]:
            return True
    return False


def manager_processes(places: Places) -> list[Process]:
    """The selector's running processes; a device that is a directory counts only its own."""
    roots = (os.path.realpath(places.root), places.root) if places.root else ()
    return [
        found
        for found in all_processes()
        if found.state not in "ZX" and runs_manager(found) and (not roots or any(inside(found, root) for root in roots))
    ]


def described(processes: list[Process]) -> list[str]:
    """Processes in words."""
    return [f"pid {found.pid}: {' '.join(found.argv)[:120]}" for found in processes]


def do_selector(request: Request) -> dict[str, Any]:
    """{present, why, manager: [text], active: text or None, journals: [id], lock: holder or None}. Changes nothing.

    A selector is present when its parameters are there, or its process runs, or openpilot's own Params class knows
    them: argv, env: how that is asked. journals: of earlier downloads that are still to be put back.
    """
    places = request.places
    there = sorted(name for name in os.listdir(places.params) if name.startswith(PREFIX)) if _has(places) else []
    manager = manager_processes(places)
    why = ""
    if there:
        why = f"it has {there[0]}"
    elif manager:
        why = f"its manager runs: {described(manager)[0]}"
    elif _has(places) and request.args.get("argv"):
        why = _class_knows(request)
    return {
        "present": bool(why),
        "why": why or f"no {PREFIX}* parameter, no model manager, and no Params class that knows one",
        "manager": described(manager),
        "active": read_text(os.path.join(places.params, ACTIVE)),
        "journals": [entry["id"] for entry in journal.everything(places) if entry.get("selection")],
        "lock": locks.holder(places),
    }


def _has(places: Places) -> bool:
    return os.path.isdir(places.params)


def _class_knows(request: Request) -> str:
    argv = [*(str(word) for word in request.args["argv"]), "-c", ASK_PARAMS]
    try:
        done = subprocess.run(
            argv,
            env={str(name): str(text) for name, text in (request.args.get("env") or {}).items()},
            capture_output=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    keys = done.stdout.decode("utf-8", "replace").split()
    return f"Params knows {keys[0]}" if done.returncode == 0 and keys else ""


def prepare(request: Request, entry: dict[str, Any]) -> None:
    """For a job that has the selector download: `aside` are names of model files, `remember` are parameters.

    What the parameters hold is written down, and the files go out of the way, so that what lies there afterwards was
    downloaded. `put_back` and the journal bring both back.
    """
    from . import params

    places = request.places
    names = [model_name(str(name)) for name in request.args.get("aside", ())]
    if names:
        entry["selection"] = True
    for name in names:
        active = os.path.join(places.models, name)
        former, seen = look_at(request, active)
        folder = places.state_dir("held", entry["id"])
        journal.add(places, entry, {"undo": "aside", "name": name, "former": former, "folder": folder})
        if former is not None:
            require_offroad(places)
            kept = os.path.join(folder, name)
            status = os.stat(active)
            require_space(places.state, status.st_size)
            copy_file(active, kept, status)
            if request.hashes.file(kept)[0] != former:
                raise Refusal("device", "the copy does not read back as it was written", where=kept)
            require_same(places, active, seen)
            require_offroad(places)
            unlink(active)
            sync_dir(places.models)
    for key in request.args.get("remember", ()):
        if key not in params.WRITABLE:
            raise Refusal("rail", "the agent does not put this parameter back", got=str(key))
        journal.add(places, entry, params.undo_of(places, key))


def hand_over(request: Request, entry: dict[str, Any]) -> None:
    """The job ended well: what it changed stays for `hand_over` seconds, for whoever validates it.

    After that, what is neither as it was nor as the job left it is somebody else's choice, and stays.
    """
    places = request.places
    for step in entry["steps"]:
        if step["undo"] == "aside":
            active = os.path.join(places.models, step["name"])
            step["ours"] = look_at(request, active)[0]
        elif step["undo"] == "param" and step["key"] == ACTIVE:
            step["ours"] = bundle_name(read_text(os.path.join(places.params, ACTIVE)))
    journal.keep_open(places, entry, float(request.args["hand_over"]))


def bundle_name(text: str | None) -> str | None:
    """What tells one bundle from another in the active bundle's JSON; None where none is active or it is no JSON."""
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    names = [value.get(key) for key in ("ref", "internalName", "short_name", "displayName", "display_name")]
    return json.dumps([name for name in names if name]) if any(names) else None


def undo(places: Places, step: dict[str, Any]) -> str:
    """The file that was set aside comes back, or goes if there was none; the copy is dropped."""
    request = Request({}, places)
    name = model_name(step["name"])
    active, kept = os.path.join(places.models, name), os.path.join(step["folder"], name)
    now, seen = look_at(request, active)
    said = ""
    if now == step["former"]:
        pass
    elif "ours" in step and now is not None and now != step["ours"]:
        said = f"{name} was replaced by somebody else meanwhile, and stays"
    elif step["former"] is None:
        require_same(places, active, seen)
        require_offroad(places)
        unlink(active)
        sync_dir(places.models)
        said = f"{name} removed, as it was not there before"
    elif os.path.isfile(kept) and request.hashes.file(kept)[0] == step["former"]:
        make_dirs(places.models)
        require_space(places.models, os.path.getsize(kept))
        replace_file(places, kept, active, step["former"], seen)
        said = f"{name} put back"
    else:
        said = f"{name} could not be put back: its copy is lost or damaged; doit install:MODEL puts it there again"
    unlink(kept)
    if os.path.isdir(step["folder"]) and not os.listdir(step["folder"]):
        os.rmdir(step["folder"])
    return said
