"""What a run of our own harness on a device says of an artifact. Pure.

`judge_run` turns the job's final status, with the report in it (`device_scripts/validate_supercombo.py`), into a
Validation. Only a whole run of the right bytes without a finding is good; a run that was ended from outside says
nothing, and is neither a pass nor held against the artifact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from buildlib.core.verdicts.findings import REBUILD_SAME, Finding, refuse

REPORT_FORMAT: Final = 1


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a run must have been to count.

    sha256: of the artifact, lower case. frames: at least. cameras: (width, height) in pixels, each driven.
    """

    sha256: str
    frames: int
    cameras: tuple[tuple[int, int], ...]
    realtime: bool


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """verdict: "unknown" when the run was ended from outside or could not be done. findings: the leading one first.

    numbers: times in ms, memory in bytes, as measured. proof: which bytes ran. Both empty without a report.
    """

    verdict: Literal["good", "refused", "unknown"]
    findings: tuple[Finding, ...] = ()
    numbers: dict[str, Any] = {}
    proof: dict[str, Any] = {}
    said: str = ""
    """The run in a few words, where it was no run of our own harness."""
    unseen: tuple[str, ...] = ()
    """What this run could not show; a person must look."""

    @property
    def good(self) -> bool:
        return self.verdict == "good"

    @property
    def refusals(self) -> tuple[Finding, ...]:
        return self.findings

    def summary(self) -> str:
        """`200 frames, p99 21 ms, steady`; late frames where there are any."""
        if not self.good:
            return self.findings[0].what
        if self.said:
            return self.said
        numbers = self.numbers
        late = f", {numbers['late']} late" if numbers.get("late") else ""
        measured = [part for part in numbers["memory"].values() if part is not None]
        steady = ", steady" if measured else ""
        return f"{numbers['frames']} frames, p99 {numbers.get('p99_ms', 0.0):.0f} ms{late}{steady}"


class _Found(msgspec.Struct, frozen=True):
    code: str
    what: str
    expected: str
    got: str
    frame: int | None = None
    count: int = 1


class _Numbers(msgspec.Struct, frozen=True):
    frames: int
    cameras: dict[str, dict[str, Any]]
    memory: dict[str, Any]
    late: int = 0
    p99_ms: float = 0.0


class _Proof(msgspec.Struct, frozen=True):
    sha256: str | None = None
    sha256_after: str | None = None
    before: dict[str, int] | None = None
    after: dict[str, int] | None = None


class _Asked(msgspec.Struct, frozen=True):
    realtime: bool


class _Report(msgspec.Struct, frozen=True):
    format: int
    verdict: str
    findings: list[_Found]
    numbers: _Numbers
    proof: _Proof
    asked: _Asked


def judge_run(status: Mapping[str, Any], asked: Asked) -> Validation:
    """The verdict on a job's final status (`agent/runner.py`): {state, reason, exit, report}."""
    state = str(status.get("state"))
    raw = status.get("report")
    report, problem = _read(raw)
    whole: dict[str, Any] = raw if report and isinstance(raw, dict) else {}
    numbers, proof = whole.get("numbers", {}), whole.get("proof", {})

    def give(verdict: Literal["good", "refused", "unknown"], *findings: Finding) -> Validation:
        return Validation(verdict=verdict, findings=findings, numbers=numbers, proof=proof)

    seen = tuple(_translated(one) for one in report.findings if one.code != "stopped") if report else ()
    if state == "timeout":
        return give("refused", timed_out(status, report), *seen)
    if state not in ("ok", "failed"):
        return give("unknown", ended_outside(state, status), *seen)
    if report is None:
        return without_report(status, problem)
    if seen:
        # A harness that failed by itself has shown nothing about the artifact.
        return give("unknown" if seen[0].code == "broken" else "refused", *seen)
    if any(one.code == "stopped" for one in report.findings):
        return give("unknown", ended_outside("stopped", {"reason": report.findings[0].what}))
    doubts = tuple(_doubts(status, report, asked))
    return give("refused", *doubts) if doubts else give("good")


def _read(raw: object) -> tuple[_Report | None, str]:
    if raw is None:
        return None, "none"
    try:
        report = msgspec.convert(raw, _Report)
    except msgspec.ValidationError as error:
        return None, f"one that cannot be read: {error}"
    if report.format != REPORT_FORMAT:
        return None, f"one of format {report.format}"
    return report, ""


def _translated(one: _Found) -> Finding:
    guide, remedy = _ADVICE.get(one.code, (None, "see the log"))
    if "args mismatch in JIT" in one.got:
        guide, remedy = "11", _MISMATCH
    when = f" at frame {one.frame}" if one.frame is not None and one.code not in _WHOLE_RUN else ""
    again = f", {one.count} times" if one.count > 1 else ""
    return refuse(
        one.code, f"{one.what}{when}{again}", expected=one.expected, found=one.got, guide=guide, remedy=remedy
    )


_WHOLE_RUN: Final = ("leaks", "too_slow", "died", "frozen")
_MISMATCH: Final = "compiled for another frame skip, camera or device than the runtime's: " + REBUILD_SAME
_FREEZES: Final = "compile it again with the known-good flags (OPENPILOT_HACKS=1), then validate again; see the log"
_ADVICE: Final[Mapping[str, tuple[str | None, str]]] = {
    "no_artifact": ("8", "install it again; something removed it"),
    "other_bytes": ("8", "something replaced the installed file: install it again and keep the selector off it"),
    "moved": ("8", "something replaced the file in mid-run: see who writes there, then install and validate again"),
    "not_loaded": ("11", "compile it again with the tinygrad that this device runs"),
    "contract": ("11", "compile it with this runtime's own script, frame skip and cameras"),
    "died": ("11", _FREEZES),
    "frozen": ("11", _FREEZES),
    "warp_failed": ("11", "compile it again with WARP_DEV and the cameras as this device has them"),
    "policy_failed": ("11", REBUILD_SAME),
    "not_finite": ("10", "compile it again; if it stays, the model itself overflows: take another ONNX"),
    "bad_odometry": ("10", "the localizer would refuse it: compare with a direct run of the ONNX"),
    "not_repeatable": ("11", _FREEZES),
    "indifferent": ("11", "a part of the model is cut off or frozen: " + REBUILD_SAME),
    "reads_padding": ("11", "its warp was made for another frame layout: compile it with this device's cameras"),
    "wrong_picture": ("11", "its warp was made for another camera or model size: compile it with this device's"),
    "leaks": ("10", "it would not survive a drive: compile it with prune=True and another tinygrad, then compare"),
    "too_slow": ("11", "check power saving and the flags (IMAGE, FLOAT16, JIT_BATCH_SIZE): " + REBUILD_SAME),
    "broken": (None, "not the artifact's fault: see the log for what the harness lacks"),
}


def timed_out(status: Mapping[str, Any], report: _Report | None = None) -> Finding:
    """A run that its job's clock ended."""
    done = f" after {report.numbers.frames} frames" if report else ""
    return refuse(
        "timeout",
        "the run did not end in the time allowed",
        expected="to end by itself",
        found=f"{status.get('reason') or 'ended'}{done}",
        guide="11",
        remedy="far too slow or frozen: see the log; timeouts.validate in models.yaml bounds the whole run",
    )


def ended_outside(state: str, status: Mapping[str, Any]) -> Finding:
    """A run that ended for no fault of its own, so that it shows nothing."""
    what, remedy = _OUTSIDE.get(state, ("the run has not ended", "run doit again"))
    return refuse(
        state, what, expected="a run to its end", found=str(status.get("reason") or state), guide=None, remedy=remedy
    )


_OUTSIDE: Final[Mapping[str, tuple[str, str]]] = {
    "onroad": ("the device went onroad, so the run was ended", "park the car, then run doit again"),
    "cancelled": ("the run was cancelled", "run doit again"),
    "stopped": ("the run was ended from outside", "run doit again"),
    "input_changed": ("the artifact or the toolchain changed while it ran", "run doit again when both rest"),
    "lost": (
        "the run was lost: the device was started anew, or the job was killed",
        "run doit again; if the device restarts each time, this model is the likely cause",
    ),
}


def without_report(status: Mapping[str, Any], problem: str) -> Validation:
    """The watchdog itself never came to report."""
    exit_status = status.get("exit")
    if isinstance(exit_status, int) and exit_status < 0:
        finding = refuse(
            "killed",
            "the harness was killed",
            expected="a report",
            found=f"signal {-exit_status}",
            guide="11",
            remedy="out of memory? See dmesg and the log on the device, then validate again",
        )
        return Validation(verdict="refused", findings=(finding,))
    finding = refuse(
        "no_report",
        "the harness gave no report",
        expected=f"a report of format {REPORT_FORMAT}",
        found=f"{problem}; {status.get('reason') or 'exit status ' + str(exit_status)}",
        guide=None,
        remedy="not the artifact's fault as far as can be told: see the log",
    )
    return Validation(verdict="unknown", findings=(finding,))


def _doubts(status: Mapping[str, Any], report: _Report, asked: Asked) -> Iterator[Finding]:
    """Why a report without findings is yet no pass."""
    proof = report.proof
    if {proof.sha256, proof.sha256_after} != {asked.sha256} or proof.before is None or proof.before != proof.after:
        yield refuse(
            "another_model_ran",
            "another model ran",
            expected=f"sha256 {asked.sha256}, before and after",
            found=f"{proof.sha256 or 'unknown'}, then {proof.sha256_after or 'unknown'}",
            guide="18",
            remedy="install it again, then validate again; the selector may have put another file there",
        )
    driven = {name for name, times in report.numbers.cameras.items() if times.get("frames")}
    missing = [name for name in (f"{width}x{height}" for width, height in asked.cameras) if name not in driven]
    if report.numbers.frames < asked.frames or missing:
        lacking = f", none on {', '.join(missing)}" if missing else ""
        yield refuse(
            "incomplete",
            "the run was shorter than asked for",
            expected=f"{asked.frames} frames on every camera",
            found=f"{report.numbers.frames}{lacking}",
            remedy="validate again",
        )
    if asked.realtime and not report.asked.realtime:
        yield refuse(
            "not_timed",
            "the run was not held to real time",
            expected="--require-realtime on the device that it is for",
            found="a run without",
            remedy="validate again",
        )
    if status.get("state") != "ok" or status.get("exit") != 0 or report.verdict != "good":
        yield refuse(
            "contradiction",
            "the harness says good and failed",
            expected="exit status 0 and the verdict good",
            found=f"{status.get('reason') or status.get('exit')}, {report.verdict}",
            remedy="see the log, then validate again",
        )


def with_signals(run: Validation, signals: tuple[Finding, ...], unseen: Iterable[str] = ()) -> Validation:
    """A run's verdict with what the device itself showed meanwhile: a crash beside a good run makes it refused."""
    run = msgspec.structs.replace(run, unseen=tuple(unseen))
    if not signals or run.verdict == "unknown":
        return run
    return msgspec.structs.replace(run, verdict="refused", findings=(*run.findings, *signals))
