"""Names of our files on a device: the guide's (sections 3, 5, 8), as device paths; the agent adds the root."""

from __future__ import annotations

import posixpath

from buildlib.core.catalog import Device, Model


def stem(artifact: str) -> str:
    """`driving_supercombo_nopp.pkl` -> `driving_supercombo_nopp`."""
    return artifact.removesuffix(".pkl")


def source_path(device: Device, model: Model, role: str) -> str:
    """`/data/media/0/driving_supercombo_nopp_source.onnx` (guide, section 3); other roles add their name."""
    base = stem(model.artifact)
    suffix = "" if len(model.sources) == 1 else f"_{role}"
    return posixpath.join(device.paths.sources, f"{base}{suffix}_source.onnx")


def recompiled_path(device: Device, artifact: str) -> str:
    """`/data/media/0/models/driving_supercombo_nopp.recompiled.pkl` (guide, section 5)."""
    return posixpath.join(device.paths.models, f"{stem(artifact)}.recompiled.pkl")


def iqpilot_harness_path(device: Device) -> str:
    """IQPilot's own harness (guide, section 9.1); a device that has it is validated by it."""
    return posixpath.join(device.paths.openpilot, "iqpilot/selfdrive/iqmodeld/tools/force_onroad_iqmodeld_test.py")


def active_path(device: Device, artifact: str) -> str:
    """`/data/media/0/models/driving_supercombo_nopp.pkl` (guide, section 8)."""
    return posixpath.join(device.paths.models, artifact)
