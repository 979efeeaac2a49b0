"""Split models compiled for the CPU: what stock's runtimes call, bit-equal after a replay, and each fault said."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from buildlib.core.sources.model_form import ROLES, check_source, role_form
from buildlib.core.verdicts.contract import CONTRACTS
from buildlib.sources import sample

pytestmark = pytest.mark.compile

SCRIPT = Path(sample.__file__).parent.parent / "device_scripts" / "compile_split.py"
PARTS = ("vision", "policy", "on_policy", "off_policy")
Split = Callable[..., subprocess.CompletedProcess[str]]


# A runtime of its own: knows the contract, knows nothing of the compile script.
RUNTIME = """
import json, pickle, sys
import numpy as np
from tinygrad import Tensor

root = pickle.load(open(sys.argv[1], "rb"))
jits = {role: root[role] for role in root if role != "metadata"} if isinstance(root, dict) else {sys.argv[2]: root}
answers = {}
for role, jit in jits.items():
    for step in range(2):
        random = np.random.default_rng(step)
        if role == "vision":
            shape = (1, 12, 128, 256)
            image = lambda: Tensor(random.integers(0, 256, shape, dtype=np.uint8), device="CPU").contiguous().realize()
            inputs = {"img": image(), "big_img": image()}
        else:
            shapes = {"desire_pulse": (1, 25, 8), "features_buffer": (1, 25, 512), "traffic_convention": (1, 2)}
            inputs = {name: random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
            inputs = {name: Tensor(value, device="NPY").realize() for name, value in inputs.items()}
        out = jit(**inputs).numpy()
        assert out.dtype == np.float32 and np.isfinite(out).all()
        answers[f"{role} {step}"] = [list(out.shape), out.tobytes().hex()]
print(json.dumps(answers))
"""


def answers_of(artifact: Path, role: str, environment: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-c", RUNTIME, str(artifact), role]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_the_script_and_the_build_ask_for_the_same_inputs(cpu_environment: dict[str, str]) -> None:
    code = (
        "import json; from supercombo_build_compile import split_inputs as s\n"
        "forms = {r: {n: list(form[1]) for n, form in s.role_form(r, (512, 256)).items()} for r in s.ROLES}\n"
        "print(json.dumps([s.ROLE_SETS, forms]))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=cpu_environment, cwd=SCRIPT.parent, capture_output=True, check=True)
    sets, forms = json.loads(done.stdout)
    assert [tuple(roles) for roles in sets] == [roles for kind, roles in ROLES.items() if kind != "supercombo"]
    assert forms == {role: {name: list(form.shape) for name, form in role_form(role).inputs.items()} for role in PARTS}


@pytest.mark.parametrize("kind", ["vision_policy", "vision_multi_policy"])
def test_every_sample_part_is_one_that_the_build_takes(split_parts: dict[str, Path], kind: Any) -> None:
    from buildlib.artifact.onnx_reader import inspect_onnx

    for role in ROLES[kind]:
        assert check_source(inspect_onnx(split_parts[role], where=role), kind, role) == []
    assert len({path.read_bytes() for path in split_parts.values()}) == 4


@pytest.mark.parametrize("role", ["vision", "policy"])
def test_one_role_gives_a_bare_jit_that_its_contract_accepts(
    run_split: Split, split_parts: dict[str, Path], cpu_environment: dict[str, str], tmp_path: Path, role: str
) -> None:
    from buildlib.artifact.examine import examine
    from buildlib.core.verdicts.verdict import Expectations

    output, about = tmp_path / "a b.pkl", tmp_path / "metadata.pkl"
    done = run_split(f"--metadata-output={about}", onnx={role: split_parts[role]}, output=output)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"Saved JITs to {output} ({output.stat().st_size / 1e6:.2f} MB)"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a b.pkl", "metadata.pkl"]
    metadata = pickle.loads(about.read_bytes())
    assert metadata["output_slices"] == sample.output_slices(role)
    assert metadata["input_shapes"] == {name: shape for name, (_, shape) in sample.ROLE_INPUTS[role].items()}

    inputs = tuple(sample.ROLE_INPUTS[role])
    contract = f"split_{role}"
    assert contract in CONTRACTS
    expected = Expectations(contract=contract, expected_device="CPU", onnx_inputs=inputs, onnx_bytes=None)
    inspection, verdict = examine(output, expected)
    assert inspection is not None
    assert [finding for finding in verdict.findings if finding.code != "tiny"] == []

    first = answers_of(output, role, cpu_environment)
    assert first == answers_of(output, role, cpu_environment | {"PYTHONHASHSEED": "7"})
    assert first[f"{role} 0"] != first[f"{role} 1"]
    (shape,) = metadata["output_shapes"].values()
    assert first[f"{role} 0"][0] == list(shape)


def test_all_roles_give_one_artifact_with_its_metadata(split_artifact: Path, cpu_environment: dict[str, str]) -> None:
    code = "import pickle,sys; r=pickle.load(open(sys.argv[1],'rb')); print(list(r)); print(list(r['metadata']))"
    command = [sys.executable, "-c", code, str(split_artifact)]
    told = subprocess.run(command, env=cpu_environment, capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [
        "['metadata', 'vision', 'on_policy', 'off_policy']",
        "['vision', 'on_policy', 'off_policy']",
    ]
    answers = answers_of(split_artifact, "", cpu_environment)
    assert len({text for _, text in answers.values()}) == 6


def test_its_contract_accepts_it_and_the_other_kinds_does_not(split_artifact: Path) -> None:
    from buildlib.artifact.examine import examine
    from buildlib.core.verdicts.verdict import Expectations

    _, verdict = examine(split_artifact, Expectations(contract="vision_multi_policy", expected_device="CPU"))
    assert [finding for finding in verdict.findings if finding.code != "tiny"] == []
    for contract, code in (("vision_policy", "root_key_missing"), ("supercombo", "root_key_missing")):
        _, verdict = examine(split_artifact, Expectations(contract=contract, expected_device="CPU"))
        assert code in [finding.code for finding in verdict.refusals]
    _, verdict = examine(split_artifact, Expectations(contract="vision_multi_policy", expected_device="QCOM"))
    assert not verdict.good


@pytest.mark.slow
def test_cold_caches_and_another_hash_seed_give_the_same_bytes(
    split_artifact: Path, run_split: Split, split_parts: dict[str, Path], tmp_path: Path
) -> None:
    cold = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONHASHSEED": "5"}
    done = run_split(
        onnx={role: split_parts[role] for role in ROLES["vision_multi_policy"]}, output=tmp_path / "two.pkl", **cold
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "two.pkl").read_bytes() == split_artifact.read_bytes()


def test_a_part_under_another_parts_role_is_refused_with_every_input_named(
    run_split: Split, split_parts: dict[str, Path], tmp_path: Path
) -> None:
    done = run_split(onnx={"policy": split_parts["vision"]}, output=tmp_path / "o.pkl")
    assert done.returncode == 11
    for name in ("desire_pulse", "features_buffer", "traffic_convention"):
        assert f"error: policy: input {name} is missing" in done.stderr
    assert list(tmp_path.iterdir()) == []


def spoiled(source: Path, into: Path, change: Callable[[Any], None]) -> Path:
    import onnx

    model = onnx.load(str(source))
    change(model)
    onnx.save(model, str(into))
    return into


def cut_off(model: Any) -> None:
    """The weights that see the traffic convention become zeros: it counts no more."""
    from onnx import numpy_helper

    (weight,) = (one for one in model.graph.initializer if one.name == "trunk.weight")
    values = numpy_helper.to_array(weight).copy()
    values[:, -2:] = 0
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))


def poison(model: Any) -> None:
    from onnx import numpy_helper

    (bias,) = (one for one in model.graph.initializer if one.name == "head.plan.bias")
    values = numpy_helper.to_array(bias).copy()
    values[7] = float("nan")
    bias.CopyFrom(numpy_helper.from_array(values, bias.name))


def lose_metadata(model: Any) -> None:
    del model.metadata_props[:]


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        (cut_off, 23, "policy: the output is the same for another traffic_convention"),
        (poison, 20, "policy run directly: out0: expected finite numbers, got 1 NaN"),
        (lose_metadata, 12, "the ONNX has no metadata property output_slices"),
    ],
)
def test_each_fault_is_said_and_leaves_nothing(
    run_split: Split,
    split_parts: dict[str, Path],
    tmp_path: Path,
    change: Callable[[Any], None],
    status: int,
    says: str,
) -> None:
    onnx = spoiled(split_parts["policy"], tmp_path / "m.onnx", change)
    done = run_split(f"--metadata-output={tmp_path / 'm.pkl'}", onnx={"policy": onnx}, output=tmp_path / "o.pkl")
    assert done.returncode == status, done.stderr
    assert says in done.stderr.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_another_device_than_expected_is_refused(
    run_split: Split, split_parts: dict[str, Path], tmp_path: Path
) -> None:
    done = run_split("--expected-device=QCOM", onnx={"policy": split_parts["policy"]}, output=tmp_path / "o.pkl")
    assert done.returncode == 25
    assert "policy was captured on CPU: expected QCOM" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("roles", [("vision", "on_policy"), ("policy", "policy"), ("vision", "policy", "off_policy")])
def test_half_a_model_is_a_usage_error(cpu_environment: dict[str, str], tmp_path: Path, roles: tuple[str, ...]) -> None:
    command = [sys.executable, str(SCRIPT), f"--output={tmp_path / 'o.pkl'}", "--onnx", *(f"{one}=x" for one in roles)]
    done = subprocess.run(command, env=cpu_environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "expected one role, or vision, policy or vision, on_policy, off_policy" in done.stderr
