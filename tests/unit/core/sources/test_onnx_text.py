"""What `doit inspect FILE.onnx` shows."""

from __future__ import annotations

from buildlib.core.sources.model_form import Problem, check_source
from buildlib.core.sources.onnx_text import describe_onnx

from .test_model_form import IMAGES, SUPERCOMBO, inspection


def test_a_supercombo_is_described_with_its_expected_size() -> None:
    seen = inspection(
        SUPERCOMBO,
        file_bytes=118_000_000,
        weight_bytes=117_800_000,
        weight_dtypes={"float16": 117_800_000},
        operators={"Conv": 3, "Relu": 2},
        metadata={"model_checkpoint": "abc/200", "blob": "a\nb"},
    )
    text = "\n".join(describe_onnx(seen, check_source(seen, "supercombo", "supercombo")))
    assert "ONNX, 118.0 MB, a supercombo" in text
    assert "  inputs     img  uint8 (1, 12, 128, 256)\n             big_img" in text
    assert "pose 0:6" in text
    assert "Conv 3, Relu 2" in text
    assert "model_checkpoint  abc/200" in text
    assert "about 119.0 MB for QCOM with 2 cameras" in text
    assert "blob" not in text
    assert "BAD" not in text


def test_problems_come_with_what_to_try() -> None:
    seen = inspection(IMAGES)
    lines = describe_onnx(seen, check_source(seen, "supercombo", "supercombo"))
    assert any(line.startswith("BAD   this is the vision part") for line in lines)
    assert any("try: set kind:" in line for line in lines)
    assert describe_onnx(seen, [Problem(severity="note", what="odd")])[-1] == "note  odd"
