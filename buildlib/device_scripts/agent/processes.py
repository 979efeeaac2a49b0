"""Processes of this device: which run a model, which are ours, which are dead."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from .places import Places, read_text

MODEL_NAMES = ("modeld", "iqmodeld")
_LINUX = os.path.isdir("/proc/self")
_ENTRY_POINTS = ("daemon", "main", "__main__")


class Process:
    """One process. state is the kernel's letter ("Z" is a zombie); argv may have been rewritten by setproctitle."""

    def __init__(self, pid: int, parent: int, state: str, name: str, argv: list[str]) -> None:
        self.pid = pid
        self.parent = parent
        self.state = state
        self.name = name
        self.argv = argv


def boot_id(places: Places) -> str:
    """Names this boot: a pid of another one means nothing."""
    text = read_text(places.system("/proc/sys/kernel/random/boot_id"))
    if text:
        return text
    import subprocess

    answer = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, check=False)
    return answer.stdout.decode().strip() or "unknown"


def _stat(pid: int) -> tuple[str, int, str, str] | None:
    """(state, parent, start time, name) from /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return fields[0], int(fields[1]), fields[19], name


def _ps(*options: str) -> str:
    # One -o a column: BSD's ps takes what follows "=" for a heading, commas too.
    import subprocess

    answer = subprocess.run(
        ["ps", *options], capture_output=True, check=False, env={"LC_ALL": "C", "PATH": "/bin:/usr/bin"}
    )
    return answer.stdout.decode("utf-8", "replace")


def start_time(pid: int) -> str | None:
    """Tells a process from a later one with its pid. None for one that is gone or a zombie."""
    if _LINUX:
        stat = _stat(pid)
        return stat[2] if stat and stat[0] not in "ZX" else None
    state, _, started = _ps("-o", "stat=", "-o", "lstart=", "-p", str(pid)).strip().partition(" ")
    return started.strip() if state and not state.startswith("Z") else None


def started_at(pid: int) -> float | None:
    """Seconds since 1970 on this machine's clock; None for one that is gone, and where nobody tells."""
    ticks = start_time(pid) if _LINUX else None
    if ticks is None:
        return None
    try:
        with open("/proc/uptime", "rb") as file:
            up = float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return time.time() - up + int(ticks) / os.sysconf("SC_CLK_TCK")


def alive(pid: object, started: object) -> bool:
    """True when that very process still runs."""
    return isinstance(pid, int) and pid > 0 and started is not None and start_time(pid) == started


def all_processes() -> list[Process]:
    """Every process that this user may see."""
    if not _LINUX:
        return _from_ps()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        pid = int(entry)
        stat = _stat(pid)
        if stat is None:
            continue
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                raw = file.read(1 << 16)
        except OSError:
            continue
        argv = [part.decode("utf-8", "replace") for part in raw.rstrip(b"\0").split(b"\0")] if raw else []
        found.append(Process(pid, stat[1], stat[0], stat[3], argv))
    return found


def _from_ps() -> list[Process]:
    found = []
    for line in _ps("-axww", "-o", "pid=", "-o", "ppid=", "-o", "stat=", "-o", "command=").splitlines():
        fields = line.split(None, 3)
        if len(fields) == 4:
            argv = fields[3].split()
            found.append(Process(int(fields[0]), int(fields[1]), fields[2][0], os.path.basename(argv[0]), argv))
    return found


def runs_model(process: Process, names: tuple[str, ...] = MODEL_NAMES) -> bool:
    """Is it a model process by its name, its title or the script that it runs?

    The compile script lies in a directory named iqmodeld: a name in the middle of a path is not enough.
    """
    if process.name in names:
        return True
    if not process.argv:
        return False
    first = process.argv[0]
    candidates = [first]
    if os.path.basename(first).startswith("python"):
        candidates = [arg for arg in process.argv[1:] if not arg.startswith("-")][:1]
        if "-m" in process.argv:
            candidates = process.argv[process.argv.index("-m") + 1 :][:1]
    for candidate in candidates:
        word = candidate[:-3] if candidate.endswith(".py") else candidate
        parts = word.replace("/", ".").split(".")
        if parts[-1] in names or (parts[-1] in _ENTRY_POINTS and len(parts) > 1 and parts[-2] in names):
            return True
    return False


def inside(process: Process, root: str) -> bool:
    if any(root + "/" in arg for arg in process.argv):
        return True
    try:
        cwd = os.readlink(f"/proc/{process.pid}/cwd")
    except OSError:
        return False
    return cwd == root or cwd.startswith(root + "/")


def model_processes(places: Places, *, except_under: int | None = None) -> list[Process]:
    """Running model processes of this device; a device that is a directory counts only its own.

    except_under: a process whose descendants do not count (a harness that starts the model itself).
    """
    everyone = all_processes()
    found = [
        process
        for process in everyone
        if process.state not in ("Z", "X")
        and runs_model(process)
        and (not places.root or inside(process, os.path.realpath(places.root)) or inside(process, places.root))
    ]
    if except_under is not None and found:
        parents = {process.pid: process.parent for process in everyone}
        found = [process for process in found if not _descends(process.pid, except_under, parents)]
    return found


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    seen = set()
    while pid > 1 and pid not in seen:
        if pid == ancestor:
            return True
        seen.add(pid)
        pid = parents.get(pid, 0)
    return False


def holders(path: str) -> list[int]:
    """Processes whose standard output or error is this file (Linux; elsewhere none are known)."""
    found = []
    path = os.path.realpath(path)
    if _LINUX:
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                for number in ("1", "2"):
                    with contextlib.suppress(OSError):
                        if os.readlink(f"/proc/{entry}/fd/{number}") == path:
                            found.append(int(entry))
                            break
    return found


def end_group(group: int, patience: float = 0.7) -> None:
    """Ends a process group: asked first, then killed."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.05)
        os.killpg(group, signal.SIGKILL)


def descendants(pid: int) -> dict[int, str]:
    """{pid: start time} of all that a process started, also what left its group."""
    everyone = all_processes()
    parents = {process.pid: process.parent for process in everyone}
    found = [other for other in parents if other != pid and _descends(other, pid, parents)]
    return {other: started for other in found if (started := start_time(other)) is not None}


def end_all(family: dict[int, str]) -> None:
    """Kills these very processes."""
    for pid, started in family.items():
        if alive(pid, started):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def end_strays(path: str) -> None:
    """Kills what still writes to a job's log although its group has ended."""
    for pid in holders(path):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
