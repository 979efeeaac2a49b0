"""A whole build with nothing standing in for anything: sample, compile by tinygrad, install (issue 2)."""

from __future__ import annotations

import hashlib
import subprocess

import pytest

from buildlib.toolchain.c_compiler import CCompiler
from tests.support.projects import Project, new_project
from tests.support.scripts import SCRIPTS


@pytest.mark.compile
def test_a_sample_is_compiled_once_for_real_and_not_again(
    tmp_path: object, c_compiler: CCompiler, sample_artifact: object
) -> None:
    project: Project = new_project(tmp_path, sample_artifact, (c_compiler.path, c_compiler.identity))  # type: ignore[arg-type]
    project.scripts["local"] = "builtin"
    # Its own tinygrad is a stand-in too: away with it, the workstation's is used.
    (project.device() / "data/openpilot/tinygrad_repo/tinygrad/__init__.py").unlink()
    project.add("real", {"kind": "sample", "seed": 7}, target=None)
    run = project.doit().ok()
    assert "tinygrad 0.14.0" in run.out
    assert "warning" not in run.out
    artifact = project.artifact("real")
    digest = hashlib.sha256(artifact.read_bytes()).hexdigest()
    assert (project.device() / "data/media/0/models" / artifact.name).read_bytes() == artifact.read_bytes()
    checked = subprocess.run(["sha256sum", "-c", f"{artifact.name}.sha256"], cwd=artifact.parent, check=False)
    assert checked.returncode == 0
    assert "Saved JITs to" in (artifact.parent / "compile.log").read_text()
    assert project.doit().ok().text == "1 model up to date.\n"
    sent = project.device() / "data/supercombo-build/scripts"
    names = sorted(str(path.relative_to(sent)).partition("/")[2] for path in sent.rglob("*.py"))
    assert names == sorted(file.name for file in SCRIPTS["compile_supercombo"])
    assert project.doit("gc", "--device", "local").ok().out == "Nothing to collect on local.\n"
    artifact.unlink()
    project.doit().ok()
    assert hashlib.sha256(artifact.read_bytes()).hexdigest() == digest
