"""ONNX files that people pick by mistake, told by the names of their inputs.

Kept as data: the inputs of what the PyPI packages silero-vad 6, magika 1 and rapidocr-onnxruntime 1.4 ship, and of the
most common exports of other models.
"""

from __future__ import annotations

from buildlib.core.sources.onnx_inspection import OnnxInspection

_BY_INPUTS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"input", "state", "sr"}), "silero-vad (finds speech in audio)"),
    (frozenset({"input", "state"}), "silero-vad (finds speech in audio)"),
    (frozenset({"input", "h", "c"}), "silero-vad (finds speech in audio)"),
    (frozenset({"input", "h", "c", "sr"}), "silero-vad (finds speech in audio)"),
    (frozenset({"bytes"}), "magika (tells file types apart)"),
    (frozenset({"input_ids", "attention_mask"}), "a language model"),
    (frozenset({"input_ids", "attention_mask", "token_type_ids"}), "a language model"),
    (frozenset({"pixel_values"}), "an image model"),
    (frozenset({"images"}), "an object detector (YOLO)"),
)


def foreign_name(inspection: OnnxInspection) -> str | None:
    """Which other model this is, with what it does; None where unknown."""
    names = frozenset(spec.name for spec in inspection.inputs)
    paddle = "paddle" in f"{inspection.producer} {inspection.graph}".lower()
    if names == {"x"} and (paddle or "character" in inspection.metadata):
        return "rapidocr, a PaddleOCR model (reads text in pictures)"
    return next((name for inputs, name in _BY_INPUTS if names == inputs), None)
