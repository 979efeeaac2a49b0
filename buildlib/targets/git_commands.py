"""Runs git. The only file that imports GitPython, and it uses its command runner alone (docs/decisions/0031)."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from buildlib.errors import TargetError
from buildlib.plain_text import without_logins

MISLEADING = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_NAMESPACE",
    "GIT_COMMON_DIR",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_ATTR_SOURCE",
    "GIT_ICASE_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
)
"""Variables that would show git another repository than the one named, or other paths in it; set inside hooks."""

_QUIET: Mapping[str, str] = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
    # What stands here under another's name does not stand so in the remote.
    "GIT_NO_REPLACE_OBJECTS": "1",
}
_SSH = "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
_NETWORK = ("fetch", "push", "ls-remote", "lfs")
_SETTINGS = tuple(
    word
    for setting in (
        "http.lowSpeedLimit=1",
        "http.lowSpeedTime=60",
        "core.quotePath=false",
        "core.fsmonitor=false",
        "color.ui=false",
        "log.showSignature=false",
        "trailer.separators=:",
        "i18n.commitEncoding=UTF-8",
        "i18n.logOutputEncoding=UTF-8",
        # Nothing but the one commit goes over, and no cleaning up begins while objects wait for their commit.
        "submodule.recurse=false",
        "fetch.recurseSubmodules=false",
        "push.recurseSubmodules=no",
        "gc.auto=0",
        "maintenance.auto=false",
    )
    for word in ("-c", setting)
)


_TELLING = re.compile(r"^(fatal:|error:|remote:|!)|denied", re.IGNORECASE)
"""Lines that say why: git's own, a host's (`ERROR: Permission to X denied to Y`), ssh's (`Permission denied`)."""


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
        # What git adds to every push that fails says nothing beside a hook's own words.
        said = [line for line in lines if not line.startswith(("error: failed to push some refs", "hint:"))] or lines
        telling = [line for line in said if _TELLING.search(line)] or said
        return "; ".join(telling[-3:])[:400]


class Git:
    """git in one work tree."""

    def __init__(self, work_tree: Path) -> None:
        self.work_tree = work_tree
        self._ssh_configured: bool | None = None
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
        if argv[0] in _NETWORK and not self._own_ssh():
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
            stderr=without_logins(stderr if isinstance(stderr, str) else bytes(stderr).decode("utf-8", "replace")),
        )
        if check and done.status != 0:
            raise self.failed(done)
        return done

    def _own_ssh(self) -> bool:
        """True where somebody has said with which ssh, and so with which key, to go to the remote."""
        if "GIT_SSH_COMMAND" in os.environ or "GIT_SSH" in os.environ:
            return True
        if self._ssh_configured is None:
            self._ssh_configured = self.ok("config", "core.sshCommand")
        return self._ssh_configured

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
