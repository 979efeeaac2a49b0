"""What the tests of `doit confirm:M` on a device share: the model, its target, and how the device was before."""

from __future__ import annotations

from pathlib import Path

from buildlib.sandbox import open_sandbox
from buildlib.sandbox.server import FileServer
from tests.support.projects import Project

NAME = "driving_supercombo_nopp.pkl"
ACTIVE = "data/params/d/ModelManager_ActiveBundle"
BEFORE = '{"internalName": "TOBYRL",  "displayName": "TobyRL", "models": []}'
MODEL = {
    "display_name": "No PP (June 26, 2026)",
    "folder": "No PP (June 26, 2026)-165",
    "source": "nopp.onnx",
    "artifact": NAME,
    "target": "sandbox",
    "bundle": {"short_name": "NOPP"},
}
TARGET = {"repository": ".build/sandbox/IQModels", "policy": ["harness"], "confirm_timeout": 20}


def serve(project: Project) -> FileServer:
    """The sandbox's own server, for longer than one run of doit."""
    sandbox = open_sandbox(project.root / ".build/sandbox")
    return FileServer(sandbox.origin, sandbox.root / "served", port=sandbox.port)


def select_another(device: Path) -> None:
    (device / ACTIVE).write_text(BEFORE)


def assert_as_before(project: Project) -> None:
    device = project.device("local")
    assert (device / ACTIVE).read_text() == BEFORE
    assert (device / "data/media/0/models" / NAME).read_bytes() == project.artifact("nopp").read_bytes()
    assert not (device / "data/params/d/ModelManager_DownloadIndex").exists()
    assert not (device / "data/params/d/ModelManager_ClearCache").exists()
    assert list((device / "data/supercombo-build/journal").glob("*")) == []
