"""`doit gc --device NAME`: what the build has put on a device and no model there needs any more."""

from __future__ import annotations

from typing import Any

from buildlib.commands.base import known_device
from buildlib.console.lines import Console
from buildlib.core.catalog import Device
from buildlib.doit_parts.session import Session
from buildlib.steps.preflight import files_of_ours, sconscript_path
from buildlib.steps.scripts import compile_script, harness_script, iqpilot_script, selector_script, shipped_path
from buildlib.steps.services import open_services

WORDS = {"upload": "file sent there", "part": "unfinished file", "job": "ended job", "backup": "spare backup"}


def collect_on_device(session: Session, name: str, *, remove: bool) -> int:
    """Lists or removes; the device itself refuses to remove anything while it is onroad or works."""
    device = known_device(session, name)
    services = open_services(session.workspace, session.cancel, Console())
    found = services.link(device).call("gc", dry=not remove, keep=device.keep_backups, **needed_on(session, device))
    for item in found["items"]:
        print(f"{item['bytes'] / 1e6:8.1f} MB  {WORDS[item['kind']]}  {item['name']}")
    total = sum(item["bytes"] for item in found["items"]) / 1e6
    if not found["items"]:
        print(f"Nothing to collect on {name}.")
    elif found["removed"]:
        print(f"{total:.1f} MB removed from {name}.")
    else:
        print(f"{total:.1f} MB in {len(found['items'])} places. `doit gc --device {name} --yes` removes them.")
    return 0


def needed_on(session: Session, device: Device) -> dict[str, Any]:
    """What the models of a device need there: files, artifact names, jobs."""
    workspace = session.workspace
    models = [model for model in workspace.catalog.models.values() if session.device_of(model).name == device.name]
    scripts = [script(model.kind) for model in models for script in (compile_script, harness_script)]
    if models:
        scripts += [iqpilot_script(), selector_script()]
    sent = {shipped_path(device, script, file) for script in scripts for file in script}
    latest = [workspace.receipts.latest(model.name).get(f"compile@{device.name}") for model in models]
    return {
        "keep_files": [*files_of_ours(device, models), sconscript_path(device), *sent],
        "keep_names": [name for model in models for name in model.artifacts.values()],
        "keep_jobs": [key for key in latest if key],
    }
