"""What a probe's answer means: every line good, or with its remedy (guide, sections 1 and 4). Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from buildlib.core.catalog import Device, Profile
from buildlib.core.confirmation import endangered
from buildlib.core.declaration.builtin import QCOM_FLAGS
from buildlib.core.wording import counted

COMPILE_SPACE = 600_000_000
"""Bytes that a model of unknown size needs on a device: its ONNX, what is made of it, installed, and a backup."""
CLOCK_SKEW = 120.0
"""Seconds of difference that are worth a word: file times and certificates begin to disagree."""
SPARE = 64 << 20
"""Bytes that the device's agent keeps free on every disk."""
NOT_YET = "not there yet"
"""What a probe says of a directory that a later one will make: it makes nothing on a device that is not offroad."""
READ_BY_THE_SCRIPT = frozenset({"WARP_DEV"})
"""Flags that the compile script reads itself."""
NOT_IN_SCONSCRIPT = frozenset({"WARP_DEV"})
"""Flags that the compile command sets and SConscript does not (guide, sections 1 and 5)."""

UNREAD = "no flags for larch64 are found in SConscript"
COMPARE_BY_HAND = "compare it with the profile by hand (guide, section 1)"


class Line(msgspec.Struct, frozen=True):
    """One finding. level: ok, note (worth knowing), BAD (a build on this device will fail or be wrong)."""

    level: Literal["ok", "note", "BAD"]
    text: str
    remedy: str | None = None


def flag_differences(flags: Mapping[str, list[str]] | None, profile: Profile) -> list[str] | None:
    """How the functions of SConscript that return larch64 flags differ from a profile; one line a difference.

    flags: function -> ["DEV=QCOM", ...]; None where the device has no SConscript. Only a QCOM profile is compared: the
    other backends' flags are not SConscript's business. None where nothing was compared, also for a SConscript in which
    no flags are found: they may be there in a form that is not read.
    """
    if not flags or profile.expected_device != "QCOM":
        return None
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


def departures(flags: Mapping[str, str], expected_device: str) -> list[str]:
    """The guide's known-good flags that a QCOM compile does not get, or gets with another value; nothing for others."""
    if expected_device != "QCOM":
        return []
    return [name for name, good in QCOM_FLAGS.items() if flags.get(name) != good]


def unheard_flags(flags: Mapping[str, str], heard: Iterable[str] | None) -> list[str]:
    """Flags of a compile that neither the device's tinygrad nor the compile script reads.

    heard: those that this tinygrad's sources mention; None where nothing is known of them.
    """
    if heard is None:
        return []
    return sorted(set(flags) - set(heard) - READ_BY_THE_SCRIPT)


def directory_problems(device: Device, directories: Mapping[str, str]) -> Iterator[Line]:
    """A line for each directory that the compiling user cannot write; directories: device path -> "ok" or why not."""
    for path, text in directories.items():
        if text in ("ok", NOT_YET):
            continue
        if "read-only" in text.lower():
            remedy = (
                f"see in `dmesg` there why, then mount it writable: `sudo mount -o remount,rw` and the disk of {path}"
            )
        elif "no such file" in text.lower():
            remedy = f"correct devices.{device.name}.paths, or make it there: `mkdir -p {shlex.quote(path)}`"
        elif "file exists" in text.lower() or "not a directory" in text.lower():
            old = shlex.quote(f"{path}.old")
            remedy = f"something else lies there: move it away (`sudo mv {shlex.quote(path)} {old}`)"
        elif device.sudo:
            remedy = f"look at its owner and mode there: `ls -ld {shlex.quote(path)}`"
        else:
            remedy = f"make {path} writable for the user that logs in, or set devices.{device.name}.sudo: true"
        yield Line("BAD", f"{path}: {text}", remedy)


def examine(
    device: Device,
    profile: Profile,
    answer: Mapping[str, Any],
    *,
    now: float,
    toolchain_text: str,
    need: int = COMPILE_SPACE,
) -> Iterator[Line]:
    """All lines for one device. answer: the agent's `probe`; now: workstation's wall clock, seconds. need: bytes that a
    build of the largest model takes there."""
    health = answer["health"]
    yield Line("ok", "reached" + (", host key pinned, sudo without password" if device.sudo else ""))
    for problem in answer.get("problems", ()):
        yield Line("BAD", f"{problem['what']} ({problem.get('where', '')})", problem.get("remedy"))
    yield Line("ok", toolchain_text)
    yield Line("ok", f"compile script {_script(device, answer.get('identity') or {})}")
    yield from _flags(device, profile, answer.get("flags"))
    yield from _directories(device, health, need)
    yield from _state(device, health, now)
    yield from _selector(device, health, answer.get("files", {}))
    yield Line("note", _ours(device, health, answer.get("files", {})))
    yield from _leftovers(health)


def _script(device: Device, identity: Mapping[str, Any]) -> str:
    """Which script compiles there: ours, which is sent along, or the device's own."""
    if device.compile_script == "builtin":
        return "builtin"
    digest = identity.get("script")
    return f"{device.compile_script} {digest[:8]}" if isinstance(digest, str) else device.compile_script


def _ours(device: Device, health: Mapping[str, Any], files: Mapping[str, Any]) -> str:
    """What of ours is there: files of declared models, jobs, backups."""
    there = [path for path, entry in files.items() if entry]
    made = [path for path in there if path.endswith(".recompiled.pkl")]
    installed = [path for path in there if path.startswith(f"{device.paths.models}/") and path not in made]
    sent = [path for path in there if path.endswith("_source.onnx")]
    ended = [job for job in health["jobs"] if job["state"] != "running"]
    counts = [
        counted(len(sent), "source"),
        f"{len(made)} compiled and {len(installed)} installed",
        counted(len(ended), "ended job"),
        counted(health.get("backups", 0), "backup"),
    ]
    return f"of ours there: {', '.join(counts)}"


def _flags(device: Device, profile: Profile, flags: Mapping[str, list[str]] | None) -> Iterator[Line]:
    if profile.expected_device != "QCOM":
        return
    if flags is None:
        yield Line("note", "no SConscript there, so its flags were not compared")
        return
    differences = flag_differences(flags, profile)
    if differences is None:
        yield Line("note", f"{UNREAD}, so none were compared", COMPARE_BY_HAND)
        return
    for text in differences:
        yield Line(
            "BAD",
            f"SConscript: {text}",
            f"set devices.{device.name}.sync_sconscript to your file, or edit it; compiles stop until then",
        )
    if not differences:
        yield Line("ok", f"SConscript: {', '.join(flags)} agree with profile {profile.name}")


def _directories(device: Device, health: Mapping[str, Any], need: int) -> Iterator[Line]:
    broken = list(directory_problems(device, health["directories"]))
    yield from broken
    later = [path for path, text in health["directories"].items() if text == NOT_YET]
    if later:
        yield Line("note", f"not there yet, made once it is offroad: {' '.join(later)}")
    elif not broken:
        yield Line("ok", f"{len(health['directories'])} directories writable")
    free = {name: count for name, count in health["free"].items() if count is not None}
    least = min(free.values(), default=0)
    if least < need:
        yield Line(
            "BAD",
            f"{least / 1e9:.2f} GB free, a model needs {need / 1e9:.2f}",
            f"doit gc --device {device.name} lists what may go there; --yes removes it",
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
        yield Line(
            "note",
            f"its clock is {skew:.0f} s off; nothing here depends on it",
            "connect it to the internet, where it sets its clock itself, or set it there with `sudo date -s`",
        )
    else:
        yield Line("ok", "its clock agrees")
    if health.get("power_saving") is not None:
        state = "on" if health["power_saving"] else "off"
        yield Line("ok", f"power saving is {state}, and off during compiles")
    name = active_model(health.get("active_bundle"))
    yield Line("note", f"active model: {name}" if name else "no active model")


def _selector(device: Device, health: Mapping[str, Any], files: Mapping[str, Any]) -> Iterator[Line]:
    folder = f"{device.paths.models}/"
    installed = {path.removeprefix(folder): entry["sha256"] for path, entry in files.items() if entry}
    for text in endangered(health, installed):
        yield Line("note", text, "publish that artifact, or select another model on the device")


def _leftovers(health: Mapping[str, Any]) -> Iterator[Line]:
    for undone in health["undone"]:
        yield Line("note", f"put back what an unfinished test had changed: {undone}")
    for pending in health["pending"]:
        yield Line("BAD", f"still to be put back: {pending}", "let the device come to rest offroad, then ask again")
    for job in health["jobs"]:
        if job["state"] == "running":
            yield Line("note", f"a job runs: {job.get('subject')} by {job.get('owner')}")
    for name in health["held"]:
        text = f"{name} is there for its validation, and taken back without a verdict"
        yield Line("note", text, "doit validate:MODEL; or doit install:MODEL, which lets it stay")
    if not (health["undone"] or health["pending"] or health["held"]):
        yield Line("ok", "no unfinished work")


def active_model(bundle: str | None) -> str | None:
    """The active bundle's name, from the parameter's JSON."""
    if not bundle:
        return None
    try:
        value = json.loads(bundle)
    except (ValueError, RecursionError):
        return "unreadable"
    if not isinstance(value, dict):
        return "unreadable"
    for key in ("display_name", "displayName", "internalName", "short_name"):
        if isinstance(value.get(key), str):
            return str(value[key])
    return "unnamed"
