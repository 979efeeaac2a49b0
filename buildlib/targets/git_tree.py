"""Reading commits and making a new one from a temporary index: work tree, index and branch are not touched."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from buildlib.core.manifests.release import Storage
from buildlib.core.sources.lfs_pointer import POINTER_LIMIT, parse_pointer
from buildlib.errors import TargetError
from buildlib.targets.git_commands import Git

REGULAR = "100644"
SMALL = 1 << 20


@dataclass(frozen=True, kw_only=True)
class TreeFile:
    """A path in a commit."""

    path: str
    mode: str
    oid: str


@dataclass(frozen=True, kw_only=True)
class TreeEdit:
    """A path that the new commit sets, or removes (oid None)."""

    path: str
    oid: str | None
    mode: str = REGULAR


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a file in a commit stands for: its own bytes, or those that an LFS pointer names. size: bytes."""

    sha256: str
    size: int
    storage: Storage


def files_at(git: Git, commit: str, *paths: str) -> dict[str, TreeFile]:
    """Files of a commit at or below some paths (all, with none given)."""
    listed = git.run("--literal-pathspecs", "ls-tree", "-r", "-z", "--full-tree", commit, "--", *paths).stdout
    found: dict[str, TreeFile] = {}
    for line in listed.split(b"\0"):
        if line:
            meta, _, name = line.partition(b"\t")
            mode, _, oid = meta.decode().split(" ")
            path = name.decode("utf-8", "surrogateescape")
            found[path] = TreeFile(path=path, mode=mode, oid=oid)
    return found


def blob(git: Git, oid: str) -> bytes:
    """A blob's bytes; for small files, which are remembered for as long as git is."""
    if oid not in git.small_blobs:
        data = git.run("cat-file", "blob", oid).stdout
        if len(data) > SMALL:
            return data
        git.small_blobs[oid] = data
    return git.small_blobs[oid]


def blob_size(git: Git, oid: str) -> int:
    """A blob's size in bytes."""
    return int(git.text("cat-file", "-s", oid))


def content(git: Git, oid: str, known: Mapping[str, str] | None = None) -> Content:
    """What a blob stands for. known: blob oid -> sha256, to spare hashing large plain blobs again."""
    size = len(git.small_blobs[oid]) if oid in git.small_blobs else blob_size(git, oid)
    data = blob(git, oid) if size <= POINTER_LIMIT else b""
    if pointer := parse_pointer(data):
        return Content(sha256=pointer.oid, size=pointer.size, storage="lfs")
    sha256 = (known or {}).get(oid) or hashlib.sha256(data if data else blob(git, oid)).hexdigest()
    return Content(sha256=sha256, size=size, storage="plain")


def is_lfs_path(git: Git, path: str) -> bool:
    """True when .gitattributes sends the path through git-lfs."""
    return git.run("check-attr", "-z", "filter", "--", path).stdout.split(b"\0")[2:3] == [b"lfs"]


def stage_plain(git: Git, path: str, source: Path | bytes) -> str:
    """Stores bytes as a blob, exactly as they are; its oid. Raises where .gitattributes would change them."""
    exact = git.run("hash-object", "-w", "--no-filters", "--stdin", stdin=source).text
    if isinstance(source, Path) and git.run("hash-object", f"--path={path}", "--stdin", stdin=source).text != exact:
        raise TargetError(
            "a filter in .gitattributes changes the artifact",
            where=path,
            expected="bytes as they are, or git-lfs",
            remedy=f"mark it binary in .gitattributes, or set large_files: lfs and run `git lfs track '{path}'`",
        )
    return exact


def stage_lfs(git: Git, path: str, source: Path, sha256: str, size: int) -> str:
    """Stores a file through git-lfs's own clean filter; the pointer's oid, after the pointer was read back.

    Not by `git hash-object --path`: git-lfs before its pull request 6011 then cuts what it reads to the size of the
    work tree's file of that path, which is the former artifact.
    """
    pointer = git.run("lfs", "clean", stdin=source).stdout
    oid = git.run("hash-object", "-w", "--no-filters", "--stdin", stdin=pointer).text
    staged = content(git, oid)
    if staged.storage != "lfs" or (staged.sha256, staged.size) != (sha256, size):
        raise TargetError(
            "git-lfs did not make a pointer of the artifact",
            where=path,
            expected=f"oid sha256:{sha256[:12]}, {size} bytes",
            got=f"{staged.storage}, sha256:{staged.sha256[:12]}, {staged.size} bytes",
            remedy="see `git lfs env` and `git lfs version`; nothing was changed",
        )
    return oid


def make_tree(git: Git, base: str, edits: tuple[TreeEdit, ...], index: Path) -> str:
    """The tree of base with edits made, by way of a temporary index file; guide section 14 is checked on it."""
    env = {"GIT_INDEX_FILE": str(index)}
    index.unlink(missing_ok=True)
    git.run("read-tree", base, env=env)
    zero = "0" * len(base)
    lines = [f"{edit.mode if edit.oid else '0'} {edit.oid or zero}\t{edit.path}\0" for edit in edits]
    git.run("update-index", "-z", "--index-info", stdin="".join(lines).encode("utf-8", "surrogateescape"), env=env)
    tree = git.run("write-tree", env=env).text
    changed = changed_paths(git, base, tree)
    expected = {edit.path for edit in edits}
    if changed != expected:
        raise TargetError(
            "the commit would not hold exactly the intended paths",
            where=str(git.work_tree),
            expected=", ".join(sorted(expected)),
            got=", ".join(sorted(changed)),
            guide="14",
        )
    return tree


def changed_paths(git: Git, old: str, new: str) -> set[str]:
    """Paths that differ between two trees or commits."""
    listed = git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new).stdout
    return {name.decode("utf-8", "surrogateescape") for name in listed.split(b"\0") if name}


def run_hook(git: Git, name: str, *argv: str, index: Path) -> None:
    """Runs one of the repository's hooks on the temporary index. Raises TargetError with its words when it fails."""
    env = {"GIT_INDEX_FILE": str(index), "GIT_EDITOR": ":"}
    done = git.run("hook", "run", "--ignore-missing", name, "--", *argv, env=env, check=False)
    if done.status != 0:
        raise TargetError(
            f"the repository's {name} hook refuses the commit",
            where=str(git.work_tree),
            got=done.last_words or f"status {done.status}",
            remedy="mend what the hook complains of, or the hook; nothing was changed",
        )


def make_commit(
    git: Git, tree: str, base: str, message: str, *, author: str | None, index: Path, message_file: Path
) -> str:
    """A commit of the tree on top of base, after the hooks that `git commit` would run. No branch moves."""
    run_hook(git, "pre-commit", index=index)
    message_file.write_text(message + "\n", encoding="utf-8")
    run_hook(git, "prepare-commit-msg", str(message_file), "message", index=index)
    run_hook(git, "commit-msg", str(message_file), index=index)
    after = git.run("write-tree", env={"GIT_INDEX_FILE": str(index)}).text
    if after != tree:
        raise TargetError(
            "the repository's pre-commit hook changed what is to be committed",
            where=str(git.work_tree),
            got=", ".join(sorted(changed_paths(git, tree, after))),
            remedy="let the hook leave manifests and artifacts alone; nothing was changed",
        )
    sign = git.run("config", "--type=bool", "commit.gpgsign", check=False).text == "true"
    done = git.run(
        "commit-tree",
        *(("-S",) if sign else ()),
        tree,
        "-p",
        base,
        "-F",
        str(message_file),
        env=_identity(git, author),
        check=False,
    )
    if done.status != 0:
        raise git.failed(done, "git could not make the commit")
    return done.text


def parse_author(author: str) -> tuple[str, str]:
    """Name and address of `Name <address>`. Raises TargetError."""
    match = re.fullmatch(r"\s*([^<>]+?)\s*<([^<>\s]+)>\s*", author)
    if match is None:
        raise TargetError("not an author", expected="Name <address>", got=repr(author))
    return match.group(1), match.group(2)


def _identity(git: Git, author: str | None) -> dict[str, str]:
    if author is None:
        return {}
    name, address = parse_author(author)
    env = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": address}
    if not git.ok("config", "user.email"):
        env |= {"GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": address}
    return env
