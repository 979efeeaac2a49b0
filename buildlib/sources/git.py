"""A file in a git repository, large ones by git-lfs.

A bare mirror a repository lies under the state directory and is filled by need: the pinned commit alone, without
history and, where the server can, without any file but the wanted one. Nothing is checked out, so no hook, filter or
submodule has anything to act on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from buildlib.core.catalog import GitSource
from buildlib.core.sources.git_reference import check_reference, is_abbreviated, is_commit, is_local
from buildlib.core.sources.lfs_pointer import POINTER_LIMIT, LfsPointer, parse_pointer
from buildlib.core.sources.lockfile import Pin
from buildlib.errors import SourceError
from buildlib.ports.source import Fetched, Observed, SourceContext
from buildlib.sources.git_command import Git, MirrorDamaged
from buildlib.sources.lfs import fetch_object


class Reader:
    """Reads a GitSource. A build uses the pin of models.lock; only `resolve` follows a ref that can move."""

    def __init__(self, spec: GitSource, context: SourceContext) -> None:
        self.spec = spec
        self.context = context

    def observe(self) -> Observed:
        """The pinned content. A full commit name needs no pin. Raises SourceError where there is none yet."""
        check_reference(self.spec.repository, self.spec.ref, self.spec.path)
        pin = self._pin()
        if pin is None:
            identity = {"repository": self.spec.repository, "commit": self.spec.ref, "path": self.spec.path}
            return Observed(identity=identity, sha256=None, detail=self._detail(self.spec.ref, None))
        return Observed(
            identity={"sha256": pin.sha256},
            sha256=pin.sha256,
            size=pin.size,
            detail=self._detail(pin.commit, pin.lfs),
        )

    def fetch(self, into: Path) -> Fetched:
        """Brings the pinned commit's file, through LFS where it is a pointer."""
        observed = self.observe()
        commit = observed.detail["commit"]
        git = self._mirror()
        sha256, size, pointer = _on_sound_mirror(git, lambda: self._take(git, commit, into))
        if pointer is not None:
            fetch_object(git, self.spec, commit, pointer, into, self.context)
        if observed.sha256 not in (None, sha256):
            into.unlink(missing_ok=True)
            raise SourceError(
                "the repository's file has another sha256 than models.lock says",
                where=self._where(),
                expected=f"sha256 {observed.sha256}",
                got=sha256,
                remedy=f"doit update {self.context.subject}".rstrip(),
            )
        return Fetched(
            path=into, sha256=sha256, size=size, detail=self._detail(commit, pointer.oid if pointer else None)
        )

    def _take(self, git: Git, commit: str, into: Path | None) -> tuple[str, int, LfsPointer | None]:
        """sha256 and size of the commit's file, and its pointer; a file that is in git itself is written to `into`."""
        self._bring(git, commit)
        blob, size = self._find(git, commit)
        pointer = self._pointer(git, blob, size)
        if pointer is not None:
            return pointer.oid, pointer.size, pointer
        return (git.blob_sha256(blob) if into is None else git.blob_to_file(blob, size, into)), size, None

    def resolve(self) -> Pin:
        """Where the ref points now, and what lies there."""
        spec = self.spec
        check_reference(spec.repository, spec.ref, spec.path)
        git = self._mirror()
        commit = spec.ref if is_commit(spec.ref) else self._ask(git)
        sha256, size, pointer = _on_sound_mirror(git, lambda: self._take(git, commit, None))
        return Pin(
            repository=spec.repository,
            ref=spec.ref,
            path=spec.path,
            commit=commit,
            lfs=pointer.oid if pointer else None,
            sha256=sha256,
            size=size,
        )

    def _pin(self) -> Pin | None:
        pin, spec = self.context.pin, self.spec
        if pin is not None and pin.is_for(spec.repository, spec.ref, spec.path):
            return pin
        if is_commit(spec.ref):
            return None
        raise SourceError(
            f"ref {spec.ref} is not in models.lock" if pin is None else "models.lock is about another reference",
            where=self._where(),
            expected="the commit that it stands for",
            got=f"a pin of {pin.path} at {pin.ref}" if pin is not None else None,
            remedy=f"doit update {self.context.subject}".rstrip() + ", which asks the repository and writes it down",
        )

    def _detail(self, commit: str, lfs: str | None) -> dict[str, str]:
        detail = {
            "repository": self.spec.repository,
            "ref": self.spec.ref,
            "path": self.spec.path,
            "commit": commit,
        }
        return {**detail, "lfs": lfs} if lfs else detail

    def _where(self) -> str:
        return f"{self.spec.repository} {self.spec.path}"

    def _mirror(self) -> Git:
        repository = self.spec.repository
        if is_local(repository) and "://" not in repository:
            repository = str(self.context.root / Path(repository).expanduser())
        name = hashlib.sha256(repository.encode()).hexdigest()[:20]
        return Git(repository, self.context.state / "git" / f"{name}.git", self.context)

    def _ask(self, git: Git) -> str:
        """The commit of a branch or tag, asked of the server."""
        ref = self.spec.ref
        found = git.list_remote(ref)
        if exact := found.get(f"{ref}^{{}}") or found.get(ref):
            return exact
        tag = found.get(f"refs/tags/{ref}^{{}}") or found.get(f"refs/tags/{ref}")
        branch = found.get(f"refs/heads/{ref}")
        if tag and branch and tag != branch:
            raise SourceError(
                "a branch and a tag have this name",
                where=self._where(),
                expected="one",
                got=f"{branch[:12]} and {tag[:12]}",
                remedy=f"write ref: refs/heads/{ref} or refs/tags/{ref}",
            )
        if commit := tag or branch:
            return commit
        short = "; write all 40 digits of a commit" if is_abbreviated(ref) else ""
        raise SourceError(
            f"the repository has no branch or tag {ref!r}",
            where=self.spec.repository,
            got=", ".join(git.some_branches()) or "no branches",
            remedy=f"correct the ref in models.yaml{short}",
        )

    def _bring(self, git: Git, commit: str) -> None:
        self.context.check_cancelled()
        if not git.has_commit(commit):
            git.fetch_commit(commit)

    def _find(self, git: Git, commit: str) -> tuple[str, int]:
        """Object name and size of the path. Raises SourceError where it is no plain file."""
        entry = git.tree_entry(commit, self.spec.path)
        if entry is None:
            raise SourceError(
                "there is no such file in that commit",
                where=self._where(),
                got=f"commit {commit[:12]}",
                remedy=f"correct the path{git.like(commit, self.spec.path)}",
            )
        mode, kind, name = entry
        if kind != "blob" or mode == "120000":
            got = {"tree": "a folder", "commit": "a submodule"}.get(kind, "a symbolic link")
            raise SourceError("not a file", where=self._where(), expected="a file", got=got, remedy="name the file")
        return name, git.blob_size(name)

    def _pointer(self, git: Git, blob: str, size: int) -> LfsPointer | None:
        return parse_pointer(git.blob(blob)) if size < POINTER_LIMIT else None


_Result = TypeVar("_Result")


def _on_sound_mirror(git: Git, action: Callable[[], _Result]) -> _Result:
    """Does it alone with the mirror, and once more on a fresh one where the mirror is damaged: it is disposable."""
    with git.lock:
        try:
            return action()
        except MirrorDamaged:
            git.discard()
            return action()
