"""What exists without being declared in models.yaml. A declaration of the same name replaces a profile whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

QCOM = "qcom"
CPU = "cpu"
EGPU = "egpu"

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

EGPU_FLAGS: Mapping[str, str] = {
    "DEV": "USB+AMD:LLVM",
    "WARP_DEV": "QCOM",
    "FLOAT16": "1",
    "JIT_BATCH_SIZE": "0",
    "GMMU": "0",
}
"""For `big` variants on an external GPU: the policy runs there, the warp stays on the device (facts, section 3)."""

PROFILES: Mapping[str, Mapping[str, Any]] = {
    QCOM: {"name": QCOM, "flags": QCOM_FLAGS, "expected_device": "QCOM"},
    EGPU: {"name": EGPU, "flags": EGPU_FLAGS, "expected_device": "AMD"},
    CPU: {"name": CPU, "flags": {"DEV": "CPU", "WARP_DEV": "CPU"}, "expected_device": "CPU"},
}

LOCAL_DEVICE: Mapping[str, Any] = {"transport": "local", "profile": CPU}
"""A directory laid out like a device's root. Its keys in models.yaml are merged over these."""
