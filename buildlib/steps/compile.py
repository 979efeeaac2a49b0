"""compile:M (guide, sections 5 to 7): the ONNX becomes an artifact, in a detached job on the device."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

from buildlib import errors
from buildlib.core.diagnosis import diagnose
from buildlib.core.remote import recompiled_path, source_path
from buildlib.device.link import DeviceLink
from buildlib.steps import toolchain
from buildlib.steps.context import Outcome, StepContext
from buildlib.steps.operators import require_operators
from buildlib.steps.readiness import require_ready
from buildlib.steps.world import builtin_script
from buildlib.store import files
from buildlib.toolchain.c_compiler import check_tinygrad_version

DTYPE_MISMATCH = re.compile(r"input \S+ has mismatch on dtype\. Expected dtypes\.\w+, received dtypes\.\w+\.")
"""Known and informational (guide, section 7)."""
WARNING = re.compile(r"\bwarn(ing)?\b", re.IGNORECASE)


def run(context: StepContext) -> Outcome:
    """Starts the job of this key, or finds the one that an earlier build started, and follows it to its end."""
    if toolchain.is_local(context.device):
        check_tinygrad_version()
    warnings = require_ready(context)
    link = context.link()
    require_operators(context, link)
    output = recompiled_path(context.device, context.model.artifact)
    request = job_request(context, link, output)
    log = Log(context)
    try:
        begun = link.call("job_start", key=context.key, again=context.again, **request)
        log.begin(f"{context.key[:32]}-{begun['since']}")
        if not begun["started"] and begun["state"] == "running":
            context.events.step(context.model.name, context.stage, "takes up the compile that runs there already")
        status = link.follow(context.key, on_log=log.take, on_tick=log.tick, offset=log.reached)
        log.end()
    except errors.Cancelled:
        end_job(link, context.key)
        log.end()
        raise
    finally:
        log.keep()
    if status["state"] != "ok":
        raise failure(context, status, log)
    made = status["output"]
    return Outcome(
        result={
            "artifacts": {"supercombo": {"path": output, "size": made["size"], "sha256": made["sha256"]}},
            "seconds": status["elapsed"],
            "identity": status["identity"],
            "warnings": list(log.warnings()),
        },
        summary=f"{status['elapsed']:.1f} s, {made['size'] / 1e6:.1f} MB",
        warnings=(*warnings, *log.warnings()),
        device_files={output: made["sha256"]},
    )


def job_request(context: StepContext, link: DeviceLink, output: str) -> dict[str, Any]:
    """What the job is told: the guide's command, its built environment, and what must not move meanwhile."""
    identity = dict(context.parts["toolchain"])
    script, inputs = ship_script(context, link)
    for role, sha256 in context.parts["onnx"].items():
        inputs.append({"path": source_path(context.device, context.model, role), "sha256": sha256})
    device = link.device
    return {
        "subject": f"compile {context.model.name}",
        "argv": [link.python, link.real(script), *compile_command(context, link, output)],
        "env": toolchain.compile_environment(context.workspace, device, context.parts["flags"], identity),
        "inputs": inputs,
        "toolchain": toolchain.spec(context.workspace, device, builtin_script()[1]),
        "expected_identity": with_script(context, identity),
        "output": output,
        "need": sum(context.workspace.blobs.path(sha256).stat().st_size for sha256 in context.parts["onnx"].values()),
        "timeout": device.timeouts.compile,
        "power": not toolchain.is_local(device),
    }


def with_script(context: StepContext, identity: dict[str, Any]) -> dict[str, Any]:
    """The identity as the device reports it: there our own script is part of it too."""
    if context.device.compile_script == "builtin":
        return {**identity, "script": context.parts["script"]}
    return identity


def compile_command(context: StepContext, link: DeviceLink, output: str) -> list[str]:
    """The guide's arguments (section 5)."""
    arguments = context.parts["arguments"]
    (role,) = context.parts["onnx"]
    return [
        "--model-size",
        _size(arguments["model_size"]),
        "--camera-resolutions",
        *(_size(size) for size in arguments["camera_resolutions"]),
        "--onnx",
        link.real(source_path(context.device, context.model, role)),
        "--output",
        link.real(output),
        "--frame-skip",
        str(arguments["frame_skip"]),
        "--expected-device",
        arguments["expected_device"],
    ]


def ship_script(context: StepContext, link: DeviceLink) -> tuple[str, list[dict[str, str]]]:
    """The compile script's device path, and the inputs that it adds; ours is sent under a name with its sha256."""
    if context.device.compile_script != "builtin":
        return context.device.compile_script, []
    local, sha256 = builtin_script()
    remote = f"{context.device.paths.state}/scripts/{local.stem}-{sha256[:16]}.py"
    link.push(local, remote, sha256=sha256)
    return remote, [{"path": remote, "sha256": sha256}]


def end_job(link: DeviceLink, key: str) -> None:
    """Ends the job and everything that it started, although the build itself is being stopped."""
    link.cancel = None
    with contextlib.suppress(errors.BuildError):
        link.call("job_cancel", key=key)


def failure(context: StepContext, status: dict[str, Any], log: Log) -> errors.BuildError:
    """What a job's bad end means."""
    reason, state = str(status.get("reason", "")), status["state"]
    name = f"{context.model.name} on {context.device.name}"
    where: dict[str, Any] = {"log": str(log.path), "where": name}
    if state == "onroad":
        return errors.RailRefused(
            f"the compile was ended: {reason}", remedy="park the car, then run doit again", **where
        )
    if state == "input_changed":
        return errors.InputChanged(reason, remedy="nothing was recorded; run doit again", **where)
    if state == "lost":
        return errors.DeviceError(f"the compile was lost: {reason}", remedy="run doit again", **where)
    if state == "timeout":
        remedy = f"raise devices.{context.device.name}.timeouts.compile in models.yaml"
        return errors.CompileFailed(f"the compile took too long: {reason}", remedy=remedy, **where)
    return diagnosed(context, log, reason, where)


def diagnosed(context: StepContext, log: Log, reason: str, where: dict[str, Any]) -> errors.CompileFailed:
    """The compile's own last error, with the cause and remedy of the sign that leads its log."""
    signs = diagnose("\n".join(log.lines())).failures
    said = log.last_error() or reason
    if not signs:
        return errors.CompileFailed(said, remedy=f"read the log, then doit {context.model.name}", **where)
    others = tuple(f"{sign.cause}: {sign.remedy}" for sign in signs[1:4])
    return errors.CompileFailed(
        f"{said}: {signs[0].cause}", remedy=signs[0].remedy, guide=signs[0].guide, signs=others, **where
    )


class Log:
    """A job's log as it comes: kept whole beside the artifact, its last line shown while it runs.

    What has come is kept under the job's key too, so that a build after a killed one reads on from the byte.
    """

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._text = bytearray()
        self._elapsed = 0.0
        self._unfinished: Path | None = None
        last = context.workspace.receipts.latest(context.model.name).get(f"compile@{context.device.name}")
        receipt = context.workspace.receipts.get("compile", last) if last else None
        self._usual = int(receipt.seconds) if receipt else None
        self.path: Path = context.workspace.compile_log(context.model.name)

    @property
    def reached(self) -> int:
        """Bytes that are here."""
        return len(self._text)

    def begin(self, job: str) -> None:
        """job: names this very run of the job. What an earlier build heard of it is not asked for again."""
        self._unfinished = self._context.workspace.state / "incoming" / f"{job}.log.part"
        self._unfinished.parent.mkdir(parents=True, exist_ok=True)
        if self._unfinished.is_file():
            self._text += self._unfinished.read_bytes()

    def end(self) -> None:
        """The job has ended, and all of its log is here."""
        if self._unfinished is not None:
            self._unfinished.unlink(missing_ok=True)

    def take(self, offset: int, data: bytes) -> None:
        """Bytes of the log."""
        self._text += data
        if self._unfinished is not None:
            with self._unfinished.open("ab") as file:
                file.write(data)
        self.tick(self._elapsed)

    def tick(self, elapsed: float) -> None:
        """A second passed."""
        self._elapsed = elapsed
        lines = bytes(self._text[-400:]).decode("utf-8", "replace").strip().splitlines()
        context = self._context
        context.events.progress(
            context.model.name, context.stage, int(elapsed), self._usual, lines[-1][:60] if lines else ""
        )

    def keep(self) -> None:
        """Writes the log where people look for it."""
        if self._text:
            files.write(self.path, bytes(self._text))

    def lines(self) -> list[str]:
        """The log's lines."""
        return self._text.decode("utf-8", "replace").splitlines()

    def warnings(self) -> list[str]:
        """Lines that warn of something that is not known to be harmless, each once."""
        found = [line.strip() for line in self.lines() if WARNING.search(line)]
        # Python shows the source line under a warning; it says nothing new.
        return list(
            dict.fromkeys(line for line in found if not (DTYPE_MISMATCH.search(line) or "warnings.warn(" in line))
        )

    def last_error(self) -> str | None:
        """The compile script's own last error line."""
        errors_ = [line for line in self.lines() if line.startswith("error: ")]
        return errors_[-1].removeprefix("error: ") if errors_ else None


def _size(size: list[int]) -> str:
    return f"{size[0]}x{size[1]}"
