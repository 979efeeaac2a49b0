"""Each kind of source through a whole `doit`, to a device in a directory and to one behind SSH; a wrong one bothers
neither."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest

from tests.devices.server import SSHD_MARKS
from tests.integration.sources.conftest import GitHost, Repository, Served
from tests.support.onnx_files import INPUTS, write_onnx
from tests.support.projects import Project, variant
from tests.support.ssh_projects import ssh_project

SOURCES = "data/media/0/*_source.onnx"


@pytest.fixture(params=["local", pytest.param("ssh", marks=SSHD_MARKS)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Project, Path]]:
    """A project without models, and the root of its one device."""
    if request.param == "local":
        project = request.getfixturevalue("bare_project")
        yield project, project.device()
        return
    with ssh_project(tmp_path, *map(request.getfixturevalue, ("sample_artifact", "sample_onnx"))) as desk:
        desk.models.clear()
        yield desk, desk.comma.root


def test_a_download_and_a_large_file_in_git_are_compiled_and_needed_only_once(
    place: tuple[Project, Path],
    served: Served,
    lfs_repository: Repository,
    git_host: GitHost,
    sample_onnx: Path,
) -> None:
    project, device = place
    web, pinned = (variant(sample_onnx.read_bytes(), number) for number in (3, 4))
    served.files["/m.onnx"], served.cut_after = web, [100_000]
    lfs_repository.remote(f"{git_host.url}/IQ%20Models.git")
    lfs_repository.commit("m.onnx", pinned)
    project.add("web", {"kind": "url", "url": f"{served.url}/m.onnx", "sha256": hashlib.sha256(web).hexdigest()})
    repository = f"{git_host.url}/IQ%20Models.git"
    project.add("pinned", {"kind": "git", "repository": repository, "ref": "main", "path": "m.onnx"})
    project.doit("update").ok()
    lock = (project.root / "models.lock").read_bytes()
    project.doit("pull").ok()
    assert (project.root / "models.lock").read_bytes() == lock
    for name, content in (("web", web), ("pinned", pinned)):
        assert (device / f"data/media/0/driving_supercombo_{name}_source.onnx").read_bytes() == content
        assert project.artifact(name).is_file()
    asked = len(served.seen), len(git_host.asked)
    for name in ("web", "pinned"):
        project.models[name]["flags"] = {"NOLOCALS": 1}
    project.declare()
    project.doit("pull").ok()
    assert (len(served.seen), len(git_host.asked)) == asked


def cut(path: Path) -> None:
    path.write_bytes(write_onnx(path).read_bytes()[:1500])


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "page": (lambda path: path.write_text("<!DOCTYPE html><title>404</title>"), "an HTML or XML page"),
    "pointer": (
        lambda path: path.write_text(
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 118000000\n"
        ),
        "a git-lfs pointer to 118000000 bytes",
    ),
    "truncated": (cut, "a truncated ONNX"),
    "foreign": (lambda path: write_onnx(path, inputs={"bytes": ("int64", (1, 2048))}), "this is magika"),
    "missing": (
        lambda path: write_onnx(path, inputs={name: form for name, form in INPUTS.items() if name != "action_t"}),
        "input action_t is missing",
    ),
    "extra": (lambda path: write_onnx(path, inputs={**INPUTS, "speed": ("int64", (1, 1))}), "extra input speed"),
    "dtype": (
        lambda path: write_onnx(path, inputs={**INPUTS, "img": ("float32", INPUTS["img"][1])}),
        "input img has another dtype",
    ),
}


def test_a_wrong_source_is_named_in_one_line_with_what_to_do_and_nothing_is_sent(place: tuple[Project, Path]) -> None:
    project, device = place
    for name, (write, _) in WRONG.items():
        write(project.root / f"{name}.onnx")
        project.add(name, f"{name}.onnx")
    run = project.doit("upload")
    assert run.status == 1
    told = run.out.split(" source failed\n")[1:]
    assert len(told) == len(WRONG)
    for name, (_, words) in WRONG.items():
        (lines,) = [text.splitlines() for text in told if f"what  {name}.onnx: " in text]
        assert words in lines[0], lines
        assert any(line.startswith("  try   ") for line in lines), lines
    assert list(device.glob(SOURCES)) == []


def test_what_new_has_downloaded_is_not_downloaded_again(bare_project: Project, served: Served, tmp_path: Path) -> None:
    served.files["/model-Brand New (May 1, 2026)-12/m.onnx"] = write_onnx(tmp_path / "m.onnx").read_bytes()
    served.files = {path.replace(" ", "%20"): content for path, content in served.files.items()}
    (bare_project.root / "models.yaml").write_text("# mine\ndefaults: { device: local, profile: cpu }\nmodels: {}\n")
    (path,) = served.files
    out = bare_project.doit("new", "fresh", served.url + path).ok().out
    assert "Brand New (May 1, 2026)" in out
    assert out.endswith("Look it over, then: doit fresh\n")
    assert (bare_project.root / "models.yaml").read_text().startswith("# mine\n")
    assert len(served.seen) == 1
    bare_project.doit("source:fresh").ok()
    assert len(served.seen) == 1


def test_an_operator_that_the_devices_tinygrad_lacks_is_named_and_nothing_is_compiled(
    place: tuple[Project, Path], sample_onnx: Path
) -> None:
    project, device = place
    tinygrad = importlib.util.find_spec("tinygrad")
    assert tinygrad is not None
    assert tinygrad.origin is not None
    (package,) = device.rglob("tinygrad/__init__.py")
    (package.parent / "nn").mkdir(exist_ok=True)
    shutil.copy(Path(tinygrad.origin).parent / "nn" / "onnx.py", package.parent / "nn" / "onnx.py")
    model = onnx.load(str(sample_onnx))
    model.graph.node.append(onnx.helper.make_node("GridSample", ["img", "big_img"], ["nowhere"], name="stray"))
    onnx.save(model, str(project.root / "odd.onnx"))
    project.add("odd", "odd.onnx")
    run = project.doit("compile:odd")
    assert run.status == 1
    assert "GridSample" in run.out
    assert project.compiled("odd") == 0
