"""What a publish was doing, in the repository's git directory, so that the next run ends it after a kill.

A commit is made and pushed without touching branch, index or work tree; only then do they follow ("settle"). Every
step of settling can be done again, so the journal says where to, and the next run goes there.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from buildlib.core.manifests.manifest_change import Change
from buildlib.errors import BuildError, TargetError
from buildlib.store import files
from buildlib.targets.git_commands import Git
from buildlib.targets.git_tree import TreeFile, blob, changed_paths, files_at
from buildlib.targets.git_work_tree import SUBMODULE, beyond_link, is_as, put, take_away, worktree_oids

PENDING = "refs/supercombo-build/"
"""Under it, by model: commits that were made and did not reach the remote, or are about to."""


@dataclass(frozen=True, kw_only=True)
class Settling:
    """Branch, index and work tree are on their way from one commit to another.

    change, manifests: what was done to these manifests, for work-tree copies that hold other people's edits too.
    """

    branch: str
    base: str
    commit: str
    change: Change | None = None
    manifests: tuple[str, ...] = ()


class Journal:
    """One file, replaced in one step. model: of the push whose settling it foretells; None: what is settling now."""

    def __init__(self, state: Path, model: str | None = None) -> None:
        self._path = state / ("settling.json" if model is None else f"pushing-{model}.json")

    @classmethod
    def foretold(cls, state: Path) -> tuple[Journal, ...]:
        """Of every push that has not been followed by its settling."""
        found = sorted(path.stem.removeprefix("pushing-") for path in state.glob("pushing-*.json"))
        return tuple(cls(state, model) for model in found)

    def read(self) -> Settling | None:
        """What was under way; None where nothing was."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Settling)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, RecursionError) as error:
            raise TargetError(
                "the publish journal cannot be read",
                where=str(self._path),
                got=str(error),
                remedy="bring the work tree to the branch's commit by hand (git status), then remove the file",
            ) from error

    def write(self, settling: Settling) -> None:
        """Notes what is about to be done."""
        files.write(self._path, msgspec.json.encode(settling))

    def clear(self) -> None:
        """It is done."""
        self._path.unlink(missing_ok=True)
        files.sync_directory(self._path.parent)


def settle(git: Git, journal: Journal, settling: Settling) -> tuple[str, ...]:
    """Brings branch, index and work tree from base to commit; may be done again. Paths left to their owners' edits."""
    journal.write(settling)
    git.run("update-ref", "-m", "publish", f"refs/heads/{settling.branch}", settling.commit, check=True)
    paths = changed_paths(git, settling.base, settling.commit)
    before = files_at(git, settling.base, *sorted(paths)) if paths else {}
    after = files_at(git, settling.commit, *sorted(paths)) if paths else {}
    _settle_index(git, paths, before, after)
    left = _settle_work_tree(git, settling, paths, before, after)
    git.run("update-index", "-q", "--refresh", check=False)
    if is_sparse(git):
        git.run(
            "sparse-checkout", "reapply", check=False
        )  # what was just written is taken out where it does not belong
    journal.clear()
    return left


def is_sparse(git: Git) -> bool:
    """True where the work tree leaves out part of the repository on purpose."""
    return git.run("config", "--type=bool", "core.sparseCheckout", check=False).text == "true"


def _settle_index(git: Git, paths: set[str], before: dict[str, TreeFile], after: dict[str, TreeFile]) -> None:
    staged = _staged(git, paths)
    lines = []
    for path in sorted(paths):
        old, new = before.get(path), after.get(path)
        if staged.get(path) != (old.oid if old else None):
            continue  # done already, or its owner's
        zero = "0" * len((new or old or TreeFile(path="", mode="", oid="0" * 40)).oid)
        lines.append(f"{new.mode} {new.oid}\t{path}\0" if new else f"0 {zero}\t{path}\0")
    if lines:
        git.run("update-index", "-z", "--index-info", stdin="".join(lines).encode("utf-8", "surrogateescape"))


def _staged(git: Git, paths: set[str]) -> dict[str, str]:
    listed = git.run("--literal-pathspecs", "ls-files", "-s", "-z", "--", *sorted(paths)).stdout if paths else b""
    found = {}
    for line in listed.split(b"\0"):
        if line:
            meta, _, name = line.partition(b"\t")
            found[name.decode("utf-8", "surrogateescape")] = meta.split(b" ")[1].decode()
    return found


def _settle_work_tree(
    git: Git, settling: Settling, paths: set[str], before: dict[str, TreeFile], after: dict[str, TreeFile]
) -> tuple[str, ...]:
    have = worktree_oids(git, paths)
    left: list[str] = []
    # What goes goes first: a folder may take a file's place, or a file a folder's.
    for path in sorted(paths, key=lambda path: (path in after, path)):
        old, new, file = before.get(path), after.get(path), git.work_tree / path
        if beyond_link(git.work_tree, path) is not None:
            left += [path] if new else []
            continue
        for leftover in file.parent.glob(f".{_glob_safe(file.name[:80])}.*.tmp"):
            _remove(leftover)
        if is_as(git.work_tree, new, have.get(path)) if new else path not in have and not _is_submodule(old):
            continue
        if path in have and (old is None or not is_as(git.work_tree, old, have[path])):
            if not (path in settling.manifests and _edit_in_place(settling, file, path)):
                left.append(path)
        elif new is not None:
            left += [] if put(git, settling.commit, new) else [path]
        elif old is not None:
            take_away(git, old)
    return tuple(left)


def _is_submodule(file: TreeFile | None) -> bool:
    return file is not None and file.mode == SUBMODULE


def _remove(leftover: Path) -> None:
    if leftover.is_dir() and not leftover.is_symlink():
        shutil.rmtree(leftover, ignore_errors=True)
    else:
        leftover.unlink(missing_ok=True)


def _edit_in_place(settling: Settling, file: Path, path: str) -> bool:
    """Makes the published change in a manifest that also holds somebody's uncommitted edits."""
    if settling.change is None:
        return False
    try:
        old = file.read_bytes()
        new = settling.change.apply(old, path)
    except BuildError:
        return False
    if new != old:
        files.write(file, new, mode=file.stat().st_mode & 0o777)
    return True


def _glob_safe(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def small_blob(git: Git, commit: str, path: str) -> bytes | None:
    """A small file of a commit; None where it is not there."""
    found = files_at(git, commit, path).get(path)
    return blob(git, found.oid) if found else None
