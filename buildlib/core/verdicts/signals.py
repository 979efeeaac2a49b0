"""What the runtime signals of guide section 10 say, as the device's agent gathered them (`agent/signals.py`). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from buildlib.core.diagnoses.diagnosis import Diagnosed, diagnose
from buildlib.core.diagnoses.signs_model import ARTIFACT, RUNTIME
from buildlib.core.verdicts.findings import Finding, refuse

_NOT_OF_A_RUN: Final = {"compile_check", "host_limit"}
_OF_A_RUN: Final = {"out_of_memory", "other_tinygrad", "no_kgsl", "jit_differs", "unknown_device", "no_tinygrad"}
MODEL_SIGNS: Final = frozenset({sign.code for sign in (*ARTIFACT, *RUNTIME)} - _NOT_OF_A_RUN | _OF_A_RUN)
"""Signs that speak of the model wherever on a device they show; others (a network that is away) may be anybody's."""
FROZEN_UI: Final = "a frozen UI shows only on the screen: look at it (guide, section 10)"


def speaks_of_model(code: str) -> bool:
    """True for a sign that is held against the artifact when it shows in a run."""
    return code in MODEL_SIGNS or code.startswith("jit_")


class CrashFile(msgspec.Struct, frozen=True):
    """One file of the device's crash directory."""

    name: str
    size: int
    mtime: float


class ErrorLog(msgspec.Struct, frozen=True):
    """error.log; text is its end."""

    size: int
    mtime: float
    text: str


class Seen(msgspec.Struct, frozen=True):
    """A process as it was found. holds, stale: device paths of artifacts."""

    pid: int
    name: str
    state: str
    started: float | None
    model: bool
    holds: list[str] = []
    stale: list[str] = []


class Drives(msgspec.Struct, frozen=True):
    """When the recorder last wrote a drive, and when its directory last changed."""

    newest: float | None
    changed: float


class Service(msgspec.Struct, frozen=True):
    """A message queue."""

    exists: bool
    moves: bool


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a device. Times are seconds since 1970 on the device's clock."""

    clock: float
    boot: str
    onroad: str | None
    onroad_written: float | None = None
    drives: Drives | None = None
    pane: str | None = None
    pane_problem: str | None = None
    error_log: ErrorLog | None = None
    crashes: tuple[CrashFile, ...] = ()
    crash_texts: dict[str, str] = {}
    processes: tuple[Seen, ...] = ()
    artifacts: dict[str, dict[str, float] | None] = {}
    services: dict[str, Service] = {}


def read_signals(raw: Mapping[str, Any]) -> Signals:
    """The agent's answer with its types."""
    return msgspec.convert(raw, Signals)


def judge_signals(before: Signals, after: Signals) -> tuple[Finding, ...]:
    """What became bad between two looks: new crash files, signs in what was newly written, zombies, stale artifacts."""
    return (*_signs(before, after), *_crashed(before, after), *_processes(before, after))


def judge_now(seen: Signals, installed: float | None) -> Iterator[Finding]:
    """What one look shows: zombies, a stale artifact, crash files since the install, services that stand still."""
    yield from _processes(msgspec.structs.replace(seen, processes=()), seen)
    crashes = crashes_since(seen, installed) if installed is not None else []
    if crashes:
        yield refuse(
            "crashed",
            "crash files are newer than the installed artifact",
            expected="none since the install",
            found=", ".join(crashes[:5]),
            guide="10",
            remedy="read them above; the cause stands at their end",
        )
    silent = [name for name, service in seen.services.items() if service.exists and not service.moves]
    if silent and seen.onroad == "1":
        yield refuse(
            "services_dead",
            "services stand still although the device is onroad",
            expected="messages",
            found=", ".join(silent),
            guide="10",
            remedy="find why the model process stopped; these only follow it",
        )


def new_crashes(before: Signals, after: Signals) -> list[str]:
    """Names of crash files that are new, or were written again."""
    known = {(one.name, one.size, one.mtime) for one in before.crashes}
    return [one.name for one in after.crashes if (one.name, one.size, one.mtime) not in known]


def crashes_since(seen: Signals, moment: float) -> list[str]:
    """Names of crash files written after a moment of the device's clock; error.log is one of them."""
    found = [one.name for one in seen.crashes if one.mtime > moment]
    return [*found, "error.log"] if seen.error_log is not None and seen.error_log.mtime > moment else found


def onroad_since(seen: Signals, moment: float) -> bool | None:
    """Was the car on after a moment of the device's clock? None where the device cannot tell.

    A recorded drive says yes. IsOnroad unwritten since then, or a recorder's directory that nobody touched, say no. A
    rewritten IsOnroad alone says nothing: a harness and a boot write it too.
    """
    if seen.onroad == "1" or (
        seen.drives is not None and seen.drives.newest is not None and seen.drives.newest > moment
    ):
        return True
    if seen.onroad_written is not None and seen.onroad_written < moment:
        return False
    if seen.drives is not None and seen.drives.changed < moment:
        return False
    return None


def texts(seen: Signals) -> dict[str, str]:
    """All logs of one look, by what they are called on the device."""
    found = {"tmux pane": seen.pane or "", "error.log": seen.error_log.text if seen.error_log else ""}
    return {name: text for name, text in {**found, **seen.crash_texts}.items() if text.strip()}


def new_texts(before: Signals, after: Signals) -> dict[str, str]:
    """What was written between two looks."""
    fresh = set(new_crashes(before, after))
    found = {name: text for name, text in after.crash_texts.items() if name in fresh}
    if after.error_log is not None and after.error_log != before.error_log:
        old = before.error_log.text if before.error_log else ""
        text = after.error_log.text
        found["error.log"] = text[len(old) :] if old and text.startswith(old) else text
    if after.pane and before.pane is not None:
        found["tmux pane"] = _new_lines(before.pane, after.pane)
    return {name: text for name, text in found.items() if text.strip()}


def unseen(after: Signals, *, local: bool) -> Iterator[str]:
    """What no run shows, so that a person must look. local: a directory that stands for a device has no screen."""
    if local:
        return
    yield FROZEN_UI
    if after.pane is None:
        yield f"the tmux pane: {after.pane_problem or 'it was not there'}"


def signs_in(text: str, where: str) -> Iterator[Finding]:
    """The failures that a text shows and that speak of the model, as findings."""
    for sign in diagnose(text).failures:
        if speaks_of_model(sign.code):
            yield _finding(sign, where)


def _finding(sign: Diagnosed, where: str) -> Finding:
    sides = f" ({sign.captured} captured, {sign.passed} passed)" if sign.captured and sign.passed else ""
    return refuse(
        sign.code,
        f"{sign.cause}{sides}",
        expected=f"no such sign in the {where}",
        found=sign.evidence + (f" ({sign.count} times)" if sign.count > 1 else ""),
        guide=sign.guide,
        remedy=sign.remedy,
    )


def _signs(before: Signals, after: Signals) -> Iterator[Finding]:
    for name, text in new_texts(before, after).items():
        yield from signs_in(text, name)


def _crashed(before: Signals, after: Signals) -> Iterator[Finding]:
    names = new_crashes(before, after)
    written = after.error_log is not None and after.error_log != before.error_log
    if names or written:
        shown = [*names[:5], *(["error.log"] if written else [])]
        yield refuse(
            "crashed",
            "crash files are new since the start",
            expected="none",
            found=", ".join(shown),
            guide="10",
            remedy="doit diagnose reads them; the cause stands at their end",
        )


def _processes(before: Signals, after: Signals) -> Iterator[Finding]:
    known = {one.pid for one in before.processes if one.state == "Z"}
    zombies = [one for one in after.processes if one.state == "Z" and one.pid not in known]
    if zombies:
        yield refuse(
            "zombie",
            "a process became a zombie",
            expected="none",
            found=", ".join(f"{one.name} (pid {one.pid})" for one in zombies),
            guide="10",
            remedy="read error.log and the tmux pane from before it: the cause stands there",
        )
    yield from stale(after)


def stale(seen: Signals) -> Iterator[Finding]:
    """Model processes that are older than the artifact that they should run."""
    for one in seen.processes:
        if one.stale and one.state != "Z":
            yield refuse(
                "stale_loaded",
                "a stale artifact is still loaded: the model process is older than the file",
                expected="a model process started after the install",
                found=f"{one.name} (pid {one.pid}), older than {', '.join(one.stale)}",
                guide="11",
                remedy="restart the device, so that the model process loads the installed file",
            )


def _new_lines(before: str, after: str) -> str:
    known = Counter(before.splitlines())
    fresh = []
    for line in after.splitlines():
        if known[line] > 0:
            known[line] -= 1
        else:
            fresh.append(line)
    return "\n".join(fresh)
