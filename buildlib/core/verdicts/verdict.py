"""Is an artifact the one that its model's declaration asks for, and that its runtime can run? Pure.

`judge` compares an Inspection with a contract and with expectations; every difference is a Finding that says what was
expected, what was found, which failure of the compile guide it is and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from buildlib.core.catalog import Model
from buildlib.core.verdicts.contract import CONTRACTS, KNOWN_GLOBALS, Contract
from buildlib.core.verdicts.findings import REBUILD_SAME, Finding, Severity, refuse, warn
from buildlib.core.verdicts.inspection import Inspection, Weight
from buildlib.core.verdicts.verdict_devices import judge_devices
from buildlib.core.verdicts.verdict_jits import judge_jits
from buildlib.core.verdicts.verdict_metadata import OnnxMetadata, judge_metadata

__all__ = ["Expectations", "Finding", "Severity", "Verdict", "expectations_of", "judge", "unreadable"]

_MB: Final = 1_000_000
_TINY: Final = 1 * _MB
_POLICY: Final = 1.2 * _MB
_WARP: Final = 8 * _MB
_MOSTLY_ZERO: Final = 0.5
_BIG_WEIGHT: Final = 64 * 1024


class Expectations(msgspec.Struct, frozen=True, kw_only=True):
    """What the model's declaration says, with its profile merged in.

    expected_device: "QCOM", "CPU". warp_device: only where the warp runs on another one.
    cameras, model_size: (width, height) in pixels.
    onnx_bytes: bytes of the ONNX's weights. onnx_inputs: its inputs' names. onnx: what else it says. None where not
    known. tinygrad_names: which of `CAPTURED_CLASSES` the tinygrad that compiled it defines.
    """

    contract: str = "supercombo"
    expected_device: str
    warp_device: str | None = None
    frame_skip: int = 4
    cameras: tuple[tuple[int, int], ...] = ((1344, 760), (1928, 1208))
    model_size: tuple[int, int] = (512, 256)
    onnx_bytes: int | None = None
    onnx_inputs: tuple[str, ...] | None = None
    onnx: OnnxMetadata | None = None
    tinygrad_names: frozenset[str] | None = None


def expectations_of(
    model: Model,
    *,
    expected_device: str,
    flags: Mapping[str, str],
    role: str = "supercombo",
    onnx_bytes: int | None = None,
    onnx_inputs: tuple[str, ...] | None = None,
    onnx: OnnxMetadata | None = None,
) -> Expectations:
    """What a catalog model's artifact of that role must be.

    expected_device, flags: of the effective profile (`core.flags`). WARP_DEV, if set, is the warp's device.
    """
    warp = flags.get("WARP_DEV", "").rpartition("+")[2].partition(":")[0]
    return Expectations(
        contract=_CONTRACT_OF_ROLE.get(role, model.kind),
        expected_device=expected_device,
        warp_device=warp or None,
        frame_skip=model.frame_skip,
        cameras=model.camera_resolutions,
        model_size=model.model_size,
        onnx_bytes=onnx_bytes,
        onnx_inputs=onnx_inputs,
        onnx=onnx,
    )


_CONTRACT_OF_ROLE: Final = {
    "supercombo": "supercombo",
    "vision": "split_vision",
    "policy": "split_policy",
    "on_policy": "split_policy",
    "off_policy": "split_policy",
}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """verdict: "good" if nothing is to be refused. findings: refusals first; warnings never refuse."""

    verdict: Literal["good", "refused"]
    contract: str
    findings: tuple[Finding, ...]

    @property
    def good(self) -> bool:
        return self.verdict == "good"

    @property
    def refusals(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.severity == "refuse")


def judge(inspection: Inspection, expectations: Expectations) -> Verdict:
    """All that is wrong with the artifact, worst first.

    Raises KeyError for a contract that does not exist.
    """
    contract = CONTRACTS[expectations.contract]
    return _verdict(contract.name, tuple(_findings(inspection, contract, expectations)))


def unreadable(
    *, contract: str, code: str, what: str, expected: str | None, found: str | None, guide: str | None, remedy: str
) -> Verdict:
    """The verdict on a file whose reading ended in an error."""
    finding = refuse(code, what, expected=expected or "a whole artifact", found=found or "", guide=guide, remedy=remedy)
    return _verdict(contract, (finding,))


def _verdict(contract: str, findings: tuple[Finding, ...]) -> Verdict:
    ordered = tuple(sorted(findings, key=lambda one: one.severity != "refuse"))
    refused = any(one.severity == "refuse" for one in ordered)
    return Verdict(verdict="refused" if refused else "good", contract=contract, findings=ordered)


def judge_alone(inspection: Inspection) -> tuple[Finding, ...]:
    """What is wrong with a file whatever it was meant to be: strange globals, oddities, a broken copy, zeros."""
    return (*_judge_globals(inspection), *_judge_content(inspection))


def _findings(inspection: Inspection, contract: Contract, expectations: Expectations) -> Iterator[Finding]:
    yield from _judge_globals(inspection)
    yield from _judge_tinygrad(inspection, expectations.tinygrad_names)
    yield from judge_devices(
        inspection,
        contract,
        device=expectations.expected_device,
        warp_device=expectations.warp_device or expectations.expected_device,
    )
    if inspection.form != contract.form:
        yield refuse(
            "wrong_form",
            "is not what this runtime loads",
            expected=f"{_FORMS[contract.form]}, as {contract.runtime} loads it",
            found=_FORMS[inspection.form],
            guide="11",
            remedy="compile it with the script that belongs to this runtime",
        )
    else:
        yield from _judge_root(inspection, contract)
        yield from judge_metadata(inspection.metadata, expectations.onnx)
        yield from judge_jits(
            inspection,
            contract,
            frame_skip=expectations.frame_skip,
            cameras=expectations.cameras,
            model_size=expectations.model_size,
            device=expectations.expected_device,
            warp_device=expectations.warp_device or expectations.expected_device,
            onnx_inputs=expectations.onnx_inputs,
        )
    yield from _judge_content(inspection)
    yield from _judge_size(inspection, expectations)


_FORMS: Final = {"dict": "a dict of captured jits", "bare": "one bare captured jit", "other": "no captured jit"}


def _judge_globals(inspection: Inspection) -> Iterator[Finding]:
    unknown = [name for name in inspection.globals if name not in KNOWN_GLOBALS]
    if unknown:
        shown = ", ".join(unknown[:5]) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
        yield refuse(
            "unknown_global",
            "loading it would import what no captured jit has",
            expected="only what tinygrad 0.12 to 0.14 captures are made of",
            found=shown,
            remedy="do not load it anywhere; find out where the file comes from, then compile the model again",
        )
    for oddity in inspection.oddities:
        yield refuse(
            "odd", oddity, expected="what tinygrad writes", found="something else", guide="11", remedy=REBUILD_SAME
        )


def _judge_tinygrad(inspection: Inspection, names: frozenset[str] | None) -> Iterator[Finding]:
    """Classes that are known, but not to the tinygrad that is said to have made the file."""
    ours = [name for name in inspection.globals if name.startswith("tinygrad.") and name in KNOWN_GLOBALS]
    foreign = [name for name in ours if names is not None and name.rpartition(".")[2] not in names]
    if foreign:
        yield refuse(
            "other_tinygrad",
            "was captured by another tinygrad than the one that its compile is recorded with",
            expected="only classes that this tinygrad has",
            found=", ".join(foreign[:5]) + (f" and {len(foreign) - 5} more" if len(foreign) > 5 else ""),
            guide="11",
            remedy="it would not load: look for an older file that the compile script keeps, or a second tinygrad on "
            "its PYTHONPATH; compile it again",
        )


def _judge_root(inspection: Inspection, contract: Contract) -> Iterator[Finding]:
    missing = [key for key in contract.keys if key not in inspection.root_keys]
    if missing:
        yield refuse(
            "root_key_missing",
            f"{contract.runtime} would die with KeyError: {missing[0]!r}",
            expected="root keys " + ", ".join(contract.keys),
            found=", ".join(inspection.root_keys) or "none",
            guide="11",
            remedy="a stale artifact, or one of another compile script: compile it with this runtime's own",
        )
    metadata = inspection.metadata
    lacking = [key for key in contract.metadata if metadata is None or key not in metadata.keys]
    if lacking and "metadata" not in missing:
        yield refuse(
            "metadata_missing",
            f"{contract.runtime} needs metadata that is not there",
            expected=", ".join(contract.metadata),
            found=", ".join(metadata.keys) if metadata and metadata.keys else "none",
            guide="11",
            remedy="compile it from an ONNX that has output_slices in its metadata",
        )


def _judge_content(inspection: Inspection) -> Iterator[Finding]:
    if inspection.trailing:
        yield refuse(
            "trailing_bytes",
            "bytes follow the end of the pickle",
            expected="nothing behind the pickle",
            found=f"{inspection.trailing:,} bytes",
            guide="11",
            remedy="two writers or a broken copy: fetch it again and compare the sha256",
        )
    if inspection.payload and inspection.zero_payload > _MOSTLY_ZERO * inspection.payload:
        yield refuse(
            "zero_weights",
            "its weights are zeros",
            expected="weights",
            found=f"{inspection.zero_payload / inspection.payload:.0%} zero bytes",
            guide="11",
            remedy="compiled on the NULL device, or a copy that broke off: compile on the device, copy, compare sha256",
        )
        return
    hollow = [one for one in inspection.weights if one.zeros == 1.0 and one.payload >= _BIG_WEIGHT and _is_weight(one)]
    if hollow:
        yield warn(
            "zero_buffer",
            "a buffer holds only zeros",
            expected="content",
            found=f"{len(hollow)} of {len(inspection.weights)}, the largest {hollow[0].payload:,} bytes",
            guide="11",
            remedy="compare the sha256 with the device's; an unused buffer is harmless",
        )


def _is_weight(weight: Weight) -> bool:
    """Floats are weights; bytes are images and scratch memory, which may well be zero."""
    return "float" in weight.dtype


def _judge_size(inspection: Inspection, expectations: Expectations) -> Iterator[Finding]:
    weights = expectations.onnx_bytes
    if weights is None:
        if inspection.size < _TINY:
            yield refuse(
                "tiny",
                "is far too small for a driving model",
                expected="tens of megabytes (114 to 119 MB for a full supercombo)",
                found=_megabytes(inspection.size),
                guide="6",
                remedy="do not publish it; compile again and read the log's end",
            )
        return
    least = 0.9 * weights
    most = 1.25 * weights + _POLICY + _WARP * max(1, len(expectations.cameras))
    expected = f"{_megabytes(least)} to {_megabytes(most)} for an ONNX with {_megabytes(weights)} of weights"
    if inspection.size < least:
        yield refuse(
            "tiny" if inspection.size < weights / 10 else "too_small",
            "is too small for its ONNX",
            expected=expected,
            found=_megabytes(inspection.size),
            guide="6",
            remedy="do not publish it; was it compiled from this ONNX, and was the copy whole? Compile again",
        )
    elif inspection.size > most:
        yield refuse(
            "too_big",
            "is too big for its ONNX",
            expected=expected,
            found=_megabytes(inspection.size),
            guide="6",
            remedy="was it compiled from this ONNX, with FLOAT16=1 and prune=True? Compile again",
        )


def _megabytes(size: float) -> str:
    return f"{size / _MB:.1f} MB"
