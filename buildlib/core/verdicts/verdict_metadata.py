"""Does an artifact's metadata tell of the ONNX that it was declared to be made from? Pure.

The runtime cuts the model's flat output by `output_slices` and lays out its inputs by `input_shapes`. Those of another
ONNX fit themselves: nothing else notices, and the car reads one quantity for another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from buildlib.core.sources.output_slices import BadSlices, resolve_spans
from buildlib.core.verdicts.findings import Finding, refuse
from buildlib.core.verdicts.inspection import Metadata

_REMEDY = (
    "was it compiled from this ONNX? Look for a file of another model that the compile script keeps; compile again"
)


class OnnxMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """What the declared ONNX says. output_slices: name -> (start, stop) in an output of `length` values.

    input_shapes: of the inputs whose sizes are all known numbers.
    """

    output_slices: Mapping[str, tuple[int, int]] | None
    length: int | None
    input_shapes: Mapping[str, tuple[int, ...]]


def judge_metadata(metadata: Metadata | None, onnx: OnnxMetadata | None) -> Iterator[Finding]:
    """Refuses what contradicts the ONNX; what either side does not tell is not judged here."""
    if metadata is None or onnx is None:
        return
    if "output_slices" in metadata.keys and onnx.output_slices is not None and onnx.length is not None:
        told = _resolved(metadata, onnx.length)
        wanted = dict(onnx.output_slices)
        if told != wanted:
            names = [name for name in {**wanted, **(told or {})} if (told or {}).get(name) != wanted.get(name)]
            yield refuse(
                "other_slices",
                "its output_slices are not those of its ONNX: the runtime would read one output for another",
                expected=_shown(wanted, names),
                found=_shown(told, names) if told else "no plain slices",
                guide="11",
                remedy=_REMEDY,
            )
    shapes = metadata.input_shapes or {}
    differ = [name for name, shape in onnx.input_shapes.items() if name in shapes and shapes[name] != shape]
    if differ:
        yield refuse(
            "other_shapes",
            "its input_shapes are not those of its ONNX",
            expected=", ".join(f"{name} {onnx.input_shapes[name]}" for name in differ[:3]),
            found=", ".join(f"{name} {shapes[name]}" for name in differ[:3]),
            guide="11",
            remedy=_REMEDY,
        )


def _resolved(metadata: Metadata, length: int) -> dict[str, tuple[int, int]] | None:
    try:
        return resolve_spans(dict(metadata.output_spans or {}), length)
    except BadSlices:
        return None


def _shown(slices: Mapping[str, tuple[int, int]], names: list[str]) -> str:
    parts = [f"{name} {slices[name][0]}:{slices[name][1]}" if name in slices else f"no {name}" for name in names[:3]]
    return ", ".join(parts) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
