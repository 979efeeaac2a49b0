"""`doit inspect FILE` on artifacts: what it is, what is wrong with it whatever it was meant to be, its status."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.support.projects import Project


class Hostile:
    """Would run a command when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch '{self.mark}'",)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    path = tmp_path / "hostile.pkl"
    path.write_bytes(pickle.dumps({"metadata": {}, "frame_skip": 4, "run_policy": Hostile(tmp_path / "ran")}))
    return path


def test_a_good_one_is_described_with_status_0(built: Project) -> None:
    artifact = str(built.artifact("one"))
    assert "run_policy, 1344x760, 1928x1208, frame skip 4" in built.doit("inspect", artifact).ok().out
    assert "good for supercombo" in built.doit("inspect", "-m", "one", artifact).ok().out
    plain = json.loads(built.doit("inspect", "--json", artifact).ok().out)
    assert (plain["findings"], plain["verdict"], plain["file"]) == ([], None, artifact)


def test_what_loading_would_run_is_told_without_being_asked_for(built: Project, hostile: Path) -> None:
    run = built.doit("inspect", str(hostile))
    assert run.status == 1
    assert "loading it would import what no captured jit has" in run.out
    assert "posix.system" in run.out
    assert "do not load it anywhere" in run.out
    codes = [one["code"] for one in json.loads(built.doit("inspect", "--json", str(hostile)).out)["findings"]]
    assert "unknown_global" in codes
    assert not hostile.with_name("ran").exists()


def test_bytes_behind_the_end_are_told(built: Project, tmp_path: Path) -> None:
    longer = tmp_path / "longer.pkl"
    longer.write_bytes(built.artifact("one").read_bytes() + b"more")
    run = built.doit("inspect", str(longer))
    assert run.status == 1
    assert "bytes follow the end of the pickle" in run.out


def test_one_file_that_cannot_be_read_keeps_no_other_from_being_looked_at(built: Project, tmp_path: Path) -> None:
    for name, content in (("page.pkl", b"<html>"), ("page.onnx", b"<html>"), ("empty.pkl", b"")):
        (tmp_path / name).write_bytes(content)
        words = (str(tmp_path / name), str(built.artifact("one")))
        run = built.doit("inspect", *words)
        assert run.status == 1
        assert name in run.err
        assert "  try   " in run.err
        assert "frame skip 4" in run.out
        wrong, good = json.loads(built.doit("inspect", "--json", *words).out)
        assert wrong["file"].endswith(name)
        assert wrong["error"]
        assert good["inspection"]["frame_skip"] == 4
