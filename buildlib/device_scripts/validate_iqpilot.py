#!/usr/bin/env python3
"""Runs IQPilot's own harness (guide, section 9.1) and writes down what really ran.

    validate_iqpilot.py HARNESS --speed 15.0 --artifact PATH SHA256 --models DIR --params DIR --shared DIR
                        --seconds 10 --start-limit 90 --report PATH

Runs on the device, as one file, on the standard library alone (Python 3.9 or newer). HARNESS fakes onroad and starts
the model process itself; this process watches both from outside, through /proc, the parameters and the message queues.
It judges nothing: the report holds observations, and the workstation says what they mean.

The report is written whatever happened, by rename:
  harness    path, sha256, exit, ended: "by itself", "stopped" (on time, by Ctrl-C), "told" (from outside), or
             "killed"; seconds
  artifacts  path, asked, before and after: {sha256, inode, size, times}; moved: seconds after which it was another file
  models     each model process: pid, name, older (than this run), holds {path: "open" or "mapped"}, others (artifacts
             that are not asked for), first, last, ended, state, cpu [(seconds, seconds of processor)]
  selection  [(seconds, file names, sha256)] of the active bundle: at the start and after each change
  services   {name: {first, began, last, moves}}: message queues, in seconds: found, first and last message; null where
             there is no queue
  onroad     [(seconds, text)] of IsOnroad: at the start, after each change, and at the end
  asked      seconds, start_limit

The exit status is 0 once a report is written.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

FORMAT = 1
MODEL_NAMES = ("modeld", "iqmodeld")
MODEL_SERVICE = "modelV2"
SERVICES = (MODEL_SERVICE, "livePose", "iqPlan")
LOOK = 0.02  # at known processes: while an artifact is read, its file is open
LOOK_ROUND = 0.2  # for new processes, parameters, queues
LONGEST_STOP = 8.0
HURRIED_STOP = 2.0
TICKS = os.sysconf("SC_CLK_TCK")


class Stopped(Exception):
    """SIGTERM or SIGINT."""


class Model:
    """A process that runs a model, or holds an artifact."""

    def __init__(self, pid: int, started: int) -> None:
        self.pid = pid
        self.started = started
        self.name = ""
        self.named = False
        self.holds: dict[str, str] = {}
        self.others: list[str] = []
        self.first = self.last = 0.0
        self.ended: float | None = None
        self.state = ""
        self.cpu: list[tuple[float, float]] = []
        self.mapped_at = 0.0


class Watch:
    """All that was seen; it only grows, so a report can be written at any moment."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.began = time.monotonic()
        self.own_start = stat_of(os.getpid())["started"]
        self.artifacts = [Artifact(path, sha256) for path, sha256 in options.artifact]
        self.models_dir = os.path.realpath(options.models)
        self.processes: dict[int, Model] = {}
        self.selection: list[tuple[float, list[str], list[str]]] = []
        self.onroad: list[tuple[float, str]] = []
        self.services: dict[str, Any] = dict.fromkeys(SERVICES)
        self.writers: dict[str, int] = {}
        self.harness: dict[str, Any] = {"path": options.harness, "sha256": sha256_of(options.harness)}
        self.harness_pid = 0

    def now(self) -> float:
        return round(time.monotonic() - self.began, 3)

    def proven(self) -> float | None:
        """Since when a process has held every artifact; None before that."""
        held = {path for model in self.models() for path in model.holds}
        if any(artifact.path not in held for artifact in self.artifacts):
            return None
        return min(model.first for model in self.models() if model.holds)

    def working(self) -> float | None:
        """Since when the model works: its first message. Before that it may still be loading.

        Where it has no message queue, nobody can tell: then so much later than the proof as a load may take.
        """
        since = self.proven()
        service = self.services[MODEL_SERVICE]
        if since is None or (service is not None and service["began"] is None):
            return None
        return float(service["began"]) if service else since + float(self.options.quiet_start)

    def models(self) -> list[Model]:
        return [one for one in self.processes.values() if one.named or one.holds or one.others]

    # --- looks -------------------------------------------------------------------------------------------------------

    def look_round(self) -> None:
        """Finds new processes of the harness's, and what else changes slowly."""
        everyone = {pid: stat for pid in pids() if (stat := stat_of(pid))}
        family = {self.harness_pid, *self.processes}
        for pid, stat in everyone.items():
            if pid not in family and descends(pid, family, everyone) and pid != os.getpid():
                self.processes[pid] = Model(pid, stat["started"])
                self.processes[pid].first = self.now()
        for artifact in self.artifacts:
            artifact.look(self.now())
        self.look_at_parameters()
        self.look_at_services()

    def look(self) -> None:
        """At the processes known: what they hold, whether they live."""
        for model in self.processes.values():
            if model.ended is None:
                self.look_at(model)

    def look_at(self, model: Model) -> None:
        stat = stat_of(model.pid)
        now = self.now()
        if not stat or stat["started"] != model.started or stat["state"] in "ZX":
            model.ended = now
            model.state = stat["state"] if stat and stat["started"] == model.started else ""
            return
        model.last, model.state = now, stat["state"]
        model.named = model.named or runs_model(model.pid, stat["name"])
        model.name = stat["name"]
        if not model.cpu or now - model.cpu[-1][0] >= 0.5:
            model.cpu.append((now, stat["cpu"] / TICKS))
        for link, status in opened(model.pid):
            self.held(model, link, status, "open")
        if now - model.mapped_at >= LOOK_ROUND:
            model.mapped_at = now
            for path, inode in mapped(model.pid, self.models_dir):
                self.mapped(model, path, inode)

    def held(self, model: Model, link: str, status: os.stat_result, how: str) -> None:
        for artifact in self.artifacts:
            if (status.st_dev, status.st_ino) == artifact.identity:
                model.holds.setdefault(artifact.path, how)
                return
        self.other(model, link)

    def mapped(self, model: Model, path: str, inode: int) -> None:
        for artifact in self.artifacts:
            if path == artifact.real and inode == artifact.identity[1]:
                model.holds.setdefault(artifact.path, "mapped")
                return
        self.other(model, path)

    def other(self, model: Model, path: str) -> None:
        """Another artifact of the models directory, an older file under the same name too ("(deleted)")."""
        name = path.replace(" (deleted)", "")
        if os.path.dirname(name) == self.models_dir and name.endswith(".pkl") and not name.endswith("_metadata.pkl"):
            shown = os.path.basename(path)
            if shown not in model.others:
                model.others.append(shown)

    def look_at_parameters(self) -> None:
        names, digests = active_files(os.path.join(self.options.params, "ModelManager_ActiveBundle"))
        if not self.selection or self.selection[-1][1:] != (names, digests):
            self.selection.append((self.now(), names, digests))
        text = text_of(os.path.join(self.options.params, "IsOnroad"))
        if not self.onroad or self.onroad[-1][1] != text:
            self.onroad.append((self.now(), text))

    def look_at_services(self) -> None:
        for name in SERVICES:
            writer = writer_of(self.options.shared, name)
            if writer is None:
                continue
            if self.services[name] is None:
                self.services[name] = {"first": self.now(), "began": None, "last": None, "moves": 0}
            elif self.writers.get(name) != writer:
                self.services[name]["began"] = self.services[name]["began"] or self.now()
                self.services[name]["last"] = self.now()
                self.services[name]["moves"] += 1
            self.writers[name] = writer

    def report(self) -> dict[str, Any]:
        for artifact in self.artifacts:
            artifact.finish(self.now())
        self.onroad.append((self.now(), text_of(os.path.join(self.options.params, "IsOnroad"))))
        return {
            "format": FORMAT,
            "harness": self.harness,
            "artifacts": [artifact.told() for artifact in self.artifacts],
            "models": [
                {
                    "pid": one.pid,
                    "name": one.name,
                    "named": one.named,
                    "older": one.started < self.own_start,
                    "holds": one.holds,
                    "others": one.others,
                    "first": one.first,
                    "last": one.last,
                    "ended": one.ended,
                    "state": one.state,
                    "cpu": one.cpu,
                }
                for one in self.models()
            ],
            "selection": self.selection,
            "services": self.services,
            "onroad": self.onroad,
            "asked": {"seconds": self.options.seconds, "start_limit": self.options.start_limit},
        }


class Artifact:
    """A file under test: which bytes lie under its path before, during and after."""

    def __init__(self, path: str, asked: str) -> None:
        self.path = path
        self.real = os.path.realpath(path)
        self.asked = asked.lower()
        self.before = signature(path)
        self.before["sha256"] = sha256_of(path)
        self.after: dict[str, Any] = {}
        self.identity = (self.before.get("device"), self.before.get("inode"))
        self.moved: float | None = None

    def look(self, now: float) -> None:
        if self.moved is None and {**signature(self.path), "sha256": self.before["sha256"]} != self.before:
            self.moved = now

    def finish(self, now: float) -> None:
        self.look(now)
        self.after = {**signature(self.path), "sha256": sha256_of(self.path)}

    def told(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "asked": self.asked,
            "before": self.before,
            "after": self.after,
            "moved": self.moved,
        }


def run(options: argparse.Namespace) -> Watch:
    """Starts the harness, watches it, ends it when the model has lived long enough."""
    seen = Watch(options)
    seen.look_at_parameters()
    harness = start(options)
    seen.harness_pid = harness.pid
    began = time.monotonic()
    ended, patience = "stopped", LONGEST_STOP
    try:
        while harness.poll() is None and not long_enough(seen, options):
            seen.look_round()
            until = time.monotonic() + LOOK_ROUND
            while time.monotonic() < until and harness.poll() is None:
                seen.look()
                time.sleep(LOOK)
        if harness.poll() is not None:
            ended = "by itself"
        seen.look_round()
        seen.look()
    except Stopped:
        ended, patience = "told", HURRIED_STOP
    seen.harness["seconds"] = round(time.monotonic() - began, 3)
    if ended != "by itself" and not stop(harness, seen, patience):
        ended = "killed" if ended == "stopped" else ended
    seen.harness.update(exit=harness.returncode, ended=ended)
    return seen


def long_enough(seen: Watch, options: argparse.Namespace) -> bool:
    """True when the run has shown what it can: the model lived its time, or died, or never took the artifact."""
    since = seen.working()
    if since is None and seen.now() > float(options.start_limit):
        return True
    if since is not None and seen.now() - since >= float(options.seconds):
        return True
    holders = [model for model in seen.models() if model.holds]
    # A dead model is not waited for; the harness may have words to say about it.
    return bool(holders) and all(model.ended is not None and seen.now() - model.ended > 2.0 for model in holders)


def start(options: argparse.Namespace) -> subprocess.Popen[bytes]:
    """The harness as the guide starts it: from openpilot's directory, as the device's own user."""
    environment = dict(os.environ)
    owner: dict[str, Any] = {}
    status = os.stat(options.params)
    if os.geteuid() == 0 and status.st_uid != 0:
        import pwd

        owner = {"user": status.st_uid, "group": status.st_gid, "extra_groups": []}
        for name in ("XDG_CACHE_HOME", "UV_CACHE_DIR", "TMPDIR"):  # root's
            environment.pop(name, None)
        with contextlib.suppress(KeyError):
            user = pwd.getpwuid(status.st_uid)
            environment.update(HOME=user.pw_dir, USER=user.pw_name)
            owner["extra_groups"] = os.getgrouplist(user.pw_name, status.st_gid)
    command = [sys.executable, options.harness, "--speed", options.speed]
    print(f"running {' '.join(command)}", flush=True)
    return subprocess.Popen(
        command, cwd=options.directory, env=environment, stdin=subprocess.DEVNULL, start_new_session=True, **owner
    )


def stop(harness: subprocess.Popen[bytes], seen: Watch, patience: float) -> bool:
    """Ctrl-C first, so that the harness puts back what it faked; then harder. True if it ended by that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for number, wait in ((signal.SIGINT, patience), (signal.SIGTERM, min(2.0, patience))):
        with contextlib.suppress(ProcessLookupError):
            os.kill(harness.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            harness.wait(wait)
            break
    polite = harness.poll() is not None and number == signal.SIGINT
    for pid, model in seen.processes.items():
        stat = stat_of(pid)
        if stat and stat["started"] == model.started:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    if harness.poll() is None:
        harness.kill()
        harness.wait()
    return polite


# --- the machine -----------------------------------------------------------------------------------------------------


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat_of(pid: int) -> dict[str, Any]:
    """{parent, state, name, started (ticks since boot), cpu (ticks)}; empty for a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return {}
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return {
        "parent": int(fields[1]),
        "state": fields[0],
        "name": name,
        "started": int(fields[19]),
        "cpu": int(fields[11]) + int(fields[12]),
    }


def descends(pid: int, ancestors: set[int], everyone: dict[int, dict[str, Any]]) -> bool:
    seen = set()
    while pid in everyone and pid not in seen:
        seen.add(pid)
        pid = everyone[pid]["parent"]
        if pid in ancestors:
            return True
    return False


def runs_model(pid: int, name: str) -> bool:
    """By its name, its title or the script or module that it runs; a directory's name is not enough."""
    if name in MODEL_NAMES:
        return True
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(1 << 16).decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return False
    words = [word for word in words if word and not word.startswith("-")][:2]
    for word in words:
        parts = (word[:-3] if word.endswith(".py") else word).replace("/", ".").split(".")
        if parts[-1] in MODEL_NAMES or (
            len(parts) > 1 and parts[-1] in ("daemon", "main") and parts[-2] in MODEL_NAMES
        ):
            return True
    return False


def opened(pid: int) -> list[tuple[str, os.stat_result]]:
    """(where it points, status) of a process's open files that are real files."""
    found = []
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    for name in names:
        with contextlib.suppress(OSError):
            link = os.readlink(f"{folder}/{name}")
            if link.startswith("/") and not link.startswith("/dev/"):
                found.append((link, os.stat(f"{folder}/{name}")))
    return found


def mapped(pid: int, folder: str) -> list[tuple[str, int]]:
    """(path, inode) of files of a folder that are in a process's memory."""
    found = []
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            for line in file:
                fields = line.decode("utf-8", "replace").rstrip("\n").split(None, 5)
                # The kernel writes a line feed in a name as \012; other bytes stand as they are.
                if len(fields) == 6 and fields[5].startswith(folder + "/"):
                    found.append((fields[5], int(fields[4])))
    except OSError:
        pass
    return found


def signature(path: str) -> dict[str, Any]:
    try:
        status = os.stat(path)
    except OSError:
        return {}
    return {
        "device": status.st_dev,
        "inode": status.st_ino,
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns,
    }


def sha256_of(path: str) -> str | None:
    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()


def text_of(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(4096).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def active_files(path: str) -> tuple[list[str], list[str]]:
    """File names and sha256 that the active bundle names, in either spelling; empty where none is active."""
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read(4 << 20))
    except (OSError, ValueError, RecursionError):
        return [], []
    names: list[str] = []
    digests: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            for key, inner in node.items():
                if key in ("file_name", "fileName") and isinstance(inner, str):
                    names.append(inner)
                elif key == "sha256" and isinstance(inner, str):
                    digests.append(inner.lower())
                else:
                    walk(inner)
        elif isinstance(node, list):
            for inner in node:
                walk(inner)

    walk(value)
    return sorted(names), sorted(digests)


def writer_of(shared: str, name: str) -> int | None:
    """Where a message queue's writer stands; None where there is no such queue."""
    for path in (f"{shared}/msgq_{name}", f"{shared}/{name}"):
        try:
            with open(path, "rb") as file:
                return int.from_bytes(file.read(16)[8:], "little")
        except OSError:
            continue
    return None


def write_report(path: str, report: dict[str, Any]) -> None:
    with open(path + ".part", "w") as file:
        json.dump(report, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("harness")
    parser.add_argument("--speed", default="15.0", help="given to the harness")
    parser.add_argument("--artifact", nargs=2, action="append", required=True, metavar=("PATH", "SHA256"))
    parser.add_argument("--models", required=True, help="where artifacts are installed")
    parser.add_argument("--params", required=True, help="one parameter a file")
    parser.add_argument("--shared", default="/dev/shm", help="where message queues are")  # noqa: S108
    parser.add_argument("--directory", help="to run the harness in")
    parser.add_argument("--seconds", type=float, default=10.0, help="that the model shall live with the artifact")
    parser.add_argument("--start-limit", type=float, default=90.0, help="seconds until it must have taken it")
    parser.add_argument("--quiet-start", type=float, default=30.0, help="seconds of a load where no messages tell")
    parser.add_argument("--report", required=True)
    return parser.parse_args(arguments)


def told_to_stop(number: int, _frame: Any) -> NoReturn:
    raise Stopped(signal.Signals(number).name)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if not os.path.isdir("/proc/self"):
        print("error: this machine has no /proc: nobody could say which bytes ran", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told_to_stop)
    seen = run(options)
    write_report(options.report, seen.report())
    print(f"watched {len(seen.models())} model processes; the harness ended {seen.harness['ended']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
