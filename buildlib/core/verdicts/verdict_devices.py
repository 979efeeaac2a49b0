"""Devices of an artifact: of its buffers, programs and copies, never of its inputs (a numpy input is no backend)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from buildlib.core.verdicts.contract import Contract
from buildlib.core.verdicts.findings import REBUILD_SAME, Finding, refuse
from buildlib.core.verdicts.inspection import CapturedJit, Inspection

_HOST: Final = frozenset({"NPY"})


def judge_devices(inspection: Inspection, contract: Contract, *, device: str, warp_device: str) -> Iterator[Finding]:
    """Refuses NULL, another device than the expected, and any mixture that the expectations do not ask for."""
    everywhere = _bases((*inspection.devices, *inspection.targets, *inspection.places))
    if "NULL" in everywhere:
        yield refuse(
            "null_device",
            "was compiled for the NULL device, which computes nothing",
            expected=device,
            found=", ".join(sorted(everywhere)),
            guide="11",
            remedy=f"a smoke test of kernels, never an artifact: compile on the device with DEV={device}",
        )
        return
    if inspection.form != "other" and not inspection.programs:
        yield refuse(
            "no_kernels",
            "holds no compiled program",
            expected=f"programs for {device}",
            found="none",
            guide="11",
            remedy=REBUILD_SAME,
        )
    wrong = [
        (jit, found - {wanted})
        for jit in inspection.jits
        for wanted in (warp_device if _is_warp(jit, contract) else device,)
        if (found := _bases((*jit.devices, *jit.targets, *jit.places))) - {wanted}
    ]
    allowed = {device, warp_device}
    strangers = everywhere - allowed
    if not wrong and not strangers:
        return
    others = sorted(strangers.union(*(found for _, found in wrong)))
    wants = device if device == warp_device else f"{device}, the warp on {warp_device}"
    where = "; ".join(f"{jit.key or 'the jit'}: {', '.join(sorted(found))}" for jit, found in wrong)
    mixed = bool(everywhere & allowed)
    yield refuse(
        "mixed_devices" if mixed else "wrong_device",
        f"{', '.join(others)} inside a {device} artifact" if mixed else f"is a {', '.join(others)} artifact",
        expected=f"buffers and programs on {wants}",
        found=where or ", ".join(others),
        guide="11",
        remedy=f"compile on the device with DEV={device} WARP_DEV={warp_device}"
        + (" and OPENPILOT_HACKS=1" if device == "QCOM" else ""),
    )


def _bases(names: Iterable[str]) -> set[str]:
    """Device classes: "CPU:x86_64,native" and "CPU:1" are CPU."""
    return {name.partition(":")[0] for name in names} - _HOST


def _is_warp(jit: CapturedJit, contract: Contract) -> bool:
    return jit.camera is not None and any(rule.per_camera and rule.warp for rule in contract.jits)
