"""A device behind SSH that compiles for the CPU, and a target that is no practice: the rail between them holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from buildlib.toolchain.c_compiler import CCompiler
from tests.devices.iqpilot import add_iqpilot
from tests.devices.manager import add_params_class, start_manager
from tests.devices.server import SSHD_MARKS
from tests.support.confirming import MODEL, TARGET, assert_as_before, select_another, serve
from tests.support.projects import variant
from tests.support.ssh_projects import ssh_project

pytestmark = [*SSHD_MARKS, pytest.mark.compile]


def test_a_cpu_artifact_of_a_device_behind_ssh_never_reaches_a_real_target(
    tmp_path: Path, sample_artifact: Path, sample_onnx: Path, c_compiler: CCompiler
) -> None:
    with ssh_project(tmp_path, sample_artifact, sample_onnx) as project:
        project.there("usr/local/venv/bin/clang").symlink_to(c_compiler.path)
        add_params_class(project.comma.root)
        # Here it is IQPilot's own harness that drives, with the selection that it needs.
        add_iqpilot(project.comma.root)
        (project.root / "nopp.onnx").write_bytes(variant(sample_onnx.read_bytes(), 1))
        del project.models["one"]
        project.models["nopp"] = dict(MODEL)
        project.head = {"targets": {"sandbox": {**TARGET, "sandbox": True}}}
        project.set(validate_seconds=2)
        project.doit("sandbox").ok()
        with serve(project) as server:
            # The same repository, as a target that is no practice.
            project.head = {"targets": {"sandbox": {**TARGET, "url": f"{server.url}/{{path}}"}}}
            project.declare()
            select_another(project.comma.root)
            manager = start_manager(project.comma.root, f"{server.url}/docs/model_selector_b.json")
            try:
                run = project.doit("publish:nopp", "confirm:nopp")
            finally:
                manager.kill()
                manager.wait()
        assert run.status == 1
        assert "was compiled for the CPU, which drives no car" in run.out
        assert_as_before(project)
