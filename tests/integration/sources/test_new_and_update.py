"""`doit new` and `doit update` from the inside: real files, servers and repositories; models.yaml and models.lock."""

from __future__ import annotations

import difflib
import shutil
import subprocess
from pathlib import Path

import pytest

from buildlib.commands.new_model import add_model
from buildlib.commands.update_pins import update_pins
from buildlib.core.catalog import GitSource, PathSource, UrlSource
from buildlib.core.sources.lockfile import changes, parse_lock
from buildlib.errors import SourceError, SourceUnavailable, UsageError
from buildlib.store.files import hash_file
from buildlib.store.workspace import Workspace
from tests.support.onnx_files import INPUTS, write_onnx

ROOT = Path(__file__).parents[3]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "a checkout"
    root.mkdir()
    shutil.copy(ROOT / "models.yaml", root)
    return Workspace(root, {})


@pytest.fixture
def onnx(tmp_path: Path) -> Path:
    folder = tmp_path / "IQModels" / "model-Brand New (May 1, 2026)-12"
    folder.mkdir(parents=True)
    return write_onnx(folder / "driving_supercombo.onnx")


def added_lines(workspace: Workspace) -> str:
    before = (ROOT / "models.yaml").read_text().splitlines()
    after = (workspace.root / "models.yaml").read_text().splitlines()
    diff = [line for line in difflib.ndiff(before, after) if not line.startswith("  ")]
    assert all(line.startswith("+ ") for line in diff)
    return "\n".join(line[2:] for line in diff)


def test_a_file_becomes_a_model(workspace: Workspace, onnx: Path) -> None:
    added = add_model(workspace, "brandnew", [str(onnx)])
    assert "display_name: Brand New (May 1, 2026)" in added_lines(workspace)
    model = Workspace(workspace.root, {}).catalog.models["brandnew"]
    assert model.sources == {"supercombo": PathSource(path=str(onnx))}
    assert (model.folder, model.artifact) == ("Brand New (May 1, 2026)-12", "driving_supercombo_brandnew.pkl")
    assert added.text().endswith("doit brandnew")
    assert (workspace.root / "models.yaml").read_text().splitlines()[added.line - 1] == "  brandnew:"
    assert not (workspace.root / "models.lock").exists()


def test_a_file_inside_the_project_is_named_from_its_root(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_onnx(workspace.root / "mine.onnx")
    monkeypatch.chdir(workspace.root)
    add_model(workspace, "mine", ["mine.onnx"])
    assert Workspace(workspace.root, {}).catalog.models["mine"].sources["supercombo"] == PathSource(path="mine.onnx")


def test_a_url_is_downloaded_once_and_its_hash_written(workspace: Workspace, onnx: Path, served) -> None:
    served.files["/m.onnx"] = onnx.read_bytes()
    add_model(workspace, "fromweb", [f"{served.url}/m.onnx"])
    source = Workspace(workspace.root, {}).catalog.models["fromweb"].sources["supercombo"]
    assert source == UrlSource(url=f"{served.url}/m.onnx", sha256=hash_file(onnx))
    assert workspace.blobs.has(hash_file(onnx))


def test_a_reference_is_pinned(workspace: Workspace, onnx: Path, repository) -> None:
    commit = repository.commit("models/m.onnx", onnx.read_bytes())
    add_model(workspace, "fromgit", [f"git+{repository.bare}#main:models/m.onnx"])
    source = Workspace(workspace.root, {}).catalog.models["fromgit"].sources["supercombo"]
    assert source == GitSource(repository=str(repository.bare), ref="main", path="models/m.onnx")
    pin = parse_lock((workspace.root / "models.lock").read_text()).pin("fromgit", "supercombo")
    assert pin is not None
    assert (pin.commit, pin.sha256) == (commit, hash_file(onnx))
    assert workspace.blobs.has(hash_file(onnx))


def test_a_clone_here_is_one_without_being_called_so_but_never_in_a_files_place(
    workspace: Workspace, onnx: Path, repository, tmp_path: Path
) -> None:
    repository.commit("models/m.onnx", onnx.read_bytes())
    clone = tmp_path / "New New Vault" / "clone"
    subprocess.run(["git", "clone", "-q", str(repository.bare), str(clone)], check=True)
    text = f"{clone}#main:m.onnx"
    Path(text).write_bytes(onnx.read_bytes())
    add_model(workspace, "file", [text])
    add_model(workspace, "fromgit", [f"{clone}#main:models/m.onnx"])
    models = Workspace(workspace.root, {}).catalog.models
    assert models["file"].sources["supercombo"] == PathSource(path=text)
    reference = GitSource(repository=str(clone), ref="main", path="models/m.onnx")
    assert models["fromgit"].sources["supercombo"] == reference


def test_update_alone_moves_a_pin(workspace: Workspace, onnx: Path, repository) -> None:
    first = repository.commit("m.onnx", onnx.read_bytes())
    add_model(workspace, "fromgit", [f"git+{repository.bare}#main:m.onnx"])
    fresh = Workspace(workspace.root, {})
    lock_file = workspace.root / "models.lock"
    assert update_pins(fresh, []) == (parse_lock(lock_file.read_text()),) * 2
    second = repository.commit("m.onnx", write_onnx(onnx.with_name("other.onnx"), weights=7).read_bytes())
    before, after = update_pins(fresh, ["fromgit"])
    assert changes(before, after) == [f"fromgit: {first[:8]} -> {second[:8]} (main)"]
    assert parse_lock(lock_file.read_text()) == after


def test_an_update_of_one_model_leaves_the_pins_of_others(workspace: Workspace, onnx: Path, repository) -> None:
    repository.commit("m.onnx", onnx.read_bytes())
    for name in ("one", "two"):
        add_model(workspace, name, [f"git+{repository.bare}#main:m.onnx"])
        workspace = Workspace(workspace.root, {})
    repository.commit("m.onnx", write_onnx(onnx.with_name("other.onnx"), weights=7).read_bytes())
    before, after = update_pins(workspace, ["one"])
    assert after.pin("one", "supercombo") != before.pin("one", "supercombo")
    assert after.pin("two", "supercombo") == before.pin("two", "supercombo")


def test_a_failed_update_leaves_the_lock_alone(workspace: Workspace, onnx: Path, repository) -> None:
    repository.commit("m.onnx", onnx.read_bytes())
    add_model(workspace, "fromgit", [f"git+{repository.bare}#main:m.onnx"])
    lock = (workspace.root / "models.lock").read_bytes()
    repository.bare.rename(repository.bare.with_name("moved.git"))
    with pytest.raises(SourceUnavailable):
        update_pins(Workspace(workspace.root, {}), [])
    assert (workspace.root / "models.lock").read_bytes() == lock


def test_a_split_model_is_known_by_its_parts(workspace: Workspace, tmp_path: Path) -> None:
    images = {name: INPUTS[name] for name in ("img", "big_img")}
    memory = {name: INPUTS[name] for name in ("desire_pulse", "traffic_convention", "features_buffer")}
    vision = write_onnx(tmp_path / "driving_vision.onnx", inputs=images)
    policy = write_onnx(tmp_path / "driving_policy.onnx", inputs=memory)
    add_model(workspace, "split", [str(policy), str(vision)])
    model = Workspace(workspace.root, {}).catalog.models["split"]
    assert model.kind == "vision_policy"
    assert model.sources == {"vision": PathSource(path=str(vision)), "policy": PathSource(path=str(policy))}


def test_a_part_that_is_named_twice_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="same file"):
        add_model(workspace, "split", ["vision.onnx", "policy.onnx", "policy.onnx"])
    assert "split" not in (workspace.root / "models.yaml").read_text()


@pytest.mark.parametrize(
    ("name", "text", "error", "word"),
    [
        ("nopp", "m.onnx", UsageError, "there already"),
        ("compile", "m.onnx", UsageError, "name"),
        ("fine", "missing.onnx", SourceUnavailable, "no such file"),
        ("fine", "page.onnx", SourceError, "HTML"),
        ("fine", "foreign.onnx", SourceError, "no driving model"),
        ("fine", "wrong.onnx", SourceError, "action_t has another shape"),
        ("fine", "ext::sh -c id#main:x", SourceError, "no such file"),
        ("fine", "git+ext::sh -c id#main:x", SourceError, "refused"),
    ],
)
def test_a_refusal_writes_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, name: str, text: str, error: type[Exception], word: str
) -> None:
    root = workspace.root
    monkeypatch.chdir(root)
    write_onnx(root / "m.onnx")
    (root / "page.onnx").write_text("<html>")
    write_onnx(root / "foreign.onnx", inputs={"input": ("float32", (1, 3))})
    write_onnx(root / "wrong.onnx", inputs={**INPUTS, "action_t": ("float16", (1, 3))})
    before = (root / "models.yaml").read_bytes()
    with pytest.raises(error, match=word):
        add_model(workspace, name, [text])
    assert (root / "models.yaml").read_bytes() == before
    assert not (root / "models.lock").exists()
    assert list((root / ".build" / "incoming").iterdir() if (root / ".build" / "incoming").exists() else []) == []
