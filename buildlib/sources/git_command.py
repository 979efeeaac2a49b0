"""The git program, tamed: no prompt, no hook, no other protocol, the user's credential helpers kept."""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO

from buildlib.core.sources.git_reference import PROTOCOLS
from buildlib.errors import BuildError, SourceError, SourceUnavailable
from buildlib.plain_text import without_logins
from buildlib.ports.source import SourceContext
from buildlib.sources.git_process import CONFIG, Watch, environment
from buildlib.store import files

IDLE = 300.0
"""Seconds that one git command may take before it is ended."""
_FETCH_LIMIT = 3600.0
"""Seconds for one that may transfer files."""


_LOCKS: dict[str, threading.RLock] = {}
_LOCKS_LOCK = threading.Lock()


class MirrorDamaged(SourceUnavailable):
    """The mirror here cannot be read, after a power cut for example."""


class Git:
    """One remote repository and its bare mirror here. The mirror is disposable."""

    def __init__(self, repository: str, mirror: Path, context: SourceContext) -> None:
        self.repository = repository
        self.mirror = mirror
        self.context = context
        self.partial = True
        with _LOCKS_LOCK:
            self.lock = _LOCKS.setdefault(str(mirror), threading.RLock())
            """Two models may share a repository; its mirror serves one thread at a time."""

    def list_remote(self, ref: str) -> dict[str, str]:
        """Full ref name -> object, of those that end in `ref`; tags also peeled, as NAME^{}."""
        output = self._run("ls-remote", "--quiet", "--", self.repository, ref, f"{ref}^{{}}")
        pairs = (line.split("\t", 1) for line in output.decode(errors="replace").splitlines() if "\t" in line)
        return {name: commit for commit, name in pairs}

    def some_branches(self) -> list[str]:
        """A few branch names, for a message."""
        output = self._run("ls-remote", "--quiet", "--heads", "--", self.repository).decode(errors="replace")
        names = [line.split("refs/heads/", 1)[1] for line in output.splitlines() if "refs/heads/" in line]
        return names[:6] + (["..."] if len(names) > 6 else [])

    def has_commit(self, commit: str) -> bool:
        """True when the mirror holds that commit."""
        if not (self.mirror / "HEAD").is_file():
            return False
        return self._process("rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}", local=True).returncode == 0

    def fetch_commit(self, commit: str) -> None:
        """Brings one commit without history; where the server refuses single commits, its branches and tags."""
        self._init(commit)
        alone = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--depth=1", "--", "origin", commit)
        finished = self._process(*alone, limit=_FETCH_LIMIT)
        if finished.returncode == 0:
            return
        if b"not our ref" not in finished.stderr and b"unadvertised object" not in finished.stderr:
            raise self._failure(finished.stderr)
        self.partial = False
        everything = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        self._run("fetch", "--quiet", "--no-write-fetch-head", "--", "origin", *everything, limit=_FETCH_LIMIT)
        if not self.has_commit(commit):
            raise SourceError(
                "the repository does not have that commit",
                where=self.repository,
                got=commit,
                remedy=f"doit update {self.context.subject}".rstrip() + ": its branch may have been rewritten",
            )

    def tree_entry(self, commit: str, path: str) -> tuple[str, str, str] | None:
        """(mode, kind, object) of a path in a commit."""
        output = self._run("ls-tree", "-z", "--full-tree", commit, "--", f":(literal){path}", local=True)
        for entry in output.split(b"\0"):
            head, _, name = entry.partition(b"\t")
            if name == path.encode():
                mode, kind, found = head.decode().split()[:3]
                return mode, kind, found
        return None

    def like(self, commit: str, path: str) -> str:
        """`; did you mean X?` for the nearest path of that commit, or nothing."""
        output = self._run("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit, local=True)
        names = [name.decode(errors="replace") for name in output.split(b"\0") if name]
        close = difflib.get_close_matches(path, names[:20_000], n=1, cutoff=0.5)
        close = close or [name for name in names if name.rpartition("/")[2] == path.rpartition("/")[2]][:1]
        return f"; did you mean {close[0]}?" if close else ""

    def blob_size(self, blob: str) -> int:
        """Bytes of a file; brings it where the mirror was filled without files."""
        return int(self._run("cat-file", "-s", blob, limit=_FETCH_LIMIT))

    def blob(self, blob: str) -> bytes:
        """Content of a small file."""
        return self._run("cat-file", "blob", blob)

    def blob_sha256(self, blob: str) -> str:
        """sha256 of a file's content."""
        with tempfile.TemporaryFile() as file:
            self._run("cat-file", "blob", blob, stdout=file)
            file.seek(0)
            return files.hash_stream(file)

    def blob_to_file(self, blob: str, size: int, into: Path) -> str:
        """Writes a file's content; its sha256. Raises SourceError where git ends before its last byte."""
        with files.replacing(into) as file:
            self._run("cat-file", "blob", blob, stdout=file)
            file.seek(0, os.SEEK_END)
            if file.tell() != size:
                raise MirrorDamaged("git gave a part of the file", where=self.repository, expected=f"{size} bytes")
        return files.hash_file(into)

    def config_of(self, commit: str, path: str, name: str) -> str | None:
        """One value of a configuration file inside a commit."""
        finished = self._process("config", f"--blob={commit}:{path}", "--get", name)
        return finished.stdout.decode(errors="replace").strip() or None if finished.returncode == 0 else None

    def filter(self, *arguments: str, stdin: bytes, stdout: IO[bytes], env: dict[str, str]) -> None:
        """Runs a command of git's with data in and a file out, in the mirror."""
        self._run(*arguments, stdin=stdin, stdout=stdout, limit=_FETCH_LIMIT, env=env)

    def forget_lfs(self) -> None:
        """Removes git-lfs's own copies: the content store keeps the files."""
        shutil.rmtree(self.mirror / "lfs", ignore_errors=True)

    def _remote(self) -> dict[str, str]:
        """The remote as configuration of one command: a partial clone, whose files come when they are asked for.

        Not written into the mirror: there, every look at a missing object would go to the network.
        """
        remote = {"remote.origin.url": self.repository}
        if self.partial:
            remote |= {"remote.origin.promisor": "true", "remote.origin.partialCloneFilter": "blob:none"}
        return remote

    def discard(self) -> None:
        """Removes the mirror: the next fetch starts anew, and with all files of the commit, for servers that promise
        to send single ones and then do not."""
        self.partial = False
        self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self.mirror, ignore_errors=True)

    def _init(self, commit: str) -> None:
        """A mirror that can take a fetch. The caller owns it, so locks in it were left by a git that was killed."""
        if (self.mirror / "HEAD").is_file():
            left = [*self.mirror.glob("*.lock"), *self.mirror.glob("objects/pack/tmp_*")]
            for path in left:
                path.unlink(missing_ok=True)
            return
        fresh = self.mirror.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        form = f"--object-format={'sha256' if len(commit) == 64 else 'sha1'}"
        self._run("init", "--quiet", "--bare", form, "--template=", "--", str(fresh), bare=True)
        self._remove()
        fresh.rename(self.mirror)

    def _run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        stdout: IO[bytes] | None = None,
        local: bool = False,
        bare: bool = False,
        limit: float = IDLE,
        env: dict[str, str] | None = None,
    ) -> bytes:
        finished = self._process(
            *arguments, stdin=stdin, stdout=stdout, local=local, bare=bare, limit=limit, env=env or {}
        )
        if finished.returncode != 0:
            if local:
                raise MirrorDamaged(
                    _DAMAGED,
                    where=str(self.mirror),
                    got=_last_line(finished.stderr.decode(errors="replace")),
                    remedy="delete that folder and run doit again",
                )
            raise self._failure(finished.stderr)
        return finished.stdout or b""

    def _process(
        self,
        *arguments: str,
        stdin: bytes = b"",
        stdout: IO[bytes] | None = None,
        local: bool = False,
        bare: bool = False,
        limit: float = IDLE,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs git. local: never asks the remote for a missing object."""
        config = CONFIG if local else {**CONFIG, **self._remote()}
        in_mirror = not bare and (self.mirror / "HEAD").is_file()
        where = (f"--git-dir={self.mirror}",) if in_mirror else ()
        self.context.state.mkdir(parents=True, exist_ok=True)
        try:
            process = subprocess.Popen(
                ("git", *where, *arguments),
                stdin=subprocess.PIPE,
                stdout=stdout if stdout is not None else subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(config, **(env or {})),
                cwd=self.context.state,
                # Its own session: no terminal to ask at, and the whole group can be ended.
                start_new_session=True,
            )
        except OSError as error:
            raise SourceError(
                f"git does not start: {error.strerror}", remedy="install git (apt install git; xcode-select --install)"
            ) from None
        with Watch(process, self.context, limit) as watch:
            out, err = process.communicate(stdin)
        self.context.check_cancelled()
        if watch.expired:
            raise SourceUnavailable(
                f"git does not come to an end (ended after {limit:g} s)",
                where=self.repository,
                remedy="check the network, then run doit again",
            )
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def _failure(self, stderr: bytes) -> BuildError:
        text = stderr.decode(errors="replace")
        low = text.lower()
        for sign, what, remedy in _SIGNS:
            if sign in low:
                kind = MirrorDamaged if what == _DAMAGED else SourceUnavailable
                return kind(what, where=self.repository, got=_last_line(text), remedy=remedy)
        return SourceUnavailable(
            "git could not read the repository",
            where=self.repository,
            got=_last_line(text),
            remedy="try git ls-remote with that repository by hand",
        )


_LOGIN = "log in once with git itself (a credential helper or an ssh key); nothing is asked during a build"
_DAMAGED = "the mirror of the repository is damaged"
_ANEW = "delete .build/sources/git and run doit again"
_SIGNS = (
    ("corrupt", _DAMAGED, _ANEW),
    ("inflate", _DAMAGED, _ANEW),
    ("bad object", _DAMAGED, _ANEW),
    ("unable to read", _DAMAGED, _ANEW),
    ("is far too short to be a packfile", _DAMAGED, _ANEW),
    ("all necessary objects", _DAMAGED, _ANEW),
    ("not our ref", _DAMAGED, _ANEW),
    ("unadvertised object", _DAMAGED, _ANEW),
    ("terminal prompts disabled", "the repository wants a login", _LOGIN),
    ("authentication failed", "the repository refuses the login", _LOGIN),
    ("permission denied (publickey", "the host refuses the ssh key", _LOGIN),
    ("host key verification failed", "the host's key is unknown or changed", "connect once with ssh and compare it"),
    ("dubious ownership", "the repository belongs to another user", "git config --global --add safe.directory PATH"),
    ("could not resolve host", "the host's name is unknown", "check the network and the address"),
    ("does not appear to be a git repository", "there is no such repository", "correct it, or mount its disk"),
    ("does not exist", "there is no such repository", "correct it, or mount its disk"),
    ("not found", "there is no such repository", "correct it in models.yaml, or log in with git itself"),
    ("transport '", "this protocol is not allowed", f"use one of {', '.join(PROTOCOLS)}"),
)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in without_logins(text).splitlines() if line.strip()]
    told = [line for line in lines if line.lower().startswith(("fatal:", "error:", "remote:"))]
    return (told or lines or ["no message"])[-1][:300]
