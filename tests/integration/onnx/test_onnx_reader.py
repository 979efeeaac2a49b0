"""Inspection of real ONNX files, whole, damaged, hostile and foreign."""

from __future__ import annotations

import base64
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from buildlib.artifact.onnx_reader import inspect_onnx
from buildlib.artifact.onnx_sniff import sniff_onnx
from buildlib.core.sources.model_form import check_source
from buildlib.errors import SourceError

Make = Callable[..., Path]


def encoded(value: object) -> str:
    return base64.encodebytes(pickle.dumps(value)).decode()


def test_a_supercombo_is_read_whole(make_onnx: Make) -> None:
    path = make_onnx()
    seen = inspect_onnx(path)
    assert [(spec.name, spec.dtype, spec.shape) for spec in seen.inputs][:2] == [
        ("img", "uint8", (1, 12, 128, 256)),
        ("big_img", "uint8", (1, 12, 128, 256)),
    ]
    assert seen.opsets == {"": 17}
    assert seen.weight_bytes == 1000 * 2 + 20 * 4
    assert seen.weight_dtypes == {"float16": 2000, "float32": 80}
    assert seen.operators == {"Relu": 1}
    assert seen.producer == "test"
    assert seen.metadata == {"model_checkpoint": "abc/200"}
    assert seen.output_slices is not None
    assert seen.output_slices["pose"] == (8, 12)
    assert seen.file_bytes == path.stat().st_size
    assert check_source(seen, "supercombo", "supercombo") == []


def test_reading_an_lfs_pointer_or_a_page_needs_no_onnx_package(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from buildlib.artifact.onnx_sniff import sniff_onnx\n"
        "try: sniff_onnx(Path(sys.argv[1]))\nexcept Exception as e: print(type(e).__name__)\n"
        "print('onnx' in sys.modules, 'google.protobuf' in sys.modules)"
    )
    page = tmp_path / "m.onnx"
    page.write_text("<html>")
    done = subprocess.run((sys.executable, "-c", code, str(page)), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["SourceError", "False", "False"]


@pytest.mark.parametrize(
    ("content", "word", "remedy"),
    [
        (b"", "empty", "again"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 99\n", "pointer", "git lfs"),
        (b"version https://git-lfs.github.com/spec/v1\nbroken", "pointer", "git lfs"),
        (b"\n <!DOCTYPE HTML><html>404", "HTML", "browser"),
        (b"<?xml version='1.0'?><Error>AccessDenied</Error>", "XML", "browser"),
        (b'{"error": "not found"}', "JSON", "why"),
        (b"PK\x03\x04" + b"\0" * 50, "zip", "unpack"),
        (b"\x1f\x8b\x08" + b"\0" * 50, "gzip", "unpack"),
        (pickle.dumps({"run_policy": 1}), "pickle", "compiled from"),
        (b"\0" * 4096, "zero bytes", "again"),
        (b"hello world\n", "text file", ".onnx"),
        (b"\xff\xfe\xfd" * 30, "other binary data", "which file"),
    ],
)
def test_what_is_no_onnx_is_named(tmp_path: Path, content: bytes, word: str, remedy: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(SourceError) as caught:
        inspect_onnx(path)
    assert word in caught.value.headline()
    assert remedy in (caught.value.remedy or "")
    assert "\n" not in caught.value.headline()


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        inspect_onnx(tmp_path / "none.onnx")
    with pytest.raises(SourceError, match="folder"):
        inspect_onnx(tmp_path)


def test_a_truncated_file_is_called_truncated_at_every_length(make_onnx: Make, tmp_path: Path) -> None:
    whole = make_onnx().read_bytes()
    cut = tmp_path / "cut.onnx"
    for length in {*range(1, 40), *range(40, len(whole), 97), len(whole) - 1}:
        cut.write_bytes(whole[:length])
        with pytest.raises(SourceError) as caught:
            inspect_onnx(cut)
        if length > 40:
            assert "truncated" in caught.value.headline() or "incomplete" in caught.value.headline(), length


def test_a_truncated_file_says_both_sizes(make_onnx: Make, tmp_path: Path) -> None:
    whole = make_onnx(weights=100_000).read_bytes()
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(whole[:100_000])
    with pytest.raises(SourceError, match=r"expected at least 20.... bytes.*got 100000 bytes"):
        sniff_onnx(cut)


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.system, ("touch evil-ran",))


@pytest.mark.parametrize(
    ("slices", "why"),
    [
        (encoded(Evil()), "system"),
        (encoded({"pose": Evil()}), "system"),
        ("!!!", "not base64"),
        (encoded([1]), "not a dict"),
        (encoded({"pose": 3}), "name -> slice"),
        (encoded({"pose": slice(0, 4, 2)}), "no plain start and stop"),
        (encoded({"pose": slice("a", "b")}), "no plain start and stop"),
        (encoded({"pose": slice(0, 99)}), "leaves the output"),
        (base64.b64encode(pickle.dumps({"pose": slice(0, 4)})[:-4]).decode(), "damaged"),
        (base64.b64encode(b"\x80\x04r\xff\xff\xff\x7f.").decode(), "pickle"),
        (base64.b64encode(b"\x80\x02cposix\nsystem\nq\x00X\x02\x00\x00\x00id\x85R.").decode(), "posix.system"),
        (base64.b64encode(b"(S'id'\niposix\nsystem\n.").decode(), "INST"),
    ],
)
def test_hostile_slices_are_refused_and_nothing_runs(
    make_onnx: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slices: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = inspect_onnx(make_onnx(slices=slices))
    assert seen.output_slices is None
    assert why in seen.slices_problem
    assert not (tmp_path / "evil-ran").exists()
    problems = check_source(seen, "supercombo", "supercombo")
    assert [problem.severity for problem in problems] == ["error"]
    assert "output_slices" in problems[0].text()


def test_slices_that_count_from_the_end_are_resolved(make_onnx: Make) -> None:
    seen = inspect_onnx(make_onnx(slices=encoded({"hidden_state": slice(0, -2), "pad": slice(-2, None)})))
    assert seen.output_slices == {"hidden_state": (0, 18), "pad": (18, 20)}


def test_external_data_beside_it_is_counted(make_onnx: Make) -> None:
    seen = inspect_onnx(make_onnx(external="weights.bin"))
    assert seen.external_files == ("weights.bin",)
    assert seen.weight_bytes == 2080
    problems = check_source(seen, "supercombo", "supercombo")
    assert ["weights.bin" in problem.text() for problem in problems] == [True]
    assert "onnx.save" in problems[0].remedy


def test_missing_and_truncated_external_data_is_named(make_onnx: Make, tmp_path: Path) -> None:
    path = make_onnx(external="weights.bin", weights=9000)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(SourceError, match=r"weights\.bin' is truncated"):
        inspect_onnx(path)
    weights.unlink()
    with pytest.raises(SourceError, match=r"weights\.bin' is missing"):
        inspect_onnx(path)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../secret", "C:\\x", "", "..\\secret"])
def test_external_data_outside_its_folder_is_refused(make_onnx: Make, tmp_path: Path, location: str) -> None:
    import onnx

    path = make_onnx(external="weights.bin")
    (tmp_path.parent / "secret").write_bytes(b"x" * 10_000)
    model = onnx.load(str(path), load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    path.write_bytes(model.SerializeToString())
    with pytest.raises(SourceError, match="outside its folder"):
        inspect_onnx(path)


def test_a_link_out_of_the_folder_is_refused(make_onnx: Make, tmp_path: Path) -> None:
    path = make_onnx(external="weights.bin")
    outside = tmp_path.parent / f"{tmp_path.name}-outside.bin"
    shutil.move(tmp_path / "weights.bin", outside)
    (tmp_path / "weights.bin").symlink_to(outside)
    with pytest.raises(SourceError, match="leads out of it"):
        inspect_onnx(path)


@pytest.mark.parametrize("place", ["initializer", "values", "indices", "attribute", "list"])
def test_a_weight_with_too_few_bytes_is_named_wherever_it_lies(make_onnx: Make, place: str) -> None:
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    path = make_onnx()
    model = onnx.load(str(path))
    values = numpy_helper.from_array(np.ones(2, dtype=np.float32), "weight")
    indices = numpy_helper.from_array(np.arange(2), "indices")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    model.graph.node.append(helper.make_node("Constant", [], ["one"], value=values))
    model.graph.node.append(helper.make_node("Odd", [], ["two"], values=[values]))
    path.write_bytes(model.SerializeToString())
    seen = inspect_onnx(path)
    assert (seen.weight_count, seen.weight_bytes) == (2 + 2 + 1 + 1, 2080 + (8 + 16) + 8 + 8)
    broken = {
        "initializer": model.graph.initializer[0],
        "values": model.graph.sparse_initializer[0].values,
        "indices": model.graph.sparse_initializer[0].indices,
        "attribute": model.graph.node[-2].attribute[0].t,
        "list": model.graph.node[-1].attribute[0].tensors[0],
    }[place]
    broken.raw_data = b"123"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(SourceError, match=f"weight '{broken.name}'"):
        inspect_onnx(path)


def test_a_weight_that_is_listed_among_the_inputs_is_no_input(make_onnx: Make) -> None:
    import onnx
    from onnx import helper

    path = make_onnx()
    model = onnx.load(str(path))
    before = inspect_onnx(path).inputs
    model.graph.input.append(helper.make_tensor_value_info("weight", 10, (1000,)))
    path.write_bytes(model.SerializeToString())
    assert inspect_onnx(path).inputs == before


def test_a_graph_that_does_not_parse_is_damage(make_onnx: Make) -> None:
    path = make_onnx()
    graph, opset = b"\x3a\x09driving\xff\xff", b"\x42\x02\x10\x11"
    path.write_bytes(b"\x08\x0a" + graph + opset)
    with pytest.raises(SourceError, match="a damaged ONNX"):
        inspect_onnx(path)


def test_a_value_that_nothing_makes_is_named(make_onnx: Make) -> None:
    from onnx import helper

    path = make_onnx(extra_nodes=(helper.make_node("Relu", ["nobody"], ["x"]),))
    with pytest.raises(SourceError, match="'nobody', which nothing makes"):
        inspect_onnx(path)


def test_operators_in_nested_graphs_and_other_domains_are_counted(make_onnx: Make) -> None:
    from onnx import helper

    inner = helper.make_graph([helper.make_node("LSTM", [], ["y"])], "then", [], [])
    branch = helper.make_node("If", ["row"], ["z"], then_branch=inner, else_branch=inner)
    own = helper.make_node("Magic", ["row"], ["m"], domain="com.microsoft")
    usual = helper.make_node("Neg", ["row"], ["n"], domain="ai.onnx")
    several = helper.make_node("Case", ["row"], ["c"], branches=[inner, inner])
    seen = inspect_onnx(make_onnx(extra_nodes=(branch, own, usual, several)))
    assert seen.operators == {"Case": 1, "If": 1, "LSTM": 4, "Neg": 1, "Relu": 1, "com.microsoft:Magic": 1}


@pytest.mark.parametrize("several", [False, True])
def test_graphs_are_followed_sixteen_levels_deep_and_no_further(make_onnx: Make, several: bool) -> None:
    from onnx import helper

    node = helper.make_node("LSTM", [], ["y"])
    for level in range(1, 18):
        inner = helper.make_graph([node], "inner", [], [])
        node = helper.make_node("If", ["row"], ["z"], branch=[inner] if several else inner)
        path = make_onnx(extra_nodes=(node,))
        if level <= 16:
            assert inspect_onnx(path).operators == {"If": level, "LSTM": 1, "Relu": 1}
    with pytest.raises(SourceError, match="nested too deeply"):
        inspect_onnx(path)


WHEELS = {
    "silero-vad": "silero-vad",
    "magika": "magika",
    "rapidocr-onnxruntime": "rapidocr",
}


@pytest.mark.slow
@pytest.mark.parametrize(("package", "name"), WHEELS.items())
def test_the_models_inside_other_packages_are_called_by_name(
    package: str, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("wheel")
    asked = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), package)
    done = subprocess.run(asked, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip cannot download {package}")
    found = 0
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.endswith(".onnx"):
                    found += 1
                    seen = inspect_onnx(Path(archive.extract(member, folder)))
                    problems = check_source(seen, "supercombo", "supercombo")
                    assert len(problems) == 1
                    assert problems[0].what.startswith(f"this is {name}"), member
                    assert problems[0].remedy
    assert found
