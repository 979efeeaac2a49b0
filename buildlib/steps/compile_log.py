"""A compile's log: shown while it comes, kept whole, read for what it warns of."""

from __future__ import annotations

import re
from pathlib import Path

from buildlib.plain_text import plain
from buildlib.steps.context import StepContext
from buildlib.store import files

DTYPE_MISMATCH = re.compile(r"input \S+ has mismatch on dtype\. Expected dtypes\.half, received dtypes\.float\.")
"""Known and informational (guide, section 7); any other pair of dtypes is not."""
WARNING = re.compile(r"warn(ing)?\b", re.IGNORECASE)
"""Python's own are words like UserWarning."""


class Log:
    """A job's log as it comes: kept whole beside the artifact, its last line shown while it runs.

    What has come is kept under the job's key too, so that a build after a killed one reads on from the byte.
    """

    def __init__(self, context: StepContext, name: str = "compile.log") -> None:
        self._context = context
        self._text = bytearray()
        self._elapsed = 0.0
        self._unfinished: Path | None = None
        last = context.workspace.receipts.latest(context.model.name).get(f"compile@{context.device.name}")
        receipt = context.workspace.receipts.get("compile", last) if last else None
        self._usual = int(receipt.seconds) if receipt else None
        self.path: Path = context.workspace.compile_log(context.model.name).with_name(name)

    @property
    def reached(self) -> int:
        """Bytes that are here."""
        return len(self._text)

    def begin(self, job: str) -> None:
        """job: names this very run of the job. What an earlier build heard of it is not asked for again."""
        # The device says a part of the name; it must not lead anywhere else.
        job = re.sub(r"[^0-9A-Za-z.-]", "_", job)[:150].lstrip(".")
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
        """The log's lines, without what a terminal would obey."""
        return [plain(line) for line in self._text.decode("utf-8", "replace").splitlines()]

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
