"""What a compile's job is told: our script or the device's own, the guide's command line, the environment it gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from buildlib import errors
from buildlib.core.catalog import Device
from buildlib.core.remote import recompiled_path, source_path
from buildlib.device.link import DeviceLink
from buildlib.steps import toolchain
from buildlib.steps.context import StepContext
from buildlib.steps.jobs import ship
from buildlib.steps.scripts import compile_script


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One artifact of a model, and the ONNX files that it is made of. output: its path on the device."""

    role: str
    onnx: tuple[str, ...]
    output: str
    key: str
    log: str


def pieces(context: StepContext) -> list[Piece]:
    """The artifacts of a model: one that is made of everything, or one a role."""
    sources, artifacts = tuple(context.parts["onnx"]), context.model.artifacts
    return [
        Piece(
            role=role,
            onnx=(role,) if role in sources else sources,
            output=recompiled_path(context.device, name),
            key=context.key if len(artifacts) == 1 else f"{context.key[:48]}-{role}",
            log="compile.log" if len(artifacts) == 1 else f"compile-{role}.log",
        )
        for role, name in artifacts.items()
    ]


def job_request(context: StepContext, link: DeviceLink, piece: Piece) -> dict[str, Any]:
    """What the job is told, and what must not move meanwhile."""
    identity = dict(context.parts["toolchain"])
    script, inputs = ship_script(context, link)
    for role in piece.onnx:
        inputs.append({"path": source_path(context.device, context.model, role), "sha256": context.parts["onnx"][role]})
    device = link.device
    return {
        "subject": f"compile {context.model.name}",
        "argv": [link.python, link.real(script), *compile_command(context, link, piece)],
        "env": toolchain.compile_environment(context.workspace, device, context.parts["flags"], identity),
        "inputs": inputs,
        "toolchain": toolchain.spec(context.workspace, device, context.parts["script"]),
        "expected_identity": as_reported(device, identity, context.parts["script"]),
        "output": piece.output,
        "need": sum(context.workspace.blobs.path(context.parts["onnx"][role]).stat().st_size for role in piece.onnx),
        "timeout": device.timeouts.compile,
        "power": not toolchain.is_local(device),
    }


def as_reported(device: Device, identity: Mapping[str, Any], script: str) -> dict[str, Any]:
    """The identity as the device reports it: there our own script, by its digest, is part of it too."""
    return {**identity, "script": script} if device.compile_script == "builtin" else dict(identity)


def compile_command(context: StepContext, link: DeviceLink, piece: Piece) -> list[str]:
    """The guide's arguments (section 5); for a split model, an ONNX a role and no camera: its warps are not in it."""
    arguments = context.parts["arguments"]
    onnx = {role: link.real(source_path(context.device, context.model, role)) for role in piece.onnx}
    common = ["--model-size", _size(arguments["model_size"]), "--output", link.real(piece.output)]
    common += ["--expected-device", arguments["expected_device"]]
    if arguments["kind"] != "supercombo":
        return [*common, "--onnx", *(f"{role}={path}" for role, path in onnx.items())]
    common += warp_arguments(context)
    (path,) = onnx.values()
    cameras = [_size(size) for size in arguments["camera_resolutions"]]
    return [*common, "--onnx", path, "--frame-skip", str(arguments["frame_skip"]), "--camera-resolutions", *cameras]


def ship_script(context: StepContext, link: DeviceLink) -> tuple[str, list[dict[str, str]]]:
    """The compile script's device path, and the inputs that it adds; ours is sent under a name with its sha256."""
    own = context.device.compile_script
    if own != "builtin":
        if context.model.kind != "supercombo":
            raise errors.DeviceError(
                f"{context.device.name}'s own compile script makes supercombos only, and {context.model.name} is a "
                f"{context.model.kind}",
                remedy=f"set devices.{context.device.name}.compile_script to builtin",
            )
        return own, []
    inputs = ship(link, compile_script(context.model.kind))
    return inputs[0]["path"], inputs


def warp_arguments(context: StepContext) -> list[str]:
    """Where the warps must have been captured, when that is another device than the policy's (an external GPU's)."""
    warp = context.parts["flags"].get("WARP_DEV", "").rpartition("+")[2].partition(":")[0]
    if context.device.compile_script != "builtin" or warp in ("", context.parts["arguments"]["expected_device"]):
        return []
    return ["--expected-warp-device", warp]


def _size(size: list[int]) -> str:
    return f"{size[0]}x{size[1]}"
