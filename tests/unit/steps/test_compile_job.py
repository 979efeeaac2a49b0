"""What a compile is told beyond the guide's words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from buildlib.core.declaration.builtin import PROFILES
from buildlib.steps.compile_job import warp_arguments
from buildlib.steps.context import StepContext


def told(flags: dict[str, str], expected: str, script: str = "builtin") -> list[str]:
    parts: dict[str, Any] = {"flags": flags, "arguments": {"expected_device": expected}}
    return warp_arguments(
        cast(StepContext, SimpleNamespace(parts=parts, device=SimpleNamespace(compile_script=script)))
    )


@pytest.mark.parametrize("profile", ["qcom", "cpu"])
def test_where_policy_and_warp_share_a_device_the_guides_arguments_are_all(profile: str) -> None:
    known = PROFILES[profile]
    assert told(dict(known["flags"]), known["expected_device"]) == []


def test_an_external_gpus_warp_is_expected_on_the_device_itself() -> None:
    known = PROFILES["egpu"]
    assert told(dict(known["flags"]), known["expected_device"]) == ["--expected-warp-device", "QCOM"]


def test_the_devices_own_script_is_told_the_guides_arguments_only() -> None:
    known = PROFILES["egpu"]
    assert told(dict(known["flags"]), known["expected_device"], "/data/openpilot/compile.py") == []
