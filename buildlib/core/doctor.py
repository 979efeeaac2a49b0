"""What a probe's answer means: every line good, or with its remedy (guide, sections 1 and 4). Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from buildlib.core.catalog import Device, Profile

COMPILE_SPACE = 600_000_000
"""Bytes that one model needs on a device: its ONNX, the artifact being made, the installed one and backups."""
CLOCK_SKEW = 120.0
"""Seconds of difference that are worth a word: file times and certificates begin to disagree."""
NOT_IN_SCONSCRIPT = frozenset({"WARP_DEV"})
"""Flags that the compile command sets and SConscript does not (guide, sections 1 and 5)."""


class Line(msgspec.Struct, frozen=True):
    """One finding. level: ok, note (worth knowing), BAD (a build on this device will fail or be wrong)."""

    level: Literal["ok", "note", "BAD"]
    text: str
    remedy: str | None = None


def flag_differences(flags: Mapping[str, list[str]] | None, profile: Profile) -> list[str]:
    """How the functions of SConscript that return larch64 flags differ from a profile; one line a difference.

    flags: function -> ["DEV=QCOM", ...]; None where the device has no SConscript. Only a QCOM profile is compared: the
    other backends' flags are not SConscript's business.
    """
    if flags is None or profile.expected_device != "QCOM":
        return []
    found: list[str] = []
    for function, words in flags.items():
        has = dict(word.partition("=")[::2] for word in words)
        for name, value in profile.flags.items():
            if name in NOT_IN_SCONSCRIPT and name not in has:
                continue
            if name not in has:
                found.append(f"{function} lacks {name}={value}")
            elif has[name] != value:
                found.append(f"{function} has {name}={has[name]}, the profile {profile.name} says {value}")
    return found


def examine(
    device: Device,
    profile: Profile,
    answer: Mapping[str, Any],
    *,
    now: float,
    toolchain_text: str,
) -> Iterator[Line]:
    """All lines for one device. answer: the agent's `probe`; now: workstation's wall clock, seconds."""
    health = answer["health"]
    yield Line("ok", "reached" + (", host key pinned, sudo without password" if device.sudo else ""))
    for problem in answer.get("problems", ()):
        yield Line("BAD", f"{problem['what']} ({problem.get('where', '')})", problem.get("remedy"))
    yield Line("ok", toolchain_text)
    yield from _flags(device, profile, answer.get("flags"))
    yield from _directories(device, health)
    yield from _state(device, health, now)
    yield from _leftovers(health)


def _flags(device: Device, profile: Profile, flags: Mapping[str, list[str]] | None) -> Iterator[Line]:
    if profile.expected_device != "QCOM":
        return
    if flags is None:
        yield Line("note", "no SConscript there, so its flags were not compared")
        return
    differences = flag_differences(flags, profile)
    for text in differences:
        yield Line(
            "BAD",
            f"SConscript: {text}",
            f"set devices.{device.name}.sync_sconscript to your file, or edit it; compiles stop until then",
        )
    if not differences:
        yield Line("ok", f"SConscript: {', '.join(flags) or 'no function'} agree with profile {profile.name}")


def _directories(device: Device, health: Mapping[str, Any]) -> Iterator[Line]:
    broken = {path: text for path, text in health["directories"].items() if text != "ok"}
    for path, text in broken.items():
        remedy = f"make {path} writable for the user that compiles, or set sudo: true"
        yield Line("BAD", f"{path}: {text}", remedy)
    if not broken:
        yield Line("ok", f"{len(health['directories'])} directories writable")
    free = {name: count for name, count in health["free"].items() if count is not None}
    least = min(free.values(), default=0)
    if least < COMPILE_SPACE:
        yield Line(
            "BAD", f"{least / 1e9:.2f} GB free, a model needs about {COMPILE_SPACE / 1e9:.1f}", "doit gc --device"
        )
    else:
        yield Line("ok", f"{least / 1e9:.1f} GB free")


def _state(device: Device, health: Mapping[str, Any], now: float) -> Iterator[Line]:
    onroad = health["onroad"]
    if onroad == "0" and not health["model_processes"]:
        yield Line("ok", "offroad, no model process runs")
    elif onroad is None:
        yield Line("BAD", "IsOnroad cannot be read: nothing is touched", "start openpilot once, or check paths.params")
    elif onroad == "0":
        yield Line("BAD", f"a model process runs: {health['model_processes'][0]}", "wait until it ends")
    else:
        yield Line("BAD", "onroad: nothing on it is changed", "park the car")
    skew = abs(health["clock"] - now)
    if skew > CLOCK_SKEW:
        yield Line("note", f"its clock is {skew:.0f} s off; nothing here depends on it")
    if health.get("power_saving") is not None:
        state = "on" if health["power_saving"] else "off"
        yield Line("ok", f"power saving is {state}, and off during compiles")
    name = active_model(health.get("active_bundle"))
    yield Line("note", f"active model: {name}" if name else "no active model")


def _leftovers(health: Mapping[str, Any]) -> Iterator[Line]:
    for undone in health["undone"]:
        yield Line("note", f"put back what an unfinished test had changed: {undone}")
    for pending in health["pending"]:
        yield Line("BAD", f"still to be put back: {pending}", "let the device come to rest offroad, then ask again")
    for job in health["jobs"]:
        if job["state"] == "running":
            yield Line("note", f"a job runs: {job.get('subject')} by {job.get('owner')}")
    if not health["undone"] and not health["pending"]:
        yield Line("ok", "no unfinished work")


def active_model(bundle: str | None) -> str | None:
    """The active bundle's name, from the parameter's JSON."""
    if not bundle:
        return None
    try:
        value = json.loads(bundle)
    except ValueError:
        return "unreadable"
    if not isinstance(value, dict):
        return "unreadable"
    for key in ("display_name", "displayName", "internalName", "short_name"):
        if isinstance(value.get(key), str):
            return str(value[key])
    return "unnamed"
