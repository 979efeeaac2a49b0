"""`doit doctor [DEVICE ...]`: one screen a device, every line good or with its remedy."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Literal

from buildlib import errors
from buildlib.commands.base import ProjectCommand, known_device, opt_json, print_json
from buildlib.console.lines import Console
from buildlib.core.catalog import Device, Model
from buildlib.core.doctor import COMPILE_SPACE, SPARE, Line, examine, unheard_flags
from buildlib.core.flags import effective_flags
from buildlib.doit_parts.session import Session
from buildlib.plain_text import printable
from buildlib.steps import preflight
from buildlib.steps.context import Services
from buildlib.steps.readiness import unheard_text
from buildlib.steps.services import open_services
from buildlib.steps.world import FileWorld

opt_trust = {
    "name": "trust",
    "short": "",
    "long": "trust",
    "type": bool,
    "default": False,
    "help": "DEVICE SHA256:...: pin this host key, which you have compared with the device's own",
}


class DoctorCommand(ProjectCommand):
    """Probes each device once. The exit status is 1 when a line is BAD."""

    name = "doctor"
    doc_purpose = "look at devices: reachable, toolchain, flags, directories, space, state"
    doc_usage = "[DEVICE ...] | --trust DEVICE SHA256:..."
    own_options = (opt_json, opt_trust)
    writes = True

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Examines the named devices, or all that models use."""
        if options["trust"]:
            return trust(session, arguments)
        console = Console(sys.stderr if options["json"] else None)
        services = open_services(session.workspace, session.cancel, console)
        devices = [known_device(session, name) for name in arguments] or session.devices_in_use()
        found = {device.name: lines_of(session, services, device) for device in devices}
        if options["json"]:
            print_json(
                {
                    name: [{"level": line.level, "text": line.text, "remedy": line.remedy} for line in lines]
                    for name, lines in found.items()
                }
            )
        else:
            for name, lines in found.items():
                print(name)
                print("\n".join(text for line in lines for text in printed(line)))
        bad = any(line.level == "BAD" for lines in found.values() for line in lines)
        return errors.EXIT_FAILED if bad else 0


def lines_of(session: Session, services: Services, device: Device) -> list[Line]:
    """A fresh probe, told in lines; no answer is a line too."""
    catalog = session.workspace.catalog
    models = [model for model in catalog.models.values() if session.device_of(model).name == device.name]
    own = device.profile or (models[0].profile if models else next(iter(catalog.profiles)))
    try:
        answer = preflight.ask(services, catalog, device)
    except errors.Cancelled:
        raise
    except errors.BuildError as error:
        return [Line("BAD", error.headline(), error.remedy)]
    seen = preflight.record(services, device, answer, told=False)
    text = preflight.toolchain_text(seen)
    need = space_needed(session, models)
    lines = examine(device, catalog.profiles[own], answer, now=time.time(), toolchain_text=text, need=need)
    return [*lines, *unheard_lines(session, models, answer.get("heard"))]


def unheard_lines(session: Session, models: list[Model], heard: list[str] | None) -> list[Line]:
    """A line for each flag of the models that the device's tinygrad would ignore without a word."""
    found: dict[str, Line] = {}
    for model in models:
        subject = session.subject(model.name)
        for name in unheard_flags(effective_flags(subject.catalog, model, subject.device), heard):
            text = unheard_text(subject, name)
            level: Literal["note", "BAD"] = "BAD" if model.strict_flags else "note"
            found.setdefault(
                text, Line(level, text, "correct or unset it; every compile goes on without it until then")
            )
    return list(found.values())


def space_needed(session: Session, models: list[Model]) -> int:
    """Bytes that the largest model takes on a device: its ONNX, what is made of it, installed, and one backup."""
    world = FileWorld(session.workspace)
    receipts = [world.latest(session.subject(model.name), "source") for model in models]
    sizes = [sum(entry["size"] for entry in receipt.result["sources"].values()) for receipt in receipts if receipt]
    return 4 * max(sizes) + SPARE if sizes else COMPILE_SPACE


def printed(line: Line) -> list[str]:
    """A line for the terminal, its remedy below it."""
    remedy = [f"        try: {line.remedy}"] if line.remedy else []
    # A device names its own directories, jobs and models.
    return [printable(text) for text in (f"  {line.level:<5} {line.text}", *remedy)]


def trust(session: Session, arguments: list[str]) -> int:
    """Pins a host key that a person has compared."""
    if len(arguments) != 2:
        raise errors.UsageError(
            "--trust takes a device and a fingerprint", expected="doit doctor --trust DEVICE SHA256:..."
        )
    device = known_device(session, arguments[0])
    if device.transport != "ssh":
        raise errors.UsageError(f"{device.name} is not reached by SSH: it has no host key")
    from buildlib.transports.ssh_trust import pin_host_key

    print(pin_host_key(device, arguments[1], home=Path.home(), project=session.workspace.root, cancel=session.cancel))
    return 0
