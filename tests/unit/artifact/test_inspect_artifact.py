"""What a static reading finds in real captured jits of every form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from buildlib.artifact.inspect_file import inspect_artifact
from buildlib.artifact.refusals import Damaged, NotAnArtifact, Truncated
from buildlib.core.verdicts.contract import KNOWN_GLOBALS
from buildlib.core.verdicts.inspection import Inspection, JitInput
from buildlib.errors import ArtifactError
from tests.support.rewriting import opcodes

pytestmark = pytest.mark.compile


def test_reads_keys_cameras_and_frame_skip_of_a_supercombo(jits: dict[str, Path]) -> None:
    found = inspect_artifact(jits["good"])
    assert (found.form, found.container, found.chunks) == ("dict", "pickle", 1)
    assert found.root_keys == ("metadata", "frame_skip", "run_policy", "1344x760", "1928x1208")
    assert [jit.key for jit in found.jits] == ["run_policy", "1344x760", "1928x1208"]
    assert found.cameras == ((1344, 760), (1928, 1208))
    assert found.frame_skip == 4
    assert found.frame_bytes == {"1344x760": 2_428_928, "1928x1208": 4_804_608}
    assert found.queue_depths == {"img_q": 5, "big_img_q": 5, "feat_q": 96, "desire_q": 100}
    assert (found.trailing, found.oddities) == (0, ())
    assert found.size == jits["good"].stat().st_size


def test_reads_names_shapes_dtypes_and_devices_of_the_inputs(jits: dict[str, Path]) -> None:
    found = inspect_artifact(jits["good"])
    policy, warp = found.jit("run_policy"), found.jit("1344x760")
    assert policy is not None
    assert warp is not None
    assert policy.names == ("big_img_q", "desire_q", "feat_q", "img_q", "packed_npy_inputs", "warped")
    assert warp.names == ("big_frame", "big_tfm", "frame", "tfm")
    assert policy.input("img_q") == JitInput(name="img_q", shape=(5, 6, 128, 256), dtype="uint8", device="CPU")
    assert policy.input("packed_npy_inputs") == JitInput(
        name="packed_npy_inputs", shape=(524,), dtype="float32", device="NPY"
    )
    assert warp.input("frame") == JitInput(name="frame", shape=(2_428_928,), dtype="uint8", device="CPU")
    assert warp.input("big_tfm") == JitInput(name="big_tfm", shape=(3, 3), dtype="float32", device="NPY")


def test_reads_devices_programs_and_payloads(jits: dict[str, Path]) -> None:
    found = inspect_artifact(jits["good"])
    assert set(found.devices) == {"CPU"}
    assert {target.partition(":")[0] for target in found.targets} == {"CPU"}
    assert found.kernels == sum(jit.kernels for jit in found.jits)
    assert all(jit.kernels >= 1 for jit in found.jits)
    assert found.payload == sum(one.payload for one in found.devices.values())
    assert 1024 * 6 * 64 * 2 in {one.payload for one in found.weights}
    assert set(found.globals) <= KNOWN_GLOBALS


def test_reads_the_safe_part_of_the_metadata(jits: dict[str, Path]) -> None:
    metadata = inspect_artifact(jits["good"]).metadata
    assert metadata is not None
    assert metadata.model_checkpoint == "synthetic/0"
    assert metadata.output_slices == {"plan": (0, 64), "hidden_state": (64, 96), "pose": (0, 12)}
    assert metadata.input_shapes is not None
    assert metadata.input_shapes["features_buffer"] == (1, 24, 512)
    assert "scale" in metadata.keys


def test_reads_the_out_of_band_form_like_the_plain_one(jits: dict[str, Path]) -> None:
    plain, apart = inspect_artifact(jits["good"]), inspect_artifact(jits["out_of_band"])
    assert apart.container == "out-of-band"
    assert apart.payload == plain.payload
    assert _without_file(apart) == _without_file(plain)


def _without_file(found: Inspection) -> object:
    return msgspec.structs.replace(
        found, name="", size=0, container="pickle", protocol=0, globals=(), weights=(), zero_payload=0, opcodes=0
    )


def test_reads_stocks_run_model(jits: dict[str, Path]) -> None:
    found = inspect_artifact(jits["run_model"])
    assert found.root_keys == ("metadata", "input_devices", "run_model")
    assert [jit.key for jit in found.jits] == ["run_model/1344x760", "run_model/1928x1208"]
    assert found.cameras == ((1344, 760), (1928, 1208))
    assert found.frame_skip is None
    assert found.queue_depths["img_q"] == 5


def test_reads_a_bare_jit(jits: dict[str, Path]) -> None:
    found = inspect_artifact(jits["compile3"])
    assert (found.form, found.root_keys) == ("bare", ())
    assert [jit.key for jit in found.jits] == [""]
    assert len(found.jits[0].names) == 6


def test_reads_positional_arguments(jits: dict[str, Path]) -> None:
    policy = inspect_artifact(jits["positional"]).jit("run_policy")
    assert policy is not None
    assert policy.names == (0, 1, 2, 3, 4, 5)


def test_sees_weights_that_are_zeros(jits: dict[str, Path]) -> None:
    zero, good = inspect_artifact(jits["zero"]), inspect_artifact(jits["good"])
    big = 1024 * 6 * 64 * 2
    assert [one.zeros for one in zero.weights if one.payload == big] == [1.0]
    assert all(one.zeros < 0.1 for one in good.weights if one.payload == big)
    assert zero.zero_payload > 10 * good.zero_payload


def test_reads_a_real_supercombo(sample_artifact: Path) -> None:
    found = inspect_artifact(sample_artifact)
    assert [jit.key for jit in found.jits] == ["run_policy", "1344x760", "1928x1208"]
    assert found.oddities == ()
    assert set(found.globals) <= KNOWN_GLOBALS


@pytest.mark.parametrize("by", ["name", "manifest", "chunk"])
def test_reads_chunks_like_the_whole(jits: dict[str, Path], tmp_path: Path, by: str) -> None:
    data = jits["good"].read_bytes()
    third = len(data) // 3 + 1
    for number in range(3):
        (tmp_path / f"m o.pkl.chunk{number + 1:02d}of03").write_bytes(data[number * third : (number + 1) * third])
    (tmp_path / "m o.pkl.chunkmanifest").write_text("3")
    name = {"name": "m o.pkl", "manifest": "m o.pkl.chunkmanifest", "chunk": "m o.pkl.chunk02of03"}[by]
    found = inspect_artifact(tmp_path / name)
    whole = inspect_artifact(jits["good"])
    assert found.chunks == 3
    assert msgspec.structs.replace(found, chunks=1, name=whole.name) == whole


def test_a_missing_chunk_is_named(jits: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "m.pkl.chunk01of03").write_bytes(b"x")
    (tmp_path / "m.pkl.chunk03of03").write_bytes(b"x")
    with pytest.raises(ArtifactError, match="without number 2"):
        inspect_artifact(tmp_path / "m.pkl")


@pytest.mark.parametrize("form", ["good", "out_of_band"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.9999])
def test_a_file_that_was_cut_off_is_called_truncated(
    jits: dict[str, Path], tmp_path: Path, form: str, share: float
) -> None:
    data = jits[form].read_bytes()
    (tmp_path / "a.pkl").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(Truncated) as caught:
        inspect_artifact(tmp_path / "a.pkl")
    assert caught.value.expected
    assert caught.value.got
    assert caught.value.guide == "11"


def test_bytes_behind_the_pickle_are_counted(jits: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(jits["good"].read_bytes() + b"\0" * 77)
    assert inspect_artifact(tmp_path / "a.pkl").trailing == 77


def test_a_length_whose_low_byte_looks_like_a_pickle_is_still_out_of_band(
    jits: dict[str, Path], tmp_path: Path
) -> None:
    data = jits["out_of_band"].read_bytes()
    length = int.from_bytes(data[:8], "little")
    inner = data[8 : 8 + length]
    # Longer by a pushed and dropped None each, until the length's own bytes are 80 04, like protocol 4's.
    grow = (0x0480 - length) % 0x10000
    if grow % 2:
        inner, grow = inner[:2] + b"(1" * 0 + inner[2:], grow
        inner = inner[:2] + b"(N1" + inner[2:]
        grow -= 3
    inner = inner[:2] + b"N0" * (grow // 2) + inner[2:]
    assert len(inner).to_bytes(8, "little")[:2] == b"\x80\x04"
    (tmp_path / "a.pkl").write_bytes(len(inner).to_bytes(8, "little") + inner + data[8 + length :])
    found = inspect_artifact(tmp_path / "a.pkl")
    assert found.container == "out-of-band"
    assert len(found.jits) == 3


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html>404</html>", "web page"),
        (b"PK\x03\x04" + bytes(50), "zip"),
        (b"\x08\x09\x12\x04onnx" + bytes(50), "ONNX"),
        (b"hello, world", "begin with 68 65"),
    ],
)
def test_what_is_no_pickle_is_named(tmp_path: Path, content: bytes, kind: str) -> None:
    (tmp_path / "a.pkl").write_bytes(content)
    with pytest.raises(NotAnArtifact) as caught:
        inspect_artifact(tmp_path / "a.pkl")
    assert kind in caught.value.headline()
    assert caught.value.remedy


def test_a_missing_file_and_a_directory_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no such artifact"):
        inspect_artifact(tmp_path / "a.pkl")
    with pytest.raises(ArtifactError, match=r"no plain file.*got a folder"):
        inspect_artifact(tmp_path)


def test_a_flipped_length_is_damage_or_truncation(jits: dict[str, Path], tmp_path: Path) -> None:
    data = bytearray(jits["good"].read_bytes())
    at = data.index(b"B\x00\x00\x0c\x00")  # BINBYTES of the weights, 786,432 bytes
    data[at + 1] = 1
    (tmp_path / "a.pkl").write_bytes(data)
    with pytest.raises((Damaged, Truncated)):
        inspect_artifact(tmp_path / "a.pkl")


def test_a_key_that_is_given_twice_counts_as_python_counts_it_and_is_odd(jits: dict[str, Path], tmp_path: Path) -> None:
    raw = [one for _, _, one in opcodes(jits["good"].read_bytes())]
    # Before STOP: 'frame_skip' -> 9 once more.
    (tmp_path / "a.pkl").write_bytes(b"".join([*raw[:-1], b"\x8c\x0aframe_skip", b"K\x09s", raw[-1]]))
    found = inspect_artifact(tmp_path / "a.pkl")
    assert found.frame_skip == 9
    assert any("twice" in one for one in found.oddities)


def test_inspecting_imports_no_tinygrad(jits: dict[str, Path]) -> None:
    code = (
        "import sys; from pathlib import Path; from buildlib.artifact.inspect_file import inspect_artifact;"
        "inspect_artifact(Path(sys.argv[1]));"
        "heavy = {'tinygrad', 'onnx', 'numpy'} & set(sys.modules); print(heavy); sys.exit(bool(heavy))"
    )
    done = subprocess.run((sys.executable, "-c", code, str(jits["good"])), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_inspection_survives_json(jits: dict[str, Path]) -> None:
    found = inspect_artifact(jits["good"])
    assert msgspec.json.decode(msgspec.json.encode(found), type=Inspection) == found
