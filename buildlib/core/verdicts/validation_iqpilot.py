"""What a run of IQPilot's own harness says of an artifact (guide, sections 9.1 and 10). Pure.

The report (`device_scripts/validate_iqpilot.py`) holds observations. A pass needs the proof that the bytes under test
ran: selected all the time, the same file before and after, and a model process of this run that held it and no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from buildlib.core.diagnoses.diagnosis import diagnose
from buildlib.core.verdicts.findings import REBUILD_SAME, Finding, refuse
from buildlib.core.verdicts.signals import Signals, judge_signals, signs_in, unseen
from buildlib.core.verdicts.validation import Validation, ended_outside, timed_out, without_report

REPORT_FORMAT: Final = 1
MODEL_SERVICE: Final = "modelV2"
QUIET: Final = 3.0
"""Seconds without a message, or without any work of the processor, after which a model at 20 Hz is not alive."""
LEAST: Final = 3.0
"""Seconds that a model must have lived where the harness itself ends the run sooner than was asked for."""
_LAUNCH: Final = "compile it again with the known-good flags (OPENPILOT_HACKS=1), then validate again; see the log"
_OF_THE_SURROUNDINGS: Final = frozenset({"left_onroad", "harness_failed"})
"""Findings that say nothing about the artifact."""


class _File(msgspec.Struct, frozen=True):
    sha256: str | None = None
    device: int | None = None
    inode: int | None = None
    size: int | None = None
    mtime_ns: int | None = None
    ctime_ns: int | None = None


class _Artifact(msgspec.Struct, frozen=True):
    path: str
    asked: str
    before: _File
    after: _File
    moved: float | None


class _Model(msgspec.Struct, frozen=True):
    pid: int
    name: str
    named: bool
    older: bool
    holds: dict[str, str]
    others: list[str]
    first: float
    last: float
    ended: float | None
    state: str
    cpu: list[tuple[float, float]]


class _Harness(msgspec.Struct, frozen=True):
    path: str
    sha256: str | None
    seconds: float
    exit: int | None
    ended: str


class _Service(msgspec.Struct, frozen=True):
    first: float
    began: float | None
    last: float | None
    moves: int


class _Asked(msgspec.Struct, frozen=True):
    seconds: float
    start_limit: float


class _Report(msgspec.Struct, frozen=True):
    format: int
    harness: _Harness
    artifacts: list[_Artifact]
    models: list[_Model]
    selection: list[tuple[float, list[str], list[str]]]
    services: dict[str, _Service | None]
    onroad: list[tuple[float, str]]
    asked: _Asked


def judge_iqpilot(
    status: Mapping[str, Any],
    artifacts: Mapping[str, str],
    log: str,
    before: Signals,
    after: Signals,
    *,
    local: bool = False,
) -> Validation:
    """The verdict on a job's final status. artifacts: file name -> sha256 under test. log: all that the job said.

    before, after: the device's signals around the run. local: see `signals.unseen`.
    """
    state = str(status.get("state"))
    try:
        report = msgspec.convert(status.get("report"), _Report)
        problem = "" if report.format == REPORT_FORMAT else f"one of format {report.format}"
    except msgspec.ValidationError as error:
        report, problem = None, "none" if status.get("report") is None else f"one that cannot be read: {error}"
    signs = (*signs_in(log, "harness's output"), *judge_signals(before, after))
    if state == "timeout":
        return Validation(verdict="refused", findings=(timed_out(status), *_unique(signs)))
    if state not in ("ok", "failed"):
        return Validation(verdict="unknown", findings=(ended_outside(state, status),))
    if report is None or problem:
        said = without_report(status, problem)
        return Validation(verdict="refused", findings=_unique((*signs, *said.findings))) if signs else said
    if report.harness.ended == "told":
        return Validation(verdict="unknown", findings=(ended_outside("stopped", status),))
    findings = _unique((*_other_bytes(report, artifacts), *signs, *_life(report, log)))
    about = [one for one in findings if one.code not in _OF_THE_SURROUNDINGS]
    verdict: Literal["good", "refused", "unknown"] = "refused" if about else "unknown" if findings else "good"
    return Validation(
        verdict=verdict,
        findings=tuple(sorted(findings, key=lambda one: one.code in _OF_THE_SURROUNDINGS)),
        numbers=_numbers(report),
        proof=_proof(report),
        said=f"IQPilot's harness: model alive {_lived(report):.0f} s, its bytes proven" if verdict == "good" else "",
        unseen=tuple(_unseen(report, after, local)),
    )


def _other_bytes(report: _Report, artifacts: Mapping[str, str]) -> Iterator[Finding]:
    """Every reason to think that other bytes ran than those under test; each alone is enough."""
    told = {one.path.rpartition("/")[2]: one for one in report.artifacts}
    for name, sha256 in artifacts.items():
        one = told.get(name)
        if one is None or {one.before.sha256, one.after.sha256} != {sha256}:
            now = f"{one.before.sha256}, then {one.after.sha256}" if one else "nothing"
            yield _another(f"sha256 {sha256} before and after", f"{now} at {name}")
        elif one.moved is not None or one.before != one.after:
            yield _another(f"{name} left alone", "the file was replaced while the model ran, and came back")
    for at, names, digests in report.selection:
        lacking = [name for name in artifacts if name not in names]
        wrong = [name for name, sha256 in artifacts.items() if digests and sha256 not in digests]
        if lacking or wrong:
            shown = ", ".join(names) or "no bundle"
            suffix = " with another sha256" if wrong and not lacking else ""
            yield _another(
                f"{', '.join(artifacts)} selected all the time", f"{shown} selected{suffix} after {at:.1f} s"
            )
            break
    yield from _holders(report)


def _holders(report: _Report) -> Iterator[Finding]:
    held = {path for model in report.models for path in model.holds if not model.older}
    missing = [one.path.rpartition("/")[2] for one in report.artifacts if one.path not in held]
    others = sorted({name for model in report.models for name in model.others})
    if report.models and missing:
        shown = ", ".join(f"{model.name} (pid {model.pid})" for model in report.models[:3])
        yield _another(
            f"a model process that holds {', '.join(missing)}, open or mapped",
            f"{shown} held {', '.join(others) if others else 'none of it'}",
        )
    elif others:
        yield _another("the artifact under test and no other", f"{', '.join(others)} held by a model process")
    older = [model for model in report.models if model.older]
    if older:
        shown = ", ".join(f"{model.name} (pid {model.pid})" for model in older)
        yield _another("a model process started after the install", f"{shown} is older")


def _another(expected: str, found: str) -> Finding:
    return refuse(
        "another_model_ran",
        "another model ran",
        expected=expected,
        found=found,
        guide="18",
        remedy="keep the selector and other people off the device, then validate again",
    )


def _life(report: _Report, log: str) -> Iterator[Finding]:
    """Did the model live as long as it was asked to, and did it work?"""
    harness, asked = report.harness, report.asked
    failed = harness.ended == "by itself" and harness.exit not in (0, None)
    models = [model for model in report.models if model.holds] or report.models
    dead = [model for model in models if model.ended is not None and model.ended <= harness.seconds + 0.5]
    alive = [model for model in models if model not in dead]
    last = _last_words(log)
    if not models:
        yield refuse(
            "harness_failed",
            "the harness started no model process" + (" and failed" if failed else ""),
            expected=f"one within {asked.start_limit:.0f} s",
            found=last or f"exit status {harness.exit}",
            guide="9.1",
            remedy="not the artifact's fault as far as can be told: read the log",
        )
    elif failed and not (dead and min(model.ended or 0.0 for model in dead) < harness.seconds - 1.0):
        yield refuse(
            "harness_says_no",
            "the harness ended with an error",
            expected="exit status 0",
            found=f"exit status {harness.exit}" + (f": {last}" if last else ""),
            guide="9.1",
            remedy=f"read the log; {REBUILD_SAME}",
        )
    elif not alive and not (harness.ended == "by itself" and harness.exit == 0):
        state = " and became a zombie" if any(model.state == "Z" for model in dead) else ""
        yield refuse(
            "died",
            f"the model process died{state}",
            expected=f"alive for {asked.seconds:.0f} s",
            found=f"gone after {_lived(report):.1f} s: {last}" if last else f"gone after {_lived(report):.1f} s",
            guide="11",
            remedy=_LAUNCH,
        )
    elif _lived(report) < (LEAST if harness.ended == "by itself" else asked.seconds) and report.models:
        yield refuse(
            "not_started",
            "the model did not start up in its time",
            expected=f"the artifact loaded within {asked.start_limit:.0f} s and alive for {asked.seconds:.0f} s",
            found=f"alive for {_lived(report):.1f} s",
            guide="11",
            remedy=_LAUNCH,
        )
    if alive:
        yield from _works(report, alive)
    if harness.ended == "killed":
        yield refuse(
            "harness_failed",
            "the harness did not end when it was asked to, and was killed",
            expected="to put back what it faked",
            found=f"IsOnroad {report.onroad[-1][1]!r}",
            guide="9.1",
            remedy="look at the device: what the harness faked may still be there",
        )
    if report.onroad and report.onroad[-1][1] != "0":
        yield refuse(
            "left_onroad",
            "the harness left the device onroad",
            expected='IsOnroad "0", as before',
            found=f"{report.onroad[-1][1]!r}",
            guide="9.1",
            remedy="nothing there is touched any more: restart the device, then run doit again",
        )


def _works(report: _Report, alive: list[_Model]) -> Iterator[Finding]:
    """A living process may hang: it must send, or at least compute."""
    end = report.harness.seconds
    service = report.services.get(MODEL_SERVICE)
    if service is not None and (service.last is None or end - service.last > QUIET):
        when = f"the last message after {service.last:.1f} s of {end:.1f}" if service.last else "no message"
        yield refuse(
            "services_dead",
            f"{MODEL_SERVICE} is dead although the model process lives",
            expected="twenty messages a second",
            found=when,
            guide="10",
            remedy=_LAUNCH,
        )
    elif service is None and all(_idle(model) for model in alive):
        yield refuse(
            "frozen",
            "the model process froze",
            expected="work",
            found=f"no processor time in the last {QUIET:.0f} s",
            guide="11",
            remedy=_LAUNCH,
        )
    for name, other in report.services.items():
        if name != MODEL_SERVICE and other is not None and other.last is not None and end - other.last > QUIET:
            yield refuse(
                "services_dead",
                f"{name} died during the run",
                expected="messages to the end",
                found=f"the last one after {other.last:.1f} s of {end:.1f}",
                guide="10",
                remedy="find why the model process stopped; these only follow it",
            )


def _idle(model: _Model) -> bool:
    if len(model.cpu) < 2:
        return False
    end = model.cpu[-1]
    early = [sample for sample in model.cpu if end[0] - sample[0] >= QUIET]
    return bool(early) and early[-1][1] == end[1]


def _lived(report: _Report) -> float:
    """Seconds of work: from the first message to the last sign of life of a process that held the artifact.

    From the process's start where it has no queue, or died before its first message.
    """
    service = report.services.get(MODEL_SERVICE)
    began = service.began if service is not None and service.began is not None else 0.0
    holders = [model for model in report.models if model.holds]
    ends = [min(model.last, report.harness.seconds + 1) - max(model.first, began) for model in holders]
    return max(0.0, *ends) if ends else 0.0


def _last_words(log: str) -> str:
    """The last error in a log, its last line."""
    said = diagnose(log)
    if said.unknown:
        return said.unknown.strip().splitlines()[-1][:300]
    return ""


def _numbers(report: _Report) -> dict[str, Any]:
    sent = {name: one.moves if one else None for name, one in report.services.items()}
    return {"seconds": round(_lived(report), 3), "harness_seconds": report.harness.seconds, "services": sent}


def _proof(report: _Report) -> dict[str, Any]:
    plain = msgspec.to_builtins(report)
    return {"artifacts": plain["artifacts"], "models": plain["models"], "selection": plain["selection"]} | {
        "harness": plain["harness"]
    }


def _unseen(report: _Report, after: Signals, local: bool) -> Iterator[str]:
    """What nobody could see in this run."""
    yield from unseen(after, local=local)
    silent = [name for name, one in report.services.items() if one is None]
    if silent:
        yield f"{', '.join(silent)}: no message queue in this run; a drive shows them (guide, section 9.2)"


def _unique(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Each once: the log, the pane and error.log often hold the same words."""
    kept: dict[tuple[str, str], Finding] = {}
    for one in findings:
        kept.setdefault((one.code, one.what if one.code != "another_model_ran" else one.found), one)
    return tuple(kept.values())
