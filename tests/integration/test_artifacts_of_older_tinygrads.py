"""Artifacts of tinygrad 0.12 and 0.13, really captured by them, are read like those of the pinned one.

Once from what was kept of such captures, and, slowly, from new ones.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import msgspec
import pytest

from buildlib.artifact.inspect_file import inspect_artifact
from buildlib.core.verdicts.contract import CAPTURED_CLASSES, KNOWN_GLOBALS
from buildlib.core.verdicts.inspection import Inspection
from buildlib.core.verdicts.verdict import Expectations, judge
from buildlib.device_scripts.agent.hashes import HashCache
from buildlib.device_scripts.agent.heard import heard
from tests.support.captured_jits import SPECS, make_jits
from tests.support.kept_captures import unpack
from tests.unit.agent.test_hashes import places

pytestmark = [pytest.mark.compile, pytest.mark.timeout(900)]

NAMES = ("good", "out_of_band", "frame_skip_2", "run_model", "compile3", "positional", "zero")


@pytest.fixture(
    scope="module",
    params=[
        *(pytest.param((version, "kept"), id=f"{version} kept") for version in ("0.12.0", "0.13.0")),
        *(
            pytest.param((version, "new"), id=f"{version} new", marks=pytest.mark.slow)
            for version in ("0.12.0", "0.13.0")
        ),
    ],
)
def older(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same jits, captured by an older tinygrad."""
    version, how = request.param
    if how == "kept":
        directory = tmp_path_factory.mktemp("kept")
        unpack(version, directory)
    else:
        directory = captured_by(version, request.getfixturevalue("kept"), request.getfixturevalue("cpu_environment"))
    return {name: directory / f"{name}.pkl" for name in NAMES}


def captured_by(version: str, kept: Path, cpu_environment: dict[str, str]) -> Path:
    """Where the jits lie that this tinygrad captured, in a venv of its own."""
    from tests.conftest import alone

    directory = kept / f"tinygrad-{version}"
    with alone(kept / f"tinygrad-{version}.lock"):
        python = directory / "venv" / "bin" / "python"
        if not (directory / "installed").exists():
            venv.create(directory / "venv", with_pip=True, clear=True)
            install = (str(python), "-m", "pip", "install", "-q", f"tinygrad=={version}", "numpy")
            done = subprocess.run(install, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"tinygrad {version} cannot be installed here: {done.stderr.splitlines()[-1]}")
            (directory / "installed").touch()
        home = directory / "home"
        home.mkdir(exist_ok=True)
        make_jits(directory, str(python), cpu_environment | {"HOME": str(home), "XDG_CACHE_HOME": str(home)}, NAMES)
    return directory


def _comparable(found: Inspection) -> Inspection:
    """Without what is rightly different: bytes, kernels and what they are made of."""
    jits = tuple(
        msgspec.structs.replace(jit, devices=dict.fromkeys(jit.devices), targets=(), places=(), kernels=0, programs=0)
        for jit in found.jits
    )
    return msgspec.structs.replace(
        found, size=0, jits=jits, devices=dict.fromkeys(found.devices), kernels=0, programs=0, globals=(), weights=(),
        targets=tuple(sorted({target.partition(":")[0] for target in found.targets})), payload=0, zero_payload=0,
        opcodes=0, places=(),
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_they_are_read_alike(older: dict[str, Path], jits: dict[str, Path], name: str) -> None:
    found = inspect_artifact(older[name])
    assert _comparable(found) == _comparable(inspect_artifact(jits[name]))
    assert found.kernels >= 1
    assert all(jit.kernels and jit.programs and jit.targets and jit.devices for jit in found.jits)
    assert set(found.globals) <= KNOWN_GLOBALS
    assert {one.payload for one in found.weights} >= {1024 * 6 * 64 * 2} or name == "run_model"


@pytest.mark.parametrize("name", NAMES)
def test_they_are_judged_alike(older: dict[str, Path], jits: dict[str, Path], name: str) -> None:
    contract = {"run_model": "run_model", "compile3": "compile3"}.get(name, "supercombo")
    for expected in ("CPU", "QCOM"):
        expectations = Expectations(expected_device=expected, contract=contract)
        old, new = judge(inspect_artifact(older[name]), expectations), judge(inspect_artifact(jits[name]), expectations)
        assert [one.code for one in old.findings] == [one.code for one in new.findings]


@pytest.mark.parametrize("name", NAMES)
def test_none_is_taken_for_one_of_the_pinned_tinygrad(
    older: dict[str, Path], jits: dict[str, Path], tmp_path: Path, name: str
) -> None:
    import tinygrad

    package = str(Path(tinygrad.__file__).parent)
    names = frozenset(heard(HashCache(places(tmp_path)), package, "pinned", sorted(CAPTURED_CLASSES)) or ())
    contract = {"run_model": "run_model", "compile3": "compile3"}.get(name, "supercombo")
    expectations = Expectations(expected_device="CPU", contract=contract, tinygrad_names=names)
    (finding,) = [
        one for one in judge(inspect_artifact(older[name]), expectations).refusals if one.code == "other_tinygrad"
    ]
    assert "tinygrad.dtype.PtrDType" in finding.found
    twin = judge(inspect_artifact(jits[name]), expectations)
    assert "other_tinygrad" not in [one.code for one in twin.refusals]
    unknown = msgspec.structs.replace(expectations, tinygrad_names=None)
    assert "other_tinygrad" not in [one.code for one in judge(inspect_artifact(older[name]), unknown).refusals]


def test_the_fixtures_are_of_different_versions(older: dict[str, Path], jits: dict[str, Path]) -> None:
    assert set(NAMES) <= set(SPECS)
    assert inspect_artifact(older["good"]).globals != inspect_artifact(jits["good"]).globals
    assert sys.version_info >= (3, 11)
