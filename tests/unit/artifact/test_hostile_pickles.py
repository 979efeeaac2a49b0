"""Files made to do harm: never executed, refused with the reader's own error, in bounded time and memory."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from buildlib.artifact.inspect_file import inspect_artifact
from buildlib.artifact.pickle_machine import Limits
from buildlib.artifact.refusals import Damaged, Forbidden, TooMuch, Truncated
from buildlib.core.verdicts.verdict import Expectations, judge
from buildlib.errors import ArtifactError

pytestmark = pytest.mark.timeout(60)

PROTO = b"\x80\x04"


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "a.pkl"
    path.write_bytes(content)
    return path


class Exploit:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return os.system, (f"touch '{self.path}'",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_call_of_os_system_is_not_made_and_refused(tmp_path: Path, protocol: int) -> None:
    proof = tmp_path / "executed"
    path = write(tmp_path, pickle.dumps({"run_policy": Exploit(proof), "frame_skip": 4}, protocol=protocol))
    found = inspect_artifact(path)
    verdict = judge(found, Expectations(expected_device="QCOM"))
    assert not proof.exists()
    assert any(one.endswith(".system") for one in found.globals)
    assert not verdict.good
    assert "unknown_global" in {one.code for one in verdict.refusals}
    pickle.loads(path.read_bytes())
    assert proof.exists(), "the exploit itself must work, or this test proves nothing"


@pytest.mark.parametrize("module", ["os", "posix", "nt", "subprocess", "builtins"])
def test_unknown_globals_are_reported_by_name(tmp_path: Path, module: str) -> None:
    name = "eval" if module == "builtins" else "system"
    path = write(tmp_path, PROTO + text(module) + text(name) + b"\x93" + text("1") + b"\x85R.")
    found = inspect_artifact(path)
    assert found.globals == (f"{module}.{name}",)
    verdict = judge(found, Expectations(expected_device="CPU"))
    assert {"unknown_global", "wrong_form"} <= {one.code for one in verdict.refusals}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"(S'id'\nios\nsystem\n.", "protocol 0 or 1"),
        (b"(ios\nsystem\n.", "INST"),
        (b"(cos\nsystem\nN" + b"o.", "OBJ"),
        (b"\x82\x01.", "EXT1"),
        (b"\x83\x01\x00.", "EXT2"),
        (b"\x84\x01\x00\x00\x00.", "EXT4"),
        (b"Pid\n.", "PERSID"),
        (b"NQ.", "BINPERSID"),
        (b"I1\n.", "protocol 0 or 1"),
        (b"N2.", "DUP"),
        (text("tinygrad.helpers") + text("os.system") + b"\x93.", "dotted global"),
        (b"ctinygrad.helpers\nsubprocess.run\n.", "dotted global"),
        (text("os\x1b[2J") + text("x") + b"\x93.", "no module can have"),
        (text("os") + text("x") + b"\x93)R)R.", "calls what a call returned"),
        (text("builtins") + text("bytearray") + b"\x93\x8a\x05\x00\xe4\x0b\x54\x02\x85R.", "bytearray"),
        (b"Nr\xff\xff\xff\xff.", "memo entry 4,294,967,295"),
        (b")N" + b"b.", "state is set on what is no object"),
    ],
)
def test_opcodes_that_no_capture_has_are_forbidden(tmp_path: Path, content: bytes, says: str) -> None:
    with pytest.raises(Forbidden) as caught:
        inspect_artifact(write(tmp_path, PROTO + content))
    assert says in caught.value.what
    assert "\x1b" not in caught.value.render()


@pytest.mark.parametrize(
    "content",
    [
        b"\x8e" + (10**10).to_bytes(8, "little") + b"x.",
        b"\x96" + (10**10).to_bytes(8, "little") + b"x.",
        b"\x8d" + (2**63).to_bytes(8, "little") + b"x.",
        b"B\xff\xff\xff\xffx.",
        b"X\xff\xff\xff\xffx.",
        b"\x95" + (10**10).to_bytes(8, "little") + b"N.",
        b"\x8c\x05ab",
        b"J\x01",
        b"j\x00",
        b"",
        b"N" * 100,
    ],
)
def test_lengths_that_lie_are_truncation(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(Truncated):
        inspect_artifact(write(tmp_path, PROTO + content))


@pytest.mark.parametrize(
    "content",
    [b".", b"NN.", b"(N.", b"N(.", b"\x85.", b"h\x00.", b"j\x00\x00\x00\x00.", b"t.", b"u.", b"e.", b"s.", b"R.", b"b.",
     b"\x94.", b"(NNNu.", b"}(Nu.", b"Na.", b"NNNs.", b"\x97.", b"\xff.", b"NN\x93.", b"\x8c\x01\xffN.", b"cos", b"0.",
     b"](N\x90."],
)  # fmt: skip
def test_malformed_pickles_are_damage(tmp_path: Path, content: bytes) -> None:
    with pytest.raises((Damaged, Truncated)):
        inspect_artifact(write(tmp_path, PROTO + content))


def test_an_integer_of_a_megabyte_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(TooMuch):
        inspect_artifact(write(tmp_path, PROTO + b"\x8b" + (10**6).to_bytes(4, "little") + bytes(10**6) + b"."))


def names(count: int) -> bytes:
    return b"".join(text("m") + text(f"n{number}") + b"\x930" for number in range(count)) + b"N."


HELD = b"N" * 519 + b"tt."
"""Up to the 1,024th opcode, where the stack is looked at, and to the end."""


@pytest.mark.parametrize(
    ("limits", "most", "more"),
    [
        (Limits(opcodes=4), b"N\x85.", b"N\x85\x85."),
        (Limits(depth=3), b"(((ttt.", b"((((tttt."),
        (Limits(depth=1), b"(0(1N.", b"((00N."),
        (Limits(integer=2), b"\x8a\x02\x00\x01.", b"\x8a\x03\x00\x00\x01."),
        (Limits(text=6), text("abc") + text("def") + b"\x86.", text("abc") + text("defg") + b"\x86."),
        (Limits(text=6), b"C\x03abcC\x03def\x86.", b"C\x03abcC\x04defg\x86."),
        (Limits(text=6, keep=3), text("abc") + text("longer") + b"\x86.", text("abc") + text("def") + b"C\x01a\x87."),
        (Limits(globals=2), names(2)[:-2] + names(2), names(3)),
        # What a closed mark had under it counts once, whichever opcode closes it.
        (Limits(stack=1020), b"(" + b"N" * 500 + b"((t" + HELD, b"(" + b"N" * 502 + b"(" + HELD),
        (Limits(stack=1020), b"(" + b"N" * 500 + b"((l" + HELD, b"(" + b"N" * 502 + b"(" + HELD),
    ],
)  # fmt: skip
def test_each_limit_lets_through_what_it_says_and_nothing_more(
    tmp_path: Path, limits: Limits, most: bytes, more: bytes
) -> None:
    assert inspect_artifact(write(tmp_path, PROTO + most), limits=limits).form == "other"
    with pytest.raises(TooMuch):
        inspect_artifact(write(tmp_path, PROTO + more), limits=limits)


BOMBS = {
    "marks": b"(" * 5_000_000,
    "lists": b"]" * 5_000_000,
    "memo": b"]\x940" * 3_000_000,
    "nested tuples": b"N" + b"\x85" * 5_000_000 + b".",
    "nested lists": b"]" * 150_000 + b"a" * 149_999 + b".",
    "billion laughs": b"]\x94" + b"".join(b"(" + b"h\x00" * 9 + b"l\x940" for _ in range(100)) + b"h\x00.",
    "laughs as keys": PROTO[:0] + b"N\x94" + b"h\x00h\x00\x86\x94" * 60 + b"}\x94h\x00Ns.",
    "growing tuples": b"N\x940" + b"(h\x00" + b"h\x00" * 3000 + b"t0" * 1 + b"(" * 1 + b"h\x00" * 400_000 + b"t.",
    "appends to itself": b"]\x94" + b"(h\x00h\x00h\x00e" * 300_000 + b".",
    "strings": (b"\x8d" + (4000).to_bytes(8, "little") + b"a" * 4000 + b"0") * 5000 + b"N.",
    "globals": b"".join(text("m") + text(f"n{number}") + b"\x930" for number in range(100_000)) + b"N.",
    "dicts": b"}\x940" * 600_000 + b"N.",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_bombs_end_in_bounded_memory(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, PROTO + BOMBS[name])
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tests.support.memory import peak\n"
        "from buildlib.artifact.inspect_file import inspect_artifact\n"
        "from buildlib.errors import ArtifactError\n"
        "try: print(inspect_artifact(Path(sys.argv[1])).form)\n"
        "except ArtifactError as error: print(type(error).__name__)\n"
        "print(peak())\n"
    )
    done = subprocess.run(
        (sys.executable, "-c", code, str(path)), capture_output=True, text=True, check=False, timeout=50
    )
    assert done.returncode == 0, done.stderr[-2000:]
    ending, peak = done.stdout.split()
    assert ending in ("TooMuch", "Damaged", "Truncated", "Forbidden", "other")
    assert int(peak) < 350_000_000


def test_deep_structures_can_be_walked_and_freed(tmp_path: Path) -> None:
    deep = b"N" + b"\x85" * 1_000_000
    path = write(tmp_path, PROTO + b"}" + text("metadata") + deep + b"s.")
    assert inspect_artifact(path).form == "other"


def test_a_sparse_file_of_ten_gigabytes_is_refused_quickly(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    with path.open("wb") as file:
        file.write(PROTO + b"\x8e" + (10 * 2**30).to_bytes(8, "little"))
        try:
            file.truncate(10 * 2**30)
        except OSError:
            pytest.skip("no sparse files here")
    with pytest.raises(Truncated):
        inspect_artifact(path)


def test_an_out_of_band_file_of_ten_million_empty_buffers_is_refused(tmp_path: Path) -> None:
    inner = PROTO + b"N."
    path = write(tmp_path, len(inner).to_bytes(8, "little") + inner + bytes(8 * 1_000_000))
    with pytest.raises(TooMuch):
        inspect_artifact(path)


def test_control_characters_in_a_file_never_reach_the_terminal(tmp_path: Path) -> None:
    from buildlib.artifact.describe import describe_inspection

    key = "\x1b]0;owned\x07" * 3
    path = write(tmp_path, PROTO + b"}" + text(key) + b"Ns.")
    found = inspect_artifact(path)
    assert "\x1b" not in "\n".join(describe_inspection(found, verbose=True))


def test_every_refusal_is_an_artifact_error_with_a_remedy(tmp_path: Path) -> None:
    for content in (b"\x82\x01.", b".", b"\x8c\x05ab", b"(" * 20_000):
        with pytest.raises(ArtifactError) as caught:
            inspect_artifact(write(tmp_path, PROTO + content))
        assert caught.value.remedy
        assert caught.value.where == "a.pkl"
