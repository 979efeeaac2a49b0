"""Differences of keys in the words of models.yaml and the guide."""

from __future__ import annotations

import re

from buildlib.core.catalog import Catalog, Device, Model
from buildlib.core.flags import effective_profile, flag_origins
from buildlib.core.key import Difference

_ARGUMENTS = {
    "frame_skip": "frame skip",
    "model_size": "model size",
    "camera_resolutions": "camera resolutions",
    "expected_device": "expected device",
    "kind": "kind",
    "artifacts": "artifacts",
}


_ON_A_DEVICE = re.compile(r"\bdoit (?=[a-z]+:[^\s]|(?:attest|diagnose|explain|plan|rebuild|rollback|status) )")


def for_device(text: str, device: str | None) -> str:
    """A message whose commands, typed as they stand, act on the device that was chosen for this run."""
    return text if device is None else _ON_A_DEVICE.sub(f"doit device={device} ", text)


def counted(number: int, noun: str) -> str:
    """`1 backup`, `2 backups`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def short(value: object) -> str:
    """A value for the eye: short digests, 1344x760 for sizes, `unset` for absence, what moves in a manifest's entry."""
    if value is None:
        return "unset"
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, int) for part in value):
        return f"{value[0]}x{value[1]}"
    if isinstance(value, list):
        return " ".join(short(part) for part in value)
    if isinstance(value, dict):
        telling = [name for name in ("file_name", "sha256", "build_time") if value.get(name)]
        return ", ".join(short(value[name]) for name in telling or value)
    text = str(value)
    if len(text) in (40, 64) and all(c in "0123456789abcdef" for c in text):
        return text[:8]
    return text


def subject_of(difference: Difference) -> str:
    """What a difference is about: `OPENPILOT_HACKS`, `frame skip`, `tinygrad`, `ONNX`."""
    area, _, rest = difference.path.partition(".")
    if area == "flags":
        return rest
    if area == "arguments":
        head, _, tail = rest.partition(".")
        return f"{_ARGUMENTS.get(head, head)} {tail}".strip()
    if area == "toolchain":
        return rest.replace("_", " ").replace(".", " ")
    if area == "onnx":
        role = rest.partition(".")[0]
        return "ONNX" if role in ("", "supercombo") else f"ONNX {role}"
    if area == "script":
        return "compile script"
    if area == "artifacts" and rest:
        return rest
    if area == "entries":
        return "published entry"
    return difference.path.replace(".", " ")


def change_of(difference: Difference) -> str:
    """A difference as one clause: `frame skip: 4 -> 2`."""
    return f"{subject_of(difference)}: {short(difference.before)} -> {short(difference.after)}"


def place_of(difference: Difference, catalog: Catalog, model: Model, device: Device) -> str:
    """Where the present value comes from: a line of models.yaml, or the device."""
    area, _, rest = difference.path.partition(".")
    if area == "flags":
        flag = flag_origins(catalog, model, device).get(rest)
        profile = effective_profile(catalog, model, device)
        return (
            f"{flag.where} ({flag.origin})" if flag else f"{catalog.line(f'profiles.{profile.name}')} ({profile.name})"
        )
    if area == "arguments":
        setting = rest.partition(".")[0]
        own, shared = f"models.{model.name}.{setting}", f"defaults.{setting}"
        if setting == "artifacts" and own not in catalog.lines:
            own = f"models.{model.name}.artifact"
        return catalog.line(shared if own not in catalog.lines and shared in catalog.lines else own)
    if area == "onnx":
        return catalog.source_line(model, rest.partition(".")[0])
    if area in ("toolchain", "unit"):
        return f"device {device.name}"
    if area == "script":
        return "the tool's own" if device.compile_script == "builtin" else f"device {device.name}"
    return ""
