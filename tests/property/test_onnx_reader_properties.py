"""Whatever bytes come, reading an ONNX ends in an inspection or a SourceError."""

from __future__ import annotations

import base64
import os
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildlib.artifact.onnx_reader import inspect_onnx
from buildlib.core.sources.model_form import check_source, guess_role
from buildlib.core.sources.output_slices import BadSlices, decode_output_slices, resolve_spans
from buildlib.errors import SourceError


def small_model() -> bytes:
    from onnx import helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((4, 4), dtype=np.float16), "w")
    nodes = [helper.make_node("MatMul", ["img", "w"], ["t"]), helper.make_node("Relu", ["t"], ["outputs"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("img", 10, (1, 4))], [value("outputs", 10, (1, 4))], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.metadata_props.add(key="output_slices", value=base64.b64encode(pickle.dumps({"a": slice(0, 4)})).decode())
    return bytes(model.SerializeToString())


MODEL = small_model()


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    content = bytearray(MODEL)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(content)))
        kind = draw(st.sampled_from(["flip", "insert", "delete", "cut"]))
        if kind == "flip" and at < len(content):
            content[at] = draw(st.integers(0, 255))
        elif kind == "insert":
            content[at:at] = draw(st.binary(max_size=8))
        elif kind == "delete":
            del content[at : at + draw(st.integers(1, 8))]
        elif kind == "cut":
            del content[max(at, 1) :]
    return bytes(content)


def read(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(content)
        before = set(os.listdir(folder))
        problem = None
        try:
            seen = inspect_onnx(path)
        except SourceError as error:
            problem = error
        else:
            texts = [problem.text() for problem in check_source(seen, "supercombo", "supercombo")]
            assert not any("\n" in text for text in texts)
            guess_role(seen)
        assert problem is None or "\n" not in problem.headline()
        assert set(os.listdir(folder)) == before


@settings(max_examples=150, deadline=None)
@given(mutated())
def test_a_mutated_onnx_gives_an_inspection_or_a_source_error(content: bytes) -> None:
    read(content)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(mutated())
def test_many_mutated_onnx_give_an_inspection_or_a_source_error(content: bytes) -> None:
    read(content)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_an_inspection_or_a_source_error(content: bytes) -> None:
    read(content)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_any_pickle_gives_spans_or_bad_slices(raw: bytes) -> None:
    try:
        spans = decode_output_slices(base64.b64encode(raw).decode())
    except BadSlices:
        return
    assert all(isinstance(name, str) for name in spans)


bounds = st.one_of(st.none(), st.integers(-50, 50))


@given(st.dictionaries(st.text(max_size=5), st.tuples(bounds, bounds), max_size=4), st.integers(1, 50))
def test_resolved_spans_lie_within_the_output(spans: dict[str, tuple[int | None, int | None]], length: int) -> None:
    try:
        resolved = resolve_spans(spans, length)
    except BadSlices:
        return
    for name, (start, stop) in resolved.items():
        assert 0 <= start <= stop <= length
        assert list(range(length))[slice(*spans[name])] == list(range(start, stop))
