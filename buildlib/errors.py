"""Every way a build fails.

An error is a value that a person can act on: where it is, what was expected, what was found, what to try.
`render` is the only place that lays it out; commands and reporters print that text and no traceback.
"""

from __future__ import annotations

from buildlib.plain_text import printable

# Exit statuses. 0 to 3 are doit's own (0 done, 1 a task failed or could not run, 2 an error in doit, 3 wrong usage).
EXIT_FAILED = 1
EXIT_USAGE = 3
EXIT_CATALOG = 4
EXIT_LOCKED = 5
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class BuildError(Exception):
    """A failure with its remedy.

    what: one sentence, what went wrong.
    where: file:line, device, URL or path it concerns.
    expected, got: the two sides of a broken expectation.
    remedy: the next thing to type or look at.
    guide: section of the compile guide that knows this failure.
    log: path of a log that holds more.
    signs: causes that its log shows, the leading one first.
    """

    exit_status = EXIT_FAILED

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        remedy: str | None = None,
        guide: str | None = None,
        log: str | None = None,
        signs: tuple[str, ...] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.expected = expected
        self.got = got
        self.remedy = remedy
        self.guide = guide
        self.log = log
        self.signs = signs

    def headline(self) -> str:
        """The failure in one line: `where: what: expected X, got Y`."""
        where, expected, got = (_in_one_line(part) for part in (self.where, self.expected, self.got))
        parts = [where] if where else []
        parts.append(self.what)
        if expected is not None:
            parts.append(f"expected {expected}, got {got}" if got is not None else f"expected {expected}")
        elif got is not None:
            parts.append(f"got {got}")
        return printable(": ".join(parts))

    def render(self) -> str:
        """The whole message for a terminal, remedy and log on their own lines."""
        lines = [self.headline()]
        lines += [f"  sign  {sign}" for sign in self.signs]
        if self.guide:
            lines.append(f"  why   guide section {self.guide}")
        if self.remedy:
            lines.append(f"  try   {self.remedy}")
        if self.log:
            lines.append(f"  log   {self.log}")
        return printable("\n".join(lines))

    def __str__(self) -> str:
        return self.render()


def _in_one_line(text: str | None) -> str | None:
    """Names come from outside: a line break in one would make a second line that looks like the build's own."""
    return text if text is None or "\n" not in text else text.replace("\n", "\\n")


class CatalogError(BuildError):
    """models.yaml is wrong. Holds every problem found, not the first one only."""

    exit_status = EXIT_CATALOG

    def __init__(self, problems: tuple[str, ...], *, remedy: str | None = None) -> None:
        self.problems = problems
        count = f"{len(problems)} error{'s' if len(problems) != 1 else ''}, nothing was run."
        super().__init__("\n".join((*problems, count)), remedy=remedy)


class UsageError(BuildError):
    """The command line asks for something that does not exist."""

    exit_status = EXIT_USAGE


class StoreError(BuildError):
    """A file of the project's own state cannot be read or written."""


class BuildLocked(BuildError):
    """Another build holds the checkout and did not end in the time allowed."""

    exit_status = EXIT_LOCKED


class SourceError(BuildError):
    """A source ONNX is missing, unreachable or not what it should be."""


class SourceUnavailable(SourceError):
    """A source cannot be reached now: unmounted, offline, refused. While its blob is in the store, a warning."""


class ArtifactError(BuildError):
    """A file is no artifact, is damaged, or cannot be read safely."""


class DeviceError(BuildError):
    """A device answered, and the answer is that this cannot be done."""


class DeviceUnreachable(DeviceError):
    """No answer: refused, timed out, or silent. What is fresh stays fresh."""


class ConnectionLost(DeviceError):
    """The link broke in the middle of a command. The step may be resumed."""


class DeviceBusy(DeviceError):
    """Another job holds the device's lock; its owner is named."""


class TransferFailed(DeviceError):
    """Bytes arrived short or changed; nothing was put under its name."""


class HostKeyError(DeviceError):
    """The host key is unknown or changed. Never retried."""


class RailRefused(BuildError):
    """A rail: nothing overrides it. Nothing was changed."""


class CompileFailed(BuildError):
    """The compile ended with an error; its log is kept."""


class VerdictRefused(BuildError):
    """The artifact exists and is not good enough to go on with."""


class InputChanged(BuildError):
    """An input moved while its step ran: nothing is recorded."""


class TargetError(BuildError):
    """A models repository or other publishing target cannot take the artifact."""


class OutcomeUnknown(TargetError):
    """The remote stopped answering in the middle: whether it took the publication is not known here."""


class Cancelled(BuildError):
    """The user or the system asked the build to stop."""

    exit_status = EXIT_INTERRUPTED


def unforeseen(what: str, error: Exception) -> BuildError:
    """An exception that is no BuildError: the workstation's own refusals (full, read-only, gone), or an error here."""
    if not isinstance(error, OSError):
        return internal(error)
    return StoreError(
        f"{what} cannot read or write here: {error.strerror or error}",
        where=str(error.filename) if error.filename else None,
        remedy="check the free space (`df -h`) and the owner of the project's files, then run doit again",
    )


def internal(error: Exception) -> BuildError:
    """An exception that nobody foresaw, told as one line; the trace is for `--debug`."""
    return BuildError(
        f"an error of this tool: {type(error).__name__}: {error}",
        remedy="run it again with --debug and report what it shows",
    )
