"""All that is seen of a run, and the report of it."""

from __future__ import annotations

import argparse
import os
import time

from .files import Artifact, active_files, sha256_of, text_of, writer_of
from .processes import descends, mapped, opened, pids, runs_model, stat_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = 1
MODEL_SERVICE = "modelV2"
SERVICES = (MODEL_SERVICE, "livePose", "iqPlan")
LOOK_ROUND = 0.2  # for new processes, parameters, queues
TICKS = os.sysconf("SC_CLK_TCK")


ELSEWHERE = 10
"""A pickle outside the models directory is a model from this part of the artifact on: warps are smaller."""


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
        self.other_since: float | None = None
        """Since when it is known that another model ran: nothing that comes later makes such a run good."""

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
            for path, inode, size in mapped(model.pid):
                self.mapped(model, path, inode, size)

    def held(self, model: Model, link: str, status: os.stat_result, how: str) -> None:
        for artifact in self.artifacts:
            if (status.st_dev, status.st_ino) == artifact.identity:
                model.holds.setdefault(artifact.path, how)
                return
        self.other(model, link, status.st_size)

    def mapped(self, model: Model, path: str, inode: int, size: int) -> None:
        for artifact in self.artifacts:
            if path == artifact.real and inode == artifact.identity[1]:
                model.holds.setdefault(artifact.path, "mapped")
                return
        self.other(model, path, size)

    def other(self, model: Model, path: str, size: int) -> None:
        """Another artifact of the models directory, an older file under the same name too ("(deleted)").

        Elsewhere a pickle that is as big as one: a runtime that looks at the file under test and falls back to its own.
        """
        name = path.replace(" (deleted)", "")
        if not name.endswith(".pkl") or name.endswith("_metadata.pkl"):
            return
        here = os.path.dirname(name) == self.models_dir
        least = min((artifact.before.get("size") or 0) for artifact in self.artifacts) // ELSEWHERE
        if here or size >= max(least, 1):
            shown = os.path.basename(path) if here else path
            if shown not in model.others:
                model.others.append(shown)
            if self.other_since is None:
                self.other_since = self.now()

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
