"""An artifact that is right in all but its metadata: another ONNX's, which fits itself and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from buildlib.artifact.inspect_file import inspect_artifact
from buildlib.artifact.onnx_reader import inspect_onnx
from buildlib.core.verdicts.inspection import Metadata
from buildlib.core.verdicts.verdict import Expectations, Verdict, judge
from buildlib.core.verdicts.verdict_metadata import OnnxMetadata, judge_metadata

pytestmark = pytest.mark.compile

Change = Callable[[OnnxMetadata], OnnxMetadata]


@pytest.fixture
def told(sample_onnx: Path) -> OnnxMetadata:
    found = inspect_onnx(sample_onnx)
    shapes = {spec.name: tuple(size for size in spec.shape or () if isinstance(size, int)) for spec in found.inputs}
    assert found.output_slices
    return OnnxMetadata(
        output_slices=found.output_slices,
        length=max(stop for _, stop in found.output_slices.values()),
        input_shapes=shapes,
    )


def verdict_on(artifact: Path, onnx: OnnxMetadata) -> Verdict:
    return judge(inspect_artifact(artifact), Expectations(expected_device="CPU", onnx=onnx))


def test_the_metadata_of_its_own_onnx_is_good(sample_artifact: Path, told: OnnxMetadata) -> None:
    verdict = verdict_on(sample_artifact, told)
    assert verdict.good, verdict.findings


def replaced(**changes: object) -> Change:
    return lambda told: msgspec.structs.replace(told, **changes)


def slices(change: Callable[[dict[str, tuple[int, int]]], object]) -> Change:
    def changed(told: OnnxMetadata) -> OnnxMetadata:
        found = dict(told.output_slices or {})
        change(found)
        return msgspec.structs.replace(told, output_slices=found)

    return changed


def swap(found: dict[str, tuple[int, int]]) -> None:
    first, second = list(found)[:2]
    found[first], found[second] = found[second], found[first]


def move(found: dict[str, tuple[int, int]]) -> None:
    name, (start, stop) = next(iter(found.items()))
    found[name] = (start, stop - 1)


OTHERS: dict[str, tuple[Change, str]] = {
    "two outputs swapped": (slices(swap), "other_slices"),
    "an output one value shorter": (slices(move), "other_slices"),
    "an output more": (slices(lambda found: found.update(new=(0, 1))), "other_slices"),
    "an output less": (slices(lambda found: found.popitem()), "other_slices"),
    "another shape of an input": (
        lambda told: msgspec.structs.replace(told, input_shapes={**told.input_shapes, "img": (1, 12, 64, 64)}),
        "other_shapes",
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_the_metadata_of_another_onnx_is_refused(sample_artifact: Path, told: OnnxMetadata, case: str) -> None:
    change, code = OTHERS[case]
    assert [one.code for one in verdict_on(sample_artifact, change(told)).refusals] == [code]


def test_slices_that_count_from_the_end_are_the_same_slices() -> None:
    onnx = OnnxMetadata(output_slices={"a": (0, 8), "pad": (8, 10)}, length=10, input_shapes={})
    same = Metadata(keys=("output_slices",), output_spans={"a": (None, -2), "pad": (-2, None)})
    assert list(judge_metadata(same, onnx)) == []
    other = Metadata(keys=("output_slices",), output_spans={"a": (None, -2), "pad": (-3, None)})
    assert [one.code for one in judge_metadata(other, onnx)] == ["other_slices"]


@pytest.mark.parametrize("spans", [None, {}, {"a": (0, 11), "pad": (8, 10)}])
def test_slices_that_are_none_or_leave_the_output_are_refused(spans: dict[str, tuple[int, int]] | None) -> None:
    onnx = OnnxMetadata(output_slices={"a": (0, 8), "pad": (8, 10)}, length=10, input_shapes={})
    found = judge_metadata(Metadata(keys=("output_slices",), output_spans=spans), onnx)
    assert [one.code for one in found] == ["other_slices"]


def test_what_neither_side_tells_is_not_judged() -> None:
    silent = OnnxMetadata(output_slices=None, length=None, input_shapes={})
    assert list(judge_metadata(Metadata(keys=("output_slices",)), silent)) == []
    assert list(judge_metadata(None, silent)) == []
    assert list(judge_metadata(Metadata(), None)) == []
