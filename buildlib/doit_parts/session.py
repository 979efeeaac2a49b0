"""What one run of doit shares between its command, its tasks and its reporter."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from buildlib.core import freshness
from buildlib.core.catalog import Device, Model
from buildlib.core.freshness import Judgement
from buildlib.core.stages import wanted
from buildlib.core.unknown_names import unknown_device
from buildlib.core.world import DeviceSeen, Subject
from buildlib.doit_parts.interrupts import Interrupts
from buildlib.errors import DeviceError, UsageError
from buildlib.store.workspace import Workspace


class Session:
    """A workspace seen by one command: which device each model has this time, and each model's judgements.

    Judgements of a model are made once, together, and made anew after one of its steps ran.
    """

    def __init__(self, workspace: Workspace, device: str | None = None, interrupts: Interrupts | None = None) -> None:
        self.workspace = workspace
        self.chosen_device = device
        self.interrupts = interrupts or Interrupts()
        self.always = False
        self.debug = False
        """Show tracebacks."""
        self.warnings: list[tuple[str, str]] = []
        """(subject, text) of what steps warned of, for the last lines."""
        self.options: dict[str, Any] = {}
        """`steps.context.RunOptions` by name, as the command line gave them."""
        self.heard: dict[str, Any] = {}
        """`steps.preflight.Heard` by device, of those that were asked before the build began."""
        self._lock = threading.Lock()
        self._judged: dict[str, dict[str, Judgement]] = {}
        self._devices: dict[str, DeviceSeen] = {}
        self.on_cancel: list[Callable[[], None]] = []

    def subject(self, name: str) -> Subject:
        """A model on the device that it has in this run."""
        catalog = self.workspace.catalog
        model = catalog.models[name]
        return Subject(catalog, model, self.device_of(model))

    def device_of(self, model: Model) -> Device:
        """The device chosen on the command line, the model's own, or the first that has its tags."""
        devices = self.workspace.catalog.devices
        name = self.chosen_device or model.device
        if name is not None:
            if name not in devices:
                raise unknown_device(name, devices)
            return devices[name]
        fitting = [device for device in devices.values() if set(model.tags) <= set(device.tags)]
        if not fitting:
            raise UsageError(
                f"no device has the tags of {model.name}: {', '.join(model.tags)}",
                remedy="add the tags to a device in models.yaml, or run with device=NAME",
            )
        return fitting[0]

    def candidates(self, model: Model) -> list[Device]:
        """The device of a model, and the others that its tags would fit: all are looked at, for they must agree."""
        first = self.device_of(model)
        if self.chosen_device or model.device or not model.tags:
            return [first]
        devices = self.workspace.catalog.devices.values()
        return [first, *(other for other in devices if other is not first and set(model.tags) <= set(other.tags))]

    def require_one_toolchain(self, name: str) -> None:
        """Raises DeviceError where devices that answer and fit a model would compile it differently (truth, rule 6)."""
        candidates = self.candidates(self.workspace.catalog.models[name])
        if len(candidates) < 2:
            return
        from buildlib.core.key import differences
        from buildlib.steps.world import read_observation

        seen = [read_observation(self.workspace, device.name) for device in candidates]
        known = [one for one in seen if one is not None and one.reachable and one.identity is not None]
        for other in known[1:]:
            moved = differences(known[0].identity, other.identity)
            if moved:
                raise DeviceError(
                    f"{known[0].device} and {other.device} both fit {name}, and differ in toolchain",
                    got=str(moved[0]).replace(" -> ", " and "),
                    remedy=f"pin one: models.{name}.device in models.yaml, or doit device={known[0].device}",
                )

    def devices_in_use(self) -> list[Device]:
        """The devices of all models in this run, each once."""
        used = {
            device.name: device for model in self.workspace.catalog.models.values() for device in self.candidates(model)
        }
        return list(used.values())

    def judged(self, name: str) -> dict[str, Judgement]:
        """The judgements of a model's stages, remembered until `moved`."""
        known = self._judged.get(name)
        if known is None:
            from buildlib.steps.world import FileWorld

            subject = self.subject(name)
            known = freshness.judge_model(subject, FileWorld(self.workspace, self._devices), wanted(subject))
            with self._lock:
                self._judged[name] = known
        return known

    def moved(self, name: str | None = None) -> None:
        """A step of a model ran, or (None) a device was seen anew: what was judged before is not asked again."""
        with self._lock:
            # A step may have added to what is known of its device.
            self._devices = {}
            if name is None:
                self._judged.clear()
            else:
                self._judged.pop(name, None)

    @property
    def cancel(self) -> threading.Event:
        """Set once the user or the system asked the build to stop."""
        return self.interrupts.cancel

    @property
    def exit_status(self) -> int | None:
        """The status of a build that was asked to stop."""
        return self.interrupts.exit_status

    def listen_to_signals(self) -> Callable[[], None]:
        """Turns the first SIGINT or SIGTERM into a cancel. Returns the undoing."""
        return self.interrupts.listen()


_current: list[Session] = []


def enter(session: Session) -> None:
    """Makes a session the current one."""
    _current[:] = [session]


def current() -> Session | None:
    """The session of the command that runs, if it is one of ours."""
    return _current[0] if _current else None
