from __future__ import annotations

import base64
import hashlib
import pickle
from pathlib import Path

import pytest

from buildlib.errors import SourceError, StoreError
from buildlib.sources.sample import INPUTS, LARGEST, SMALLEST, output_slices, write_sample


def test_a_recipe_names_its_bytes(tmp_path: Path) -> None:
    """If this digest moves, raise RECIPE: receipts name samples by their recipe."""
    write_sample(tmp_path / "a.onnx", 1, 8)
    digest = hashlib.sha256((tmp_path / "a.onnx").read_bytes()).hexdigest()
    assert digest == "dea5ebe69b393917eed141661db2b5c47ba60b05b4a6a443212a23831205c6cf"


def test_another_seed_or_width_is_another_model(tmp_path: Path) -> None:
    recipes = [(1, 8), (2, 8), (1, 9)]
    for seed, width in recipes:
        write_sample(tmp_path / f"{seed}-{width}.onnx", seed, width)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == len(recipes)


def test_width_64_is_about_3_megabytes(sample_onnx: Path) -> None:
    assert 2e6 < sample_onnx.stat().st_size < 4e6


@pytest.mark.slow
def test_width_1800_is_about_100_megabytes(tmp_path: Path) -> None:
    write_sample(tmp_path / "big.onnx", 1, 1800)
    assert 95e6 < (tmp_path / "big.onnx").stat().st_size < 105e6


def test_inputs_and_outputs_are_a_real_supercombos(sample_onnx: Path) -> None:
    import onnx

    model = onnx.load(str(sample_onnx))
    found = {}
    for value in model.graph.input:
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        found[value.name] = (kind.name, tuple(size.dim_value for size in value.type.tensor_type.shape.dim))
    assert found == INPUTS
    assert [value.name for value in model.graph.output] == ["outputs"]
    properties = {pair.key: pair.value for pair in model.metadata_props}
    slices = pickle.loads(base64.b64decode(properties["output_slices"]))
    assert slices == output_slices()
    for name, size in (("pose", 12), ("wide_from_device_euler", 6), ("road_transform", 12), ("hidden_state", 512)):
        assert slices[name].stop - slices[name].start == size
    for name, size in (("pose_stds", 6), ("wide_from_device_euler_stds", 3), ("road_transform_stds", 6)):
        assert slices[name].stop - slices[name].start == size


def test_outputs_are_finite_and_deviations_positive_by_onnxs_own_interpreter(tmp_path: Path) -> None:
    import numpy as np
    from onnx.reference import ReferenceEvaluator

    write_sample(tmp_path / "a.onnx", 3, 16)
    random = np.random.default_rng(0)
    inputs = {
        name: random.integers(0, 256, shape).astype(kind) if kind == "uint8" else random.standard_normal(shape)
        for name, (kind, shape) in INPUTS.items()
    }
    inputs = {name: value.astype(INPUTS[name][0]) for name, value in inputs.items()}
    (outputs,) = ReferenceEvaluator(str(tmp_path / "a.onnx")).run(None, inputs)
    assert np.isfinite(outputs).all()
    for name in ("pose", "wide_from_device_euler", "road_transform"):
        part, stds = output_slices()[name], outputs[0, output_slices()[f"{name}_stds"]]
        logs = outputs[0, part.start + stds.size : part.stop]
        assert (stds > 1e-3).all()
        np.testing.assert_allclose(stds, np.exp(logs), rtol=1e-6)


@pytest.mark.parametrize("width", [-1, 0, 7, 4097])
def test_a_width_out_of_range_is_refused_and_nothing_is_written(tmp_path: Path, width: int) -> None:
    with pytest.raises(SourceError, match="8 to 4096"):
        write_sample(tmp_path / "a.onnx", 1, width)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="file"):
        write_sample(tmp_path / "file" / "a.onnx", 1, 8)


def test_models_yaml_takes_the_widths_that_can_be_made() -> None:
    """What it took beyond them failed in the build, without a line."""
    from buildlib.core.declaration.catalog_parser import parse_catalog
    from buildlib.errors import CatalogError

    def declared(width: int) -> str:
        source = f"{{ kind: sample, seed: 1, width: {width} }}"
        return f"models:\n  one: {{ source: {source}, artifact: one.pkl }}\n"

    for width in (SMALLEST, LARGEST):
        parse_catalog(declared(width), path="models.yaml", environ={})
    for width in (SMALLEST - 1, LARGEST + 1):
        with pytest.raises(CatalogError, match=r"models\.yaml:2: .*width: expected a whole number from 8 to 4096"):
            parse_catalog(declared(width), path="models.yaml", environ={})
