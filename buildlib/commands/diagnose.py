"""`doit diagnose MODEL | --file LOG | --compare-stock PATH`: causes and remedies (guide, sections 7, 10, 11, 18)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from buildlib import errors
from buildlib.artifact.describe import describe_diagnosis, describe_finding
from buildlib.commands.base import ProjectCommand, chosen_models, opt_json, print_json
from buildlib.console.lines import Console
from buildlib.core.diagnoses.diagnosis import LONGEST, Diagnosis, diagnose
from buildlib.core.flags import effective_profile, uses_own_profile
from buildlib.core.stages import STAGES
from buildlib.core.unknown_names import near
from buildlib.core.verdicts.findings import Finding, warn
from buildlib.core.verdicts.signals import judge_now, texts
from buildlib.core.world import Subject
from buildlib.doit_parts.session import Session
from buildlib.steps.services import open_services
from buildlib.steps.signals import installed_at, look
from buildlib.steps.world import read_observation
from buildlib.store import files

opt_log = {"name": "file", "short": "", "long": "file", "type": str, "default": "", "help": "read this log instead"}
opt_stock = {
    "name": "stock",
    "short": "",
    "long": "compare-stock",
    "type": str,
    "default": "",
    "help": "set flags, tinygrad and compile script against those of this openpilot tree (guide, section 18)",
}
opt_here = {
    "name": "here",
    "short": "",
    "long": "here",
    "type": bool,
    "default": False,
    "help": "only what lies on this workstation; no device is asked",
}


class DiagnoseCommand(ProjectCommand):
    """One sign never hides another; what is not known is shown whole."""

    name = "diagnose"
    doc_purpose = "name causes and remedies for what logs say"
    doc_usage = "[MODEL ...] | --file LOG | --compare-stock PATH [MODEL ...]"
    own_options = (opt_json, opt_log, opt_stock, opt_here)

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Diagnoses a file, a difference, or what is known of each model, here and on its device."""
        if options["stock"]:
            return compare_stock(session, Path(options["stock"]), arguments, options["json"])
        found: dict[str, list[Finding]] = {}
        if options["file"]:
            if arguments:
                raise self.wrong_words(arguments, "together with --file")
            logs = {options["file"]: Said(read(Path(options["file"])))}
        else:
            logs = gathered(session, arguments)
            if not options["here"]:
                for name in chosen_models(session, arguments):
                    there, findings = fetched(session, name)
                    logs |= there
                    found |= findings
        diagnoses = {name: diagnosed(said) for name, said in logs.items()}
        if options["json"]:
            plain: dict[str, Any] = {name: msgspec.to_builtins(one) for name, one in diagnoses.items()}
            print_json(plain | {name: {"findings": msgspec.to_builtins(ones)} for name, ones in found.items()})
            return 0
        if not diagnoses and not found:
            print("There is no log to read: nothing failed here, and no compile has run.")
        for name, one in diagnoses.items():
            print(name)
            text = logs[name].text
            if logs[name].failed and not one.failures:
                lines = text.splitlines()
            else:
                lines = describe_diagnosis(one) if text.strip() else ["empty: nothing was logged"]
            print("\n".join(f"  {line}" for line in lines))
        for name, findings_ in found.items():
            print(name)
            lines = [line for finding in findings_ for line in describe_finding(finding)]
            print("\n".join(f"  {line}" for line in lines or ["no bad signal"]))
        return 0


class Said(NamedTuple):
    """A text to be diagnosed. failed: by a step that failed, or for a device that was not reached."""

    text: str
    failed: bool = False


def diagnosed(said: Said) -> Diagnosis:
    """What a text says; one that is a failure by itself says at least that."""
    found = diagnose(said.text)
    if said.failed and not found.failures and found.unknown is None:
        return msgspec.structs.replace(found, unknown=said.text)
    return found


def read(path: Path) -> str:
    """A log's text, of a long one its end. Raises UsageError."""
    try:
        if (odd := files.special(path)) and "FIFO" not in odd:  # what a shell's <(command) names is one
            raise errors.UsageError("no log", where=str(path), got=odd, remedy="name a file")
        with path.open("rb") as file:
            if file.seekable():
                file.seek(max(0, path.stat().st_size - LONGEST))
            text = b""
            while block := file.read(LONGEST):
                text = (text + block)[-LONGEST:]
        return text.decode("utf-8", "replace")
    except OSError as error:
        raise errors.UsageError(
            f"the log cannot be read: {error.strerror}",
            where=str(path),
            remedy=f"correct the path{_among(path)}, or let `doit diagnose MODEL` find the logs itself",
        ) from error


def _among(path: Path) -> str:
    """The file of its folder that was probably meant, as a part of a sentence."""
    try:
        meant = near(path.name, [file.name for file in path.parent.iterdir() if file.is_file()])
    except OSError:
        return ""
    return f" (did you mean {path.with_name(meant)}?)" if meant else ""


def gathered(session: Session, arguments: list[str]) -> dict[str, Said]:
    """The logs that this workstation has of each model: failed attempts, the last compile, the last validation."""
    found: dict[str, Said] = {}
    for name in chosen_models(session, arguments):
        for stage in STAGES:
            attempt = session.workspace.receipts.attempt(stage.name, name)
            if attempt is not None:
                found[f"{name} {stage.name}, failed {attempt.finished}"] = Said(attempt.error, failed=True)
        for log in sorted(session.workspace.compile_log(name).parent.glob("*.log")):
            if log.is_file():
                found[f"{name} {session.workspace.relative(log)}"] = Said(read(log))
    return found


def fetched(session: Session, name: str) -> tuple[dict[str, Said], dict[str, list[Finding]]]:
    """The logs on a model's device, and what its signals say; one that does not answer is a line, no error."""
    subject = session.subject(name)
    device = subject.device.name
    try:
        seen = look(open_services(session.workspace, session.cancel, Console()).link(subject.device), subject)
    except errors.Cancelled:
        raise
    except errors.BuildError as error:
        return {f"{name} on {device}, which was not asked, failed now": Said(error.render(), failed=True)}, {}
    logs = {f"{name} on {device}: {what}": Said(text) for what, text in texts(seen).items()}
    return logs, {f"{name} on {device}: signals": list(judge_now(seen, installed_at(seen)))}


def other_profile(subject: Subject) -> Iterator[Finding]:
    """What to know of a comparison for a device that compiles with another profile than the model's own."""
    if uses_own_profile(subject.model, subject.device):
        return
    used = effective_profile(subject.catalog, subject.model, subject.device).name
    yield warn(
        "other_profile",
        f"{subject.device.name} compiles {subject.model.name} with another profile; its own is compared here",
        expected=f"a device that compiles with profile {subject.model.profile}",
        found=f"{subject.device.name}, profile {used}",
        guide="18",
        remedy="doit diagnose --compare-stock PATH device=NAME compares that device's tinygrad too",
    )


def compare_stock(session: Session, tree: Path, arguments: list[str], as_json: bool) -> int:
    """Each model's way to be compiled against a stock tree's; the status is 1 when one differs in what counts."""
    from buildlib.core.diagnoses.stock_comparison import compare_toolchains
    from buildlib.steps.stock import our_toolchain, stock_toolchains

    stocks = stock_toolchains(session.workspace, tree)
    found: dict[str, list[Finding]] = {}
    for name in chosen_models(session, arguments):
        subject = session.subject(name)
        ours = our_toolchain(subject, read_observation(session.workspace, subject.device.name))
        told = [*other_profile(subject)]
        for stock in stocks:
            found[f"{name} against {stock.name}"] = [*told, *compare_toolchains(ours, stock)]
    if as_json:
        print_json({name: msgspec.to_builtins(findings) for name, findings in found.items()})
    else:
        for name, findings in found.items():
            print(name)
            lines = [line for finding in findings for line in describe_finding(finding)]
            print("\n".join(f"  {line}" for line in lines or ["compiled alike, as far as flags and toolchain tell"]))
    bad = any(finding.severity == "refuse" for findings in found.values() for finding in findings)
    return errors.EXIT_FAILED if bad else 0
