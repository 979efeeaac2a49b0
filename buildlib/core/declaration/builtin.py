"""What exists without being declared in models.yaml. A declaration of the same name replaces a profile whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

QCOM = "qcom"
CPU = "cpu"

QCOM_FLAGS: Mapping[str, str] = {
    "DEV": "QCOM",
    "WARP_DEV": "QCOM",
    "IMAGE": "2",
    "FLOAT16": "1",
    "NOLOCALS": "1",
    "JIT_BATCH_SIZE": "0",
    "OPENPILOT_HACKS": "1",
}
"""The guide's "Current Known-Good QCOM Compile Flags", all seven."""

PROFILES: Mapping[str, Mapping[str, Any]] = {
    QCOM: {"name": QCOM, "flags": QCOM_FLAGS, "expected_device": "QCOM"},
    CPU: {"name": CPU, "flags": {"DEV": "CPU", "WARP_DEV": "CPU"}, "expected_device": "CPU"},
}

LOCAL_DEVICE: Mapping[str, Any] = {"transport": "local", "profile": CPU}
"""A directory laid out like a device's root. Its keys in models.yaml are merged over these."""
