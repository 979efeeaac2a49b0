"""Runs git. The only file that imports GitPython, and it uses its command runner alone (docs/decisions/0031)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from buildlib.errors import TargetError

MISLEADING = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE")
"""Variables that would point git at another repository than the one named; set inside hooks."""

_QUIET: Mapping[str, str] = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
_SSH = "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
_SETTINGS = ("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=60", "-c", "core.quotePath=false")


@dataclass(frozen=True, kw_only=True)
class Done:
    """A git command that ended. stdout: bytes as they came."""

    argv: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """Standard output as text, without the final newline."""
        return self.stdout.decode("utf-8", "surrogateescape").strip("\n")

    @property
    def last_words(self) -> str:
        """The lines of standard error that say why, on one line."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        telling = [line for line in lines if line.startswith(("fatal:", "error:", "remote:", "!"))] or lines
        return "; ".join(telling[-3:])[:400]


class Git:
    """git in one work tree."""

    def __init__(self, work_tree: Path) -> None:
        self.work_tree = work_tree
        self.small_blobs: dict[str, bytes] = {}
        """oid -> bytes, as `git_tree.blob` has read them: objects never change."""

    def run(
        self,
        *argv: str,
        stdin: bytes | Path | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Done:
        """Runs `git argv` in the work tree; stdin: bytes, or a file that is streamed. No prompt waits for a person.

        Raises TargetError where git is not installed, or, with check, on a status other than 0.
        """
        return self._run(argv, stdin, env, None, check=check)

    def _run(
        self,
        argv: tuple[str, ...],
        stdin: bytes | Path | None,
        env: Mapping[str, str] | None,
        output: IO[bytes] | None,
        *,
        check: bool,
    ) -> Done:
        from git import Git as Runner
        from git.exc import GitCommandNotFound

        if not self.work_tree.is_dir():  # GitPython would run it in the current directory instead
            raise TargetError(
                "the repository's directory is not there",
                where=str(self.work_tree),
                remedy="mount the share or correct `repository` of the target in models.yaml",
            )
        extra = dict(_QUIET)
        if "GIT_SSH_COMMAND" not in os.environ and "GIT_SSH" not in os.environ:
            extra["GIT_SSH_COMMAND"] = _SSH
        extra.update(env or {})
        with tempfile.TemporaryFile() if stdin is None or isinstance(stdin, bytes) else stdin.open("rb") as source:
            if isinstance(stdin, bytes):
                source.write(stdin)
                source.seek(0)
            try:
                result = Runner(str(self.work_tree)).execute(
                    ["git", "-C", str(self.work_tree), *_SETTINGS, *argv],
                    istream=source,
                    with_extended_output=True,
                    with_exceptions=False,
                    stdout_as_string=False,
                    strip_newline_in_stdout=False,
                    output_stream=output,
                    max_chunk_size=1 << 20,
                    env=extra,
                )
            except GitCommandNotFound as error:
                raise TargetError(
                    "git is not installed",
                    where=str(self.work_tree),
                    remedy="install git 2.36 or newer",
                ) from error
        assert isinstance(result, tuple)
        status, stdout, stderr = result
        done = Done(
            argv=argv,
            status=int(status),
            stdout=stdout if isinstance(stdout, bytes) else str(stdout or "").encode(),
            stderr=stderr if isinstance(stderr, str) else bytes(stderr).decode("utf-8", "replace"),
        )
        if check and done.status != 0:
            raise self.failed(done)
        return done

    def stream(self, output: IO[bytes], *argv: str) -> None:
        """Runs a command that must succeed and writes its standard output to a file, for large blobs."""
        self._run(argv, None, None, output, check=True)

    def text(self, *argv: str) -> str:
        """Standard output of a command that must succeed."""
        return self.run(*argv).text

    def ok(self, *argv: str) -> bool:
        """True when the command ends with status 0."""
        return self.run(*argv, check=False).status == 0

    def failed(self, done: Done, what: str | None = None, remedy: str | None = None) -> TargetError:
        """The error for a command that did not do what it should."""
        return TargetError(
            what or f"git {done.argv[0]} failed",
            where=str(self.work_tree),
            got=done.last_words or f"status {done.status}",
            remedy=remedy or "run the same command by hand to see more; the repository was not changed",
        )
