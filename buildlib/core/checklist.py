"""Guide section 17: the fifteen points of a release, filled from receipts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from buildlib.core.attestation import Attestation
from buildlib.core.doctor import departures
from buildlib.core.freshness import Judgement


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One point. done: it holds for the present artifact; evidence: when and what, or what is missing."""

    number: int
    text: str
    done: bool
    evidence: str


def checklist(
    judged: Mapping[str, Judgement],
    artifacts: Mapping[str, str],
    attestations: Iterable[Attestation],
    *,
    runtime: str | None,
    flags_differ: list[str] | None,
) -> list[Point]:
    """The fifteen points for a model. flags_differ: of SConscript; None where none was compared."""
    drives = list(attestations)
    onroad = next((one for one in drives if not one.published and one.holds_for(artifacts, runtime)), None)
    after = next((one for one in drives if one.published and one.holds_for(artifacts, runtime)), None)
    rows: list[tuple[str, bool, str]] = [
        ("SConscript contains the current QCOM flags", flags_differ == [], _flags(flags_differ)),
        _stage(judged, "upload", "the source ONNX was copied to the device", lambda r: _first(r, "remote", "path")),
        _compiled(judged),
        _stage(judged, "verify", "the artifact is full-sized, not truncated", lambda r: _sizes(judged)),
        _stage(judged, "pull", "the artifact's hash", lambda r: ", ".join(sha[:12] for sha in artifacts.values())),
        _stage(judged, "install", "installed on the test device", lambda r: _first(r, "active", "path")),
        _stage(judged, "validate", "the harness ran", _harness),
        _drive("validated under the real launcher path", onroad, _without(judged)),
        _drive("no crash logs, no JIT mismatch, no freeze", onroad, _without(judged)),
        _stage(judged, "pull", "pulled back, hash as on the device", lambda r: "sha256 equal"),
        _stage(judged, "publish", "the published artifact was replaced", lambda r: str(r.get("commit") or "")[:12]),
        _stage(
            judged,
            "publish",
            "selector and fetcher SHA values",
            lambda r: f"{len(r.get('entries', ()))} in each manifest",
        ),
        _stage(
            judged, "publish", "repository, manifests and diff verified", lambda r: f"{len(r.get('paths', ()))} paths"
        ),
        _stage(judged, "publish", "committed and pushed", lambda r: str(r.get("message", ""))),
        _confirmed(judged, after),
    ]
    return [
        Point(number=number, text=text, done=done, evidence=evidence)
        for number, (text, done, evidence) in enumerate(rows, 1)
    ]


def _stage(
    judged: Mapping[str, Judgement], stage: str, text: str, evidence: Callable[[dict[str, Any]], str]
) -> tuple[str, bool, str]:
    judgement = judged[stage]
    if judgement.done and judgement.receipt is not None:
        assumed = f"; assumed: {judgement.reason}" if judgement.reason else ""
        return text, True, f"{judgement.receipt.finished}  {evidence(judgement.receipt.result)}".rstrip() + assumed
    return text, False, f"{stage} {judgement.told()}"


def _compiled(judged: Mapping[str, Judgement]) -> tuple[str, bool, str]:
    text, compiled, evidence = _stage(
        judged, "compile", "compiled on-device with the exact environment", lambda r: f"{r['seconds']:.1f} s"
    )
    receipt = judged["compile"].receipt
    if not compiled or receipt is None:
        return text, False, evidence
    other = departures(receipt.parts["flags"], receipt.parts["arguments"]["expected_device"])
    return text, not other, evidence + (f"; other than the guide's: {', '.join(other)}" if other else "")


def _harness(result: dict[str, Any]) -> str:
    """What it saw, and what it could not see."""
    verdicts = list(result.get("verdicts", {}).values())
    said = "; ".join(dict.fromkeys(str(verdict.get("said") or "good") for verdict in verdicts)) or "good"
    unseen = dict.fromkeys(what for verdict in verdicts for what in verdict.get("unseen", ()))
    return said + "".join(f"; not seen: {what}" for what in unseen)


def _without(judged: Mapping[str, Judgement]) -> str | None:
    """The reason for which these bytes were published without a drive."""
    published = judged["publish"]
    if not published.done or published.receipt is None:
        return None
    return published.receipt.result.get("without_onroad")


def _drive(text: str, attestation: Attestation | None, reason: str | None) -> tuple[str, bool, str]:
    if attestation is None:
        published = f"; published without a drive: {reason}" if reason else ""
        return text, False, f"no onroad attestation holds for these bytes{published}"
    return text, True, f"{attestation.on}  attested by {attestation.by}"


def _confirmed(judged: Mapping[str, Judgement], after: Attestation | None) -> tuple[str, bool, str]:
    text, confirmed, evidence = _stage(judged, "confirm", "redownloaded and validated one more time", _where)
    receipt = judged["confirm"].receipt
    if not confirmed or receipt is None:
        return text, False, evidence
    if after is not None:
        return text, True, f"{evidence}; seen on the road by {after.by}"
    if "device" in receipt.result.get("on_device", {}):
        return text, True, evidence
    return text, False, f"{evidence}: validate it on a device, then doit attest {receipt.model} --published"


def _where(result: dict[str, Any]) -> str:
    on_device = result.get("on_device", {})
    by = f"by {on_device['device']}'s selector" if "device" in on_device else "on no device"
    return f"by its URL, {by}"


def _flags(differ: list[str] | None) -> str:
    if differ is None:
        return "not compared: no SConscript there, none whose flags can be read, or another backend"
    return "; ".join(differ) if differ else "every larch64 function agrees with the profile"


def _first(result: Mapping[str, Any], group: str, field: str) -> str:
    return next((str(entry[field]) for entry in result.get(group, {}).values()), "")


def _sizes(judged: Mapping[str, Judgement]) -> str:
    compiled = judged["compile"].receipt
    sizes = [entry["size"] for entry in compiled.result["artifacts"].values()] if compiled else []
    return ", ".join(f"{size / 1e6:.1f} MB" for size in sizes)
