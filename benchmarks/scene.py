"""A project of N models in which everything is done: state as a build leaves it, without the hours of compiling.

Other tools are given the same files and the same probe by `others`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

CHECKOUT = Path(__file__).parent.parent
SMALL = 4096


def make_scene(folder: Path, models: int, artifact_bytes: int = SMALL) -> Path:
    """Makes the project; its root. Deterministic bytes, real receipts, checked by a run that finds nothing to do."""
    root = folder / f"project {models}"
    root.mkdir(parents=True)
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copy(CHECKOUT / name, root / name)
    names = [f"model{number:04d}" for number in range(models)]
    declared = {
        name: {
            "display_name": f"Model {name}",
            "source": f"onnx/{name}.onnx",
            "artifact": f"driving_supercombo_{name}.pkl",
            "bundle": {"short_name": name.upper()},
        }
        for name in names
    }
    text = {"defaults": {"device": "local", "profile": "cpu"}, "models": declared}
    (root / "models.yaml").write_text(yaml.safe_dump(text, sort_keys=False))
    (root / "onnx").mkdir()
    for name in names:
        (root / "onnx" / f"{name}.onnx").write_bytes(_bytes(f"onnx {name}", SMALL))
    run_doit(root, "preflight")
    with mock.patch("os.fsync"):
        files = _record(root, names, artifact_bytes)
    save_probe(root)
    last = run_doit(root).stdout.splitlines()[-1]
    assert last == f"{models} model{'' if models == 1 else 's'} up to date.", last
    (root / "files.json").write_text(json.dumps(files))
    return root


def run_doit(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the project's doit."""
    return subprocess.run(
        [sys.executable, "-m", "doit", *arguments], cwd=root, env=environ(), capture_output=True, text=True, check=True
    )


def environ() -> dict[str, str]:
    """What every tool runs with."""
    return {**os.environ, "PYTHONPATH": str(CHECKOUT)}


def _bytes(seed: str, size: int) -> bytes:
    block = hashlib.sha256(seed.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


def _record(root: Path, names: list[str], artifact_bytes: int) -> dict[str, dict[str, str]]:
    """Writes each step's files and receipt, in order; the paths that other tools are told of."""
    from buildlib.core import freshness
    from buildlib.core.key import KEY_FORMAT
    from buildlib.core.receipt import FileRecord, Receipt
    from buildlib.core.remote import active_path, recompiled_path, source_path
    from buildlib.core.stages import wanted
    from buildlib.doit_parts.session import Session
    from buildlib.steps.world import FileWorld, observe_files
    from buildlib.store.receipts import now
    from buildlib.store.workspace import Workspace

    workspace = Workspace(root)
    session = Session(workspace)
    there: dict[str, str] = {}
    told: dict[str, dict[str, str]] = {}
    for name in names:
        subject = session.subject(name)
        device = subject.device
        real = root / device.paths.root
        onnx = root / "onnx" / f"{name}.onnx"
        onnx_sha = workspace.blobs.add(onnx)
        made = _bytes(f"artifact {name}", artifact_bytes)
        file_name = subject.model.artifact
        home = workspace.artifact(name, file_name)
        home.parent.mkdir(parents=True)
        home.write_bytes(made)
        made_sha = workspace.blobs.add(home)
        line = f"{made_sha}  {file_name}\n".encode()
        digest_file = home.with_name(f"{file_name}.sha256")
        digest_file.write_bytes(line)
        remote = {
            "source": source_path(device, subject.model, "supercombo"),
            "made": recompiled_path(device, file_name),
            "active": active_path(device, file_name),
        }
        for kind, path in remote.items():
            place = Path(str(real) + path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(onnx.read_bytes() if kind == "source" else made)
            there[path] = onnx_sha if kind == "source" else made_sha
        results: dict[str, dict[str, Any]] = {
            "source": {"sources": {"supercombo": {"sha256": onnx_sha, "size": SMALL, "inputs": [], "outputs": 15}}},
            "upload": {"remote": {"supercombo": {"path": remote["source"], "size": SMALL, "sha256": onnx_sha}}},
            "compile": {
                "artifacts": {"supercombo": {"path": remote["made"], "size": len(made), "sha256": made_sha}},
                "seconds": 600.0,
                "identity": {},
                "warnings": [],
            },
            "pull": {"artifacts": {"supercombo": made_sha}},
            "verify": {"verdicts": {"supercombo": {"good": True}}},
            "install": {"active": {"supercombo": {"path": remote["active"], "sha256": made_sha, "backup": None}}},
        }
        targets = (
            FileRecord(path=workspace.relative(home), size=len(made), sha256=made_sha),
            FileRecord(path=workspace.relative(digest_file), size=len(line), sha256=hashlib.sha256(line).hexdigest()),
        )
        observe_files(workspace, device.name, there) if name == names[-1] else None
        receipts: dict[str, str] = {}
        for stage in wanted(subject):
            world = FileWorld(workspace)
            judged = freshness.judge_model(subject, world, wanted(subject))[stage.name]
            assert judged.key is not None, judged
            assert judged.parts is not None, judged
            workspace.receipts.put(
                Receipt(
                    stage=stage.name,
                    model=name,
                    device=device.name,
                    key=judged.key,
                    key_format=KEY_FORMAT,
                    version=stage.version,
                    parts=judged.parts,
                    result=results.get(stage.name, {}),
                    targets=targets if stage.name == "pull" else (),
                    finished=now(),
                    seconds=1.0,
                )
            )
            receipts[stage.name] = str(workspace.receipts.path(stage.name, judged.key))
        told[name] = {
            "onnx": str(onnx),
            "blob": str(workspace.blobs.path(onnx_sha)),
            "uploaded": str(real) + remote["source"],
            "compiled": str(real) + remote["made"],
            "artifact": str(home),
            "digest": str(digest_file),
            "verdict": receipts.get("verify", ""),
            "active": str(real) + remote["active"],
        }
    workspace.hashes.save()
    return told


def save_probe(root: Path) -> None:
    """Keeps the probe that this project's preflight sends, so that other tools can send the very same."""
    from threading import Event

    from buildlib.console.lines import Console
    from buildlib.steps import preflight
    from buildlib.steps.services import open_services
    from buildlib.store.workspace import Workspace
    from buildlib.transports.local import LocalTransport

    kept: dict[str, Any] = {}
    real_run = LocalTransport.run

    def run(self: Any, argv: Any, **options: Any) -> Any:
        kept.update(argv=list(argv), stdin=options["stdin"])
        return real_run(self, argv, **options)

    workspace = Workspace(root)
    services = open_services(workspace, Event(), Console())
    with mock.patch.object(LocalTransport, "run", run):
        preflight.probe(services, workspace.catalog, workspace.catalog.devices["local"])
    (root / "probe.stdin").write_bytes(kept["stdin"])
    (root / "probe.json").write_text(json.dumps(kept["argv"]))
