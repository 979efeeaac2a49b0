"""`doit attest MODEL` (guide, section 9.2): what a person saw on the road, asked, checked against the device, kept."""

from __future__ import annotations

import getpass
import json
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from buildlib import errors
from buildlib.commands.base import ProjectCommand, chosen_models
from buildlib.console.lines import Console
from buildlib.core import freshness
from buildlib.core.attestation import AFTER_PUBLISHING, POINTS, Attestation, contradictions
from buildlib.core.remote import active_path
from buildlib.core.selection import file_names
from buildlib.core.stages import published_digests
from buildlib.core.verdicts.signals import crashes_since, onroad_since, stale
from buildlib.core.world import Subject
from buildlib.doit_parts.session import Session
from buildlib.steps import preflight
from buildlib.steps.publish import runtime_digest
from buildlib.steps.services import open_services
from buildlib.steps.signals import installed_at, look
from buildlib.steps.world import FileWorld
from buildlib.store import attestations
from buildlib.store.receipts import now

HEARS_WITHIN = 0.2
"""Seconds after which a question that stands unanswered looks for a signal."""

opt_file = {
    "name": "answers",
    "short": "",
    "long": "json",
    "type": str,
    "default": "",
    "help": 'take the answers from this file: {"by": NAME, "points": {POINT: true, ...}, "notes": TEXT}',
}
opt_published = {
    "name": "published",
    "short": "",
    "long": "published",
    "type": bool,
    "default": False,
    "help": "about the file downloaded through the selector after publishing (guide, section 16)",
}


class AttestCommand(ProjectCommand):
    """Refuses what the device itself contradicts. Other bytes or another runtime make an attestation void."""

    name = "attest"
    doc_purpose = "record what a person saw of a model on the road"
    doc_usage = "MODEL"
    own_options = (opt_file, opt_published)
    writes = True

    def work(self, session: Session, options: Any, arguments: list[str]) -> int:
        """Asks, compares, keeps, commits."""
        if len(arguments) != 1:
            raise errors.UsageError("one model is attested at a time", expected="doit attest MODEL")
        (name,) = chosen_models(session, arguments)
        subject = session.subject(name)
        artifacts = installed(session, subject)
        questions = AFTER_PUBLISHING if options["published"] else POINTS
        answers = from_file(options["answers"], questions) if options["answers"] else asked(session, questions)
        observed = observe(session, subject)
        # The device has just been seen anew: what was driven has to be what is built for the runtime it has now.
        if installed(session, subject) != artifacts:
            raise errors.VerdictRefused(f"{name} was built anew while its points were answered", where=name)
        wrong = contradictions(answers["points"], observed, artifacts, published=options["published"])
        if wrong:
            raise errors.VerdictRefused(
                f"not attested: {'; '.join(wrong)}",
                where=name,
                guide="16" if options["published"] else "9.2",
                remedy="drive the installed artifact once more, then attest what you saw"
                if set(answers["points"]) == set(questions)
                else f"answer each of {', '.join(questions)}",
            )
        runtime = runtime_digest(session.workspace, subject.device.name)
        attestation = Attestation(
            model=name,
            artifacts=artifacts,
            runtime=runtime or "",
            device=subject.device.name,
            unit=FileWorld(session.workspace).device(subject.device.name).unit,
            by=answers["by"],
            on=now(),
            points=answers["points"],
            notes=answers.get("notes", ""),
            observed=observed,
            published=options["published"],
        )
        path = attestations.write(session.workspace.root, attestation)
        print(f"{name}: attested by {attestation.by} in {session.workspace.relative(path)}{commit(path, attestation)}")
        return 0


def installed(session: Session, subject: Subject) -> dict[str, str]:
    """File name -> sha256 of what was compiled and installed. Raises VerdictRefused where nothing was."""
    judged = freshness.judge_model(subject, FileWorld(session.workspace))
    compiled, active = judged["compile"].receipt, judged["install"].receipt
    if compiled is None or active is None:
        raise errors.VerdictRefused(
            f"{subject.model.name} has no installed artifact to attest, or not for what its device runs now",
            remedy=f"doit explain {subject.model.name}; doit install:{subject.model.name}",
        )
    return published_digests(subject.model, {"compile": compiled})


def from_file(name: str, questions: Mapping[str, str]) -> dict[str, Any]:
    """Answers for programs."""
    remedy = f"the points are {', '.join(questions)}"
    try:
        told = json.loads(Path(name).read_text(encoding="utf-8"))
        points = {str(point): answer for point, answer in told["points"].items()}
        by = told["by"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise errors.UsageError(
            f"the answers cannot be read: {getattr(error, 'strerror', None) or error}",
            where=name,
            expected='{"by": NAME, "points": {POINT: true, ...}}',
            remedy=remedy,
        ) from error
    if not isinstance(by, str) or not by.strip() or not all(isinstance(answer, bool) for answer in points.values()):
        raise errors.UsageError(
            "the answers are not of the right form", where=name, expected="a name, and true or false", remedy=remedy
        )
    return {"by": by.strip(), "points": points, "notes": str(told.get("notes", ""))}


def asked(session: Session, questions: Mapping[str, str]) -> dict[str, Any]:
    """Answers of the person at the terminal."""
    if not sys.stdin.isatty():
        raise errors.UsageError("nobody is at the terminal to answer", remedy="doit attest MODEL --json FILE")
    try:
        with session.interrupts.at_once():
            points = {
                name: _answer(f"{text}? [y/N] ").strip().lower() in ("y", "yes") for name, text in questions.items()
            }
            by = _answer(f"your name [{getpass.getuser()}] ").strip() or getpass.getuser()
            return {"by": by, "points": points, "notes": _answer("notes: ").strip()}
    except (EOFError, errors.Cancelled) as stopped:
        print()  # behind the question
        if isinstance(stopped, errors.Cancelled):
            raise
        raise errors.UsageError(
            "the answers ended before the questions: nothing was attested", remedy="doit attest MODEL --json FILE"
        ) from None


def _answer(question: str) -> str:
    """A line that was typed. Raises EOFError at the end of all, and what a signal raises, within a moment.

    `input` is deaf to a signal that comes after its prompt and before its read, until a line is typed.
    """
    print(question, end="", flush=True)
    while not select.select([sys.stdin], (), (), HEARS_WITHIN)[0]:
        pass
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def observe(session: Session, subject: Subject) -> dict[str, Any]:
    """What the device says for itself: active hashes, selection, boot, onroad and crashes since the install.

    Its runtime is recorded with it: an attestation holds for the one that was driven, not for one seen some days ago.
    """
    services = open_services(session.workspace, session.cancel, Console())
    paths = {name: active_path(subject.device, name) for name in subject.model.artifacts.values()}
    link = services.link(subject.device)
    answer = link.call("probe", **preflight.request(services, session.workspace.catalog, subject.device))
    preflight.record(services, subject.device, answer)
    there = answer["files"]
    seen = look(link, subject)
    installed = installed_at(seen)
    return {
        "active": {name: (there[path] or {}).get("sha256", "") for name, path in paths.items()},
        "selected": file_names(answer["health"].get("active_bundle")),
        "boot": seen.boot,
        "onroad_since_install": onroad_since(seen, installed) if installed is not None else None,
        "crashes": crashes_since(seen, installed) if installed is not None else [],
        "stale": [finding.found for finding in stale(seen)],
    }


def commit(path: Path, attestation: Attestation) -> str:
    """Commits the file where the project is a git checkout; what to say about it."""

    def git(*argv: str) -> bool:
        done = subprocess.run(("git", "-C", str(path.parent), *argv), capture_output=True, check=False)
        return done.returncode == 0

    if not git("rev-parse", "--is-inside-work-tree"):
        return ""
    subject = f"Attest {attestation.model} {' '.join(sha[:8] for sha in attestation.artifacts.values())}"
    if git("add", "--", path.name) and git("commit", "-q", "-m", subject, "--", path.name):
        return ", committed"
    return "; commit it yourself, git refused"
