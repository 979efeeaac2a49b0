"""Names operators that the device's tinygrad lacks before a compile spends minutes to find out."""

from __future__ import annotations

import posixpath
from pathlib import Path

import msgspec

from buildlib import errors
from buildlib.artifact.onnx_reader import inspect_onnx
from buildlib.artifact.operators import ONNX_SOURCES
from buildlib.core.sources.operators import SupportedOperators, missing_operators, read_operators
from buildlib.device.link import DeviceLink
from buildlib.steps.context import StepContext
from buildlib.steps.world import read_observation
from buildlib.store import files

MOST_SOURCE = 16 << 20
"""Bytes. tinygrad's ONNX reader has a tenth of a megabyte."""


def require_operators(context: StepContext, link: DeviceLink) -> None:
    """Raises SourceError for an ONNX with operators that this tinygrad has not. What cannot be asked is not judged."""
    supported = supported_operators(context, link)
    if supported is None:
        return
    for role, sha256 in context.parts["onnx"].items():
        inspection = inspect_onnx(context.workspace.blobs.path(sha256), where=f"{context.model.name} {role}")
        problems = missing_operators(inspection, supported)
        if problems:
            raise errors.SourceError(
                "; ".join(problem.text() for problem in problems[:4]),
                where=f"{context.model.name} on {context.device.name}",
                remedy=problems[0].remedy or "use a tinygrad that has them, or another export of the model",
            )


def supported_operators(context: StepContext, link: DeviceLink) -> SupportedOperators | None:
    """The table of the device's tinygrad, read from its source once for each content."""
    tinygrad = context.parts["toolchain"].get("tinygrad")
    known = context.workspace.state / "cache" / "operators" / f"{tinygrad}.msgpack"
    try:
        return msgspec.msgpack.decode(known.read_bytes(), type=SupportedOperators | None)
    except (OSError, msgspec.MsgspecError, RecursionError):
        pass
    source = onnx_source(context, link)
    found = read_operators(source) if source is not None else None
    files.write(known, msgspec.msgpack.encode(found))
    return found


def onnx_source(context: StepContext, link: DeviceLink) -> str | None:
    """The text of tinygrad's ONNX reader, from the device; None where it is not a device path or not there."""
    seen = read_observation(context.workspace, context.device.name)
    package = seen.people.get("tinygrad_path") if seen is not None else None
    if not package:
        return None
    root = link.real("")
    top = posixpath.dirname(package)
    if root and not top.startswith(f"{root}/"):
        return text_here(top) if context.device.transport == "local" else None
    top = top.removeprefix(root)
    for name in ONNX_SOURCES[:2]:
        path = f"{top}/{name}"
        there = link.call("hash", files=[path])["files"][path]
        if there is None or there["size"] > MOST_SOURCE:
            continue
        # Another device's task may bring the same file at the same time.
        local = context.workspace.state / "incoming" / f"{context.device.name}-{context.model.name}-onnx.py"
        link.fetch(path, local, sha256=there["sha256"], size=there["size"])
        text = local.read_text(encoding="utf-8", errors="replace")
        local.unlink()
        return text
    return None


def text_here(top: str) -> str | None:
    """The same from this workstation, which `local` compiles with."""
    for name in ONNX_SOURCES[:2]:
        try:
            return (Path(top) / name).read_text(encoding="utf-8")
        except OSError:
            continue
    return None
