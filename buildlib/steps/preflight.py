"""preflight:DEVICE (guide, sections 1 and 4): one look at a device. What it finds never fails a build."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from buildlib import errors
from buildlib.core.answer import answer_digest
from buildlib.core.catalog import Catalog, Device, Model
from buildlib.core.flags import effective_flags
from buildlib.core.freshness import age_in_words
from buildlib.core.remote import active_path, iqpilot_harness_path, recompiled_path, source_path
from buildlib.core.verdicts.contract import CAPTURED_CLASSES
from buildlib.steps import toolchain
from buildlib.steps.context import Services
from buildlib.steps.scripts import compile_script_id
from buildlib.steps.world import Observation, read_observation, write_observation

SERIAL = ("HardwareSerial", "DongleId")
"""Parameters that tell one unit from another."""


@dataclass(frozen=True)
class Heard:
    """What a device said, or that it said nothing, when it was asked earlier in this run.

    device: as it was declared then. asked: the probe's request. Either answer or error is there.
    """

    device: Device
    asked: dict[str, Any]
    answer: dict[str, Any] | None = None
    error: errors.BuildError | None = None


def probe(services: Services, catalog: Catalog, device: Device, heard: Heard | None = None) -> Observation:
    """Asks the device once and records the answer; an unreachable one keeps its last answer and is called so.

    heard: stands for the asking if the same device was asked the same, so that a silent one costs its time once.
    """
    before = read_observation(services.workspace, device.name) or Observation(device=device.name)
    try:
        answer = _heard_before(services, catalog, device, heard) or ask(services, catalog, device)
    except errors.Cancelled:
        raise
    except errors.BuildError as error:
        observation = _unanswered(before, error)
        services.events.step(device.name, "preflight", observation_text(observation))
        write_observation(services.workspace, observation)
        return observation
    return record(services, device, answer)


def _heard_before(services: Services, catalog: Catalog, device: Device, heard: Heard | None) -> dict[str, Any] | None:
    """The answer of earlier in this run, None if the device is to be asked; raises what was raised then."""
    # models.yaml may have been corrected while the first asking waited for an answer.
    if heard is None or heard.device != device or heard.asked != request(services, catalog, device):
        return None
    if heard.error is not None:
        raise heard.error
    return heard.answer


def record(services: Services, device: Device, answer: dict[str, Any], *, told: bool = True) -> Observation:
    """Keeps an answer as the device's observation; a toolchain that is new here is worth a line, if `told`."""
    before = read_observation(services.workspace, device.name)
    observation = _answered(device, answer)
    if told and (before is None or observation.identity != before.identity):
        services.events.step(device.name, "preflight", toolchain_text(observation))
    write_observation(services.workspace, observation)
    return observation


def ask(services: Services, catalog: Catalog, device: Device) -> dict[str, Any]:
    """The probe itself, in one round trip; three where SConscript was copied. Only a parked device gets it."""
    link = services.link(device)
    if toolchain.is_local(device):
        ensure_layout(services, device)
    asked = request(services, catalog, device)
    answer = link.call("probe", **asked)
    parked = answer["health"]["onroad"] == "0" and not answer["health"]["model_processes"]
    there = answer["files"][sconscript_path(device)]
    if device.sync_sconscript and parked and sync_sconscript(services, device, there):
        answer = link.call("probe", **asked)
    return answer


def request(services: Services, catalog: Catalog, device: Device) -> dict[str, Any]:
    """What a probe asks."""
    return {
        "toolchain": toolchain.spec(services.workspace, device, compile_script_id(device)),
        "files": sorted(
            {
                *files_of_ours(device, catalog.models.values()),
                sconscript_path(device),
                iqpilot_harness_path(device),
            }
        ),
        "params": list(SERIAL),
        "names": sorted(
            CAPTURED_CLASSES.union(*(effective_flags(catalog, model, device) for model in catalog.models.values()))
        ),
    }


def sconscript_path(device: Device) -> str:
    """IQPilot's SConscript, which holds the flags of its own builds (guide, section 1)."""
    return f"{device.paths.openpilot}/iqpilot/selfdrive/iqmodeld/SConscript"


def sync_sconscript(services: Services, device: Device, there: dict[str, Any] | None) -> bool:
    """Copies the workstation's SConscript over the device's where they differ (guide, section 1); True if it did."""
    assert device.sync_sconscript is not None
    local = services.workspace.root / Path(device.sync_sconscript).expanduser()
    if not local.is_file():
        raise errors.DeviceError(
            "the SConscript to copy is not there",
            where=str(local),
            remedy=f"correct devices.{device.name}.sync_sconscript in models.yaml",
        )
    sha256 = services.workspace.hash_file(local)
    if there is not None and there["sha256"] == sha256:
        return False
    services.link(device).push(local, sconscript_path(device), sha256=sha256, lacking=True)
    services.events.step(device.name, "preflight", f"SConscript copied from {device.sync_sconscript}")
    return True


def ensure_layout(services: Services, device: Device) -> None:
    """Makes the directories of the embedded device the first time, and what somebody has removed of them since."""
    root, paths = services.workspace.root / device.paths.root, device.paths
    wanted = (paths.models, paths.sources, f"{paths.params}/IsOnroad")
    if not all((root / path.lstrip("/")).exists() for path in wanted):
        services.link(device).call("layout")


def files_of_ours(device: Device, models: Iterable[Model]) -> list[str]:
    """The remote paths that the judge of freshness may ask about."""
    found: list[str] = []
    for model in models:
        found += [source_path(device, model, role) for role in model.sources]
        for name in model.artifacts.values():
            found += [recompiled_path(device, name), active_path(device, name)]
    return found


def _answered(device: Device, answer: dict[str, Any]) -> Observation:
    identity = dict(answer["identity"] or {})
    if device.compile_script == "builtin":
        identity.pop("script", None)  # ours is named by the workstation, see `World.script`
    problems = answer.get("problems", ())
    params = answer["health"].get("params", {})
    serial = next((params[name] for name in SERIAL if params.get(name)), "")
    return Observation(
        device=device.name,
        answered=time.time(),
        reachable=True,
        problem=problems[0]["what"] if problems else None,
        remedy=problems[0].get("remedy") if problems else None,
        unit=f"{device.name}:{serial}" if serial else device.name,
        identity=identity if not problems else None,
        people=answer.get("people", {}),
        health=answer["health"],
        flags=answer.get("flags"),
        heard=answer.get("heard"),
        files={path: entry["sha256"] for path, entry in answer["files"].items() if entry},
        answer=answer_digest(answer),
    )


def _unanswered(before: Observation, error: errors.BuildError) -> Observation:
    return msgspec.structs.replace(before, reachable=False, problem=error.headline(), remedy=error.remedy)


def toolchain_text(observation: Observation) -> str:
    """A toolchain in one line: `tinygrad 0.14.0 (9c8d21f4), python 3.12.3, zig cc ...`."""
    identity, people = observation.identity or {}, observation.people
    version = people.get("tinygrad_version") or (people.get("tinygrad_commit") or "")[:8] or "?"
    tinygrad = str(identity.get("tinygrad") or "")[:8]
    dirty = " with local changes" if people.get("tinygrad_dirty") else ""
    compiler = f", {identity['c_compiler'].partition(' wrapper')[0]}" if identity.get("c_compiler") else ""
    return f"tinygrad {version} ({tinygrad}){dirty}, python {identity.get('python')}{compiler}, {identity.get('os')}"


def observation_text(observation: Observation) -> str:
    """Why there was no answer, and when there was one."""
    last = (
        f"; last seen {age_in_words(time.time() - observation.answered)} ago"
        if observation.answered
        else "; never seen"
    )
    return f"{observation.problem}{last}"
