"""The runtime signals of guide section 10, gathered in one look: a bad model often does not fail cleanly.

Nothing is judged here and nothing is changed: texts, times and numbers go to the workstation as they are.
"""

from __future__ import annotations

import glob
import os
import subprocess
import time

from .guard import onroad_state
from .main import Request
from .places import Places
from .processes import Process, all_processes, boot_id, model_processes, runs_model, started_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SERVICES = ("modelV2", "livePose", "iqPlan")
MAX_TEXT = 64 << 10
MAX_CRASHES = 50
MAX_TEXTS = 4
PANE_LINES = 400
CLOCK_STEP = 0.1
"""Seconds by which a process's start, told in hundredths since the boot, may seem earlier than it was."""
WATCHED = ("modeld", "iqmodeld", "plannerd", "locationd", "ui", "controlsd", "selfdrived")
"""Of other processes only these are told, and only as zombies."""


def do_signals(request: Request) -> dict[str, Any]:
    """What guide section 10 looks at. artifacts: device paths of installed files. since: epoch on the device's clock.

    Returns {clock, boot, onroad, onroad_written, drives: {newest, changed} or None, pane, pane_problem, error_log:
    {size, mtime, text} or None, crashes: [{name, size, mtime}] (newest first), crash_texts: {name: end of its text} of
    those since `since`, processes: [{pid, name, state, started, model, holds, stale}], artifacts: {path: {mtime,
    ctime} or None}, services: {name: {exists, moves}}}. Times are seconds since 1970 on the device's clock.
    """
    places, since = request.places, float(request.args.get("since") or 0.0)
    paths = [str(path) for path in request.args.get("artifacts", ())]
    first = queues(places)
    looked = time.monotonic()
    crashes = _crashes(places)
    pane, problem = _pane(places)
    answer = {
        "clock": time.time(),
        "boot": boot_id(places),
        "onroad": onroad_state(places),
        "onroad_written": _mtime(os.path.join(places.params, "IsOnroad")),
        "drives": _drives(places),
        "pane": pane,
        "pane_problem": problem,
        "error_log": _error_log(places),
        "crashes": crashes,
        "crash_texts": {
            one["name"]: _end(os.path.join(places.real(places.paths["crashes"]), one["name"]))
            for one in [crash for crash in crashes if crash["mtime"] >= since][:MAX_TEXTS]
        },
        "processes": _processes(places, paths),
        "artifacts": {path: _times(places.real(path)) for path in paths},
    }
    # Twenty messages a second: in 0.4 s a living service has sent some.
    time.sleep(max(0.0, 0.4 - (time.monotonic() - looked)) if first else 0.0)
    second = queues(places)
    answer["services"] = {
        name: {"exists": name in second, "moves": first.get(name) != second.get(name)} for name in SERVICES
    }
    return answer


def queues(places: Places) -> dict[str, int]:
    """Where each service's writer stands, from the head of its message queue in shared memory; nothing is written."""
    shared = places.root + "/dev/shm"  # noqa: S108
    found = {}
    for name in SERVICES:
        for path in (f"{shared}/msgq_{name}", f"{shared}/{name}"):
            try:
                with open(path, "rb") as file:
                    head = file.read(16)
            except OSError:
                continue
            # Readers (8 bytes), then cycle and offset of the writer.
            found[name] = int.from_bytes(head[8:16], "little")
            break
    return found


def _pane(places: Places) -> tuple[str | None, str | None]:
    """`tmux capture-pane -pt 0` of whoever has a server; root sees everybody's."""
    sockets = sorted(glob.glob(glob.escape(places.root) + "/tmp/tmux-*/default"))  # noqa: S108
    problem = "no tmux server runs"
    for socket in sockets:
        command = ["tmux", "-S", socket, "capture-pane", "-p", "-S", f"-{PANE_LINES}", "-t", "0"]
        try:
            answer = subprocess.run(command, capture_output=True, check=False, timeout=5)
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
            continue
        if answer.returncode == 0:
            return answer.stdout.decode("utf-8", "replace")[-MAX_TEXT:].rstrip(), None
        problem = answer.stderr.decode("utf-8", "replace").strip()
    return None, problem


def _crashes(places: Places) -> list[dict[str, Any]]:
    folder = places.real(places.paths["crashes"])
    found: list[dict[str, Any]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file() and entry.name != "error.log":
                    status = entry.stat()
                    found.append({"name": entry.name, "size": status.st_size, "mtime": status.st_mtime})
    except OSError:
        return []
    return sorted(found, key=lambda one: -one["mtime"])[:MAX_CRASHES]


def _error_log(places: Places) -> dict[str, Any] | None:
    path = os.path.join(places.real(places.paths["crashes"]), "error.log")
    try:
        status = os.stat(path)
    except OSError:
        return None
    return {"size": status.st_size, "mtime": status.st_mtime, "text": _end(path)}


def _end(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - MAX_TEXT, 0))
            return file.read(MAX_TEXT).decode("utf-8", "replace")
    except OSError as error:
        return f"(cannot be read: {error.strerror})"


def _processes(places: Places, paths: list[str]) -> list[dict[str, Any]]:
    """Model processes, dead or alive, and zombies among the services' processes."""
    files = {}
    for path in paths:
        try:
            status = os.stat(places.real(path))
        except OSError:
            continue
        files[(status.st_dev, status.st_ino)] = (path, status.st_ctime)
    models = {process.pid: process for process in model_processes(places)}
    found = [_told(process, files, True) for process in models.values()]
    for process in all_processes() if not places.root else ():
        if process.state == "Z" and (runs_model(process) or process.name in WATCHED):
            found.append(_told(process, {}, runs_model(process)))
    return found


def _told(process: Process, files: dict[tuple[int, int], tuple[str, float]], model: bool) -> dict[str, Any]:
    started = started_at(process.pid)
    return {
        "pid": process.pid,
        "name": process.name,
        "state": process.state,
        "started": started,
        "model": model,
        "holds": sorted(files[one][0] for one in _opened(process.pid) if one in files),
        "stale": sorted(path for path, ctime in files.values() if started is not None and started < ctime - CLOCK_STEP),
    }


def _opened(pid: int) -> set[tuple[int, int]]:
    found = set()
    for folder in (f"/proc/{pid}/fd", f"/proc/{pid}/map_files"):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                status = os.stat(os.path.join(folder, name))
            except OSError:
                continue
            found.add((status.st_dev, status.st_ino))
    return found


def _drives(places: Places) -> dict[str, Any] | None:
    """When the newest drive began or went on, by the recorder's own folders; None where it keeps none."""
    folder = os.path.join(places.sources, "realdata")
    changed = _mtime(folder)
    if changed is None:
        return None
    try:
        with os.scandir(folder) as entries:
            times = [entry.stat().st_mtime for entry in entries if entry.is_dir()]
    except OSError:
        times = []
    return {"newest": max(times, default=None), "changed": changed}


def _times(path: str) -> dict[str, float] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return {"mtime": status.st_mtime, "ctime": status.st_ctime}


def _mtime(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None
