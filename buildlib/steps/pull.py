"""pull:M (guide, section 12): the artifact comes home, byte for byte, with its hash beside it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from buildlib.core.receipt import FileRecord
from buildlib.steps.context import Outcome, StepContext
from buildlib.store import files


def run(context: StepContext) -> Outcome:
    """Writes `artifacts/M/NAME.pkl` and `NAME.pkl.sha256`, from the content store where it has the bytes."""
    targets: list[FileRecord] = []
    total = 0
    fetched = False
    for role, made in context.upstream["compile"].result["artifacts"].items():
        sha256, size = made["sha256"], made["size"]
        name = context.model.artifacts[role]
        context.workspace.artifact_blob(context.model.name, name, sha256)
        if not context.workspace.blobs.has(sha256):
            _fetch(context, made["path"], sha256, size)
            fetched = True
        path = context.workspace.artifact(context.model.name, name)
        context.workspace.blobs.restore(sha256, path)
        targets.append(FileRecord(path=context.workspace.relative(path), size=size, sha256=sha256))
        targets.append(_write_digest(context, path, sha256))
        total += size
    verb = "from the device" if fetched else "from the content store"
    hashes = ", ".join(made["sha256"][:12] for made in context.upstream["compile"].result["artifacts"].values())
    return Outcome(
        result={"artifacts": dict(context.parts["artifacts"])},
        targets=tuple(targets),
        summary=f"{total / 1e6:.1f} MB {verb}, sha256 {hashes}",
    )


def _fetch(context: StepContext, remote: str, sha256: str, size: int) -> None:
    incoming = context.workspace.state / "incoming" / f"{sha256}-{context.model.name}.part"
    incoming.parent.mkdir(parents=True, exist_ok=True)
    context.link().fetch(remote, incoming, sha256=sha256, size=size, on_progress=context.progress())
    context.workspace.blobs.adopt(incoming, sha256)


def _write_digest(context: StepContext, artifact: Path, sha256: str) -> FileRecord:
    """The line that `sha256sum -c` and `shasum -a 256 -c` take, run in the artifact's directory."""
    path = artifact.with_name(f"{artifact.name}.sha256")
    line = f"{sha256}  {artifact.name}\n".encode()
    files.write(path, line)
    digest = hashlib.sha256(line).hexdigest()
    context.workspace.hashes.note(path, digest)
    return FileRecord(path=context.workspace.relative(path), size=len(line), sha256=digest)
