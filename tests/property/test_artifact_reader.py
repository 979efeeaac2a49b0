"""Whatever is done to a real artifact, reading it gives an Inspection or an ArtifactError, and never hangs."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from buildlib.artifact.describe import as_json, describe_inspection, describe_verdict
from buildlib.artifact.examine import examine
from buildlib.artifact.inspect_file import inspect_artifact
from buildlib.core.verdicts.contract import CONTRACTS
from buildlib.core.verdicts.verdict import Expectations
from buildlib.errors import ArtifactError
from tests.support.rewriting import opcodes

FORMS = ("good", "out_of_band", "run_model", "compile3")
few = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
many = settings(few, max_examples=3000)


@pytest.fixture(scope="module")
def small(jits: dict[str, Path]) -> dict[str, bytes]:
    """Artifacts without their big payloads, so that mutations hit what is read and not what is skipped."""
    found = {}
    for name in FORMS:
        data = jits[name].read_bytes()
        if name != "out_of_band":
            data = b"".join(_shrunk(*one) for one in opcodes(data))
        found[name] = data
    return found


def _shrunk(name: str, argument: object, raw: bytes) -> bytes:
    return b"C\x04\0\0\0\0" if name in ("BINBYTES", "BINBYTES8") and len(raw) > 200 else raw


mutations = st.lists(
    st.tuples(
        st.sampled_from(("set", "insert", "delete", "copy", "cut")),
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 255),
        st.integers(1, 40),
    ),
    min_size=1,
    max_size=8,
)


def mutate(data: bytes, changes: list[tuple[str, float, int, int]]) -> bytes:
    changed = bytearray(data)
    for kind, where, value, length in changes:
        at = int(where * len(changed))
        if kind == "set" and changed:
            changed[at] = value
        elif kind == "insert":
            changed[at:at] = bytes([value])
        elif kind == "delete":
            del changed[at : at + length]
        elif kind == "copy":
            source = value * len(changed) // 256
            changed[at:at] = changed[source : source + length]
        elif kind == "cut" and len(changed) > 100 and value < 16:
            del changed[at:]
    return bytes(changed)


def check(path: Path) -> None:
    refused: ArtifactError | None = None
    try:
        found = inspect_artifact(path)
    except ArtifactError as error:
        refused = error
    if refused:
        assert refused.remedy
        assert all(line.isprintable() for line in refused.render().split("\n"))
        return
    msgspec.json.encode(found)
    "\n".join(describe_inspection(found, verbose=True)).encode()
    for contract in CONTRACTS:
        again, verdict = examine(path, Expectations(expected_device="QCOM", contract=contract, onnx_bytes=10**6))
        assert again == found
        msgspec.json.encode(as_json(again, verdict))
        "\n".join(describe_verdict(verdict)).encode()


@pytest.mark.compile
@pytest.mark.parametrize("form", FORMS)
@few
@given(changes=mutations)
def test_mutated_artifacts_are_read_or_refused(
    small: dict[str, bytes], tmp_path: Path, form: str, changes: list[tuple[str, float, int, int]]
) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(mutate(small[form], changes))
    check(path)


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("form", FORMS)
@many
@given(changes=mutations)
def test_many_mutated_artifacts_are_read_or_refused(
    small: dict[str, bytes], tmp_path: Path, form: str, changes: list[tuple[str, float, int, int]]
) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(mutate(small[form], changes))
    check(path)


@few
@given(tail=st.binary(max_size=200), protocol=st.integers(0, 6))
def test_random_bytes_are_read_or_refused(tmp_path: Path, tail: bytes, protocol: int) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(b"\x80" + bytes([protocol]) + tail)
    check(path)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**200), 2**200) | st.floats() | st.text(max_size=9) | st.binary(),
    lambda below: (
        st.lists(below, max_size=4)
        | st.tuples(below, below)
        | st.dictionaries(st.text(max_size=5) | st.integers(), below, max_size=4)
        | st.frozensets(st.integers() | st.text(max_size=3), max_size=3)
    ),
    max_leaves=30,
)


@few
@given(value=plain, protocol=st.integers(2, 5))
def test_every_plain_pickle_is_read_to_its_end(tmp_path: Path, value: object, protocol: int) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    found = inspect_artifact(path)
    assert (found.form, found.trailing, found.jits) == ("other", 0, ())
