"""Whatever is done to a real artifact, reading it gives an Inspection or an ArtifactError, and never hangs."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from buildlib.artifact.byte_source import ByteSource
from buildlib.artifact.describe import as_json, describe_inspection, describe_verdict
from buildlib.artifact.examine import examine
from buildlib.artifact.inspect_file import inspect_artifact
from buildlib.artifact.pickle_reader import PickleReader
from buildlib.artifact.values import Dict, Made, Payload, Set
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
        | below.map(lambda shared: [shared, (shared,), (1, 2, shared), shared, bytearray(b"own bytes")])
    ),
    max_leaves=30,
)
# Lengths of more than one byte, and memo entries beyond 255.
WIDE = ["a" * 300, b"b" * 300, 70_000, 300, [str(number) for number in range(300)] * 2, set(range(9)), "c" * 5000]
ESCAPES = {"_codecs.encode": lambda text, _: text.encode("latin-1"), "bytes": bytes, "bytearray": bytes}


def as_python(value: object, source: ByteSource) -> object:
    """What the reader made, as the Python values that it stands for: dicts as pairs, sets as lists."""
    if isinstance(value, tuple):
        return tuple(as_python(one, source) for one in value)
    if isinstance(value, list):
        return [as_python(one, source) for one in value]
    if isinstance(value, Dict):
        return {"dict": [as_python(pair, source) for pair in value.items]}
    if isinstance(value, Set):
        return {"set": [as_python(one, source) for one in value.items]}
    if isinstance(value, Payload):
        found = source.read_at(value.offset, value.length)
        return found.decode() if value.text else found
    if isinstance(value, Made):
        args = [as_python(one, source) for one in value.args]
        name = value.name.removeprefix("__builtin__.").removeprefix("builtins.")
        return {"set": args[0]} if name in ("set", "frozenset") else ESCAPES[name](*args)
    return value


def comparable(value: object) -> object:
    """The same form of a Python value."""
    if isinstance(value, tuple):
        return tuple(comparable(one) for one in value)
    if isinstance(value, list):
        return [comparable(one) for one in value]
    if isinstance(value, dict):
        return {"dict": [comparable(pair) for pair in value.items()]}
    if isinstance(value, set | frozenset):
        return {"set": [comparable(one) for one in value]}
    return bytes(value) if isinstance(value, bytearray) else value


def read(path: Path) -> str:
    with ByteSource(path) as source:
        return repr(as_python(PickleReader(source, 0, source.size).read(), source))


@few
@given(value=plain, protocol=st.integers(2, 5))
@example(value=WIDE, protocol=2)
@example(value=WIDE, protocol=3)
@example(value=WIDE, protocol=4)
@example(value=WIDE, protocol=5)
def test_every_plain_pickle_is_read_as_what_unpickling_makes_of_it(
    tmp_path: Path, value: object, protocol: int
) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    found = inspect_artifact(path)
    assert (found.form, found.trailing, found.jits, found.protocol) == ("other", 0, (), protocol)
    assert read(path) == repr(comparable(value))


@pytest.mark.parametrize(
    "content",
    [b"(K\x01K\x02d.", b"(K\x01K\x02l.", b"(K\x01K\x02\x91.", b"K\x01(K\x021.", b"(0K\x01.", b"K\x01K\x020.",
     b"K\x01q\x000K\x02q\x010K\x03q\x000h\x01h\x00\x86.", b"\x8b\x02\x00\x00\x00\x00\x80.", b"cbuiltins\nset\n]\x85R."],
)  # fmt: skip
def test_opcodes_that_no_pickler_writes_are_read_as_unpickling_reads_them(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(b"\x80\x04" + content)
    assert read(path) == repr(comparable(pickle.loads(path.read_bytes())))
