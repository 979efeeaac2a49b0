"""Content behind a git-lfs pointer: from a repository's own object folder, by the batch API, or by git-lfs itself.

The batch API comes first over http(s): it resumes, shows progress and needs no git-lfs installed. Where it wants a
login or the repository is reached by ssh, git-lfs takes over with the user's credentials.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import msgspec

from buildlib.core.catalog import GitSource
from buildlib.core.sources.git_reference import check_repository, is_local
from buildlib.core.sources.lfs_pointer import LfsPointer
from buildlib.errors import SourceError, SourceUnavailable
from buildlib.ports.source import SourceContext
from buildlib.sources.download import SIZE_LIMIT, TIMEOUT, Wanted, download
from buildlib.sources.git_command import Git
from buildlib.sources.http_client import check_outward, open_url, shown
from buildlib.store import files

_MEDIA = "application/vnd.git-lfs+json"
_ANSWER_LIMIT = 1 << 20


class _NotByApi(Exception):
    """The batch API will not give it; git-lfs may. The message says why."""


def fetch_object(
    git: Git, spec: GitSource, commit: str, pointer: LfsPointer, into: Path, context: SourceContext
) -> None:
    """Makes `into` the content of a pointer. Raises SourceError, SourceUnavailable, Cancelled."""
    if pointer.size > SIZE_LIMIT:
        raise SourceError(
            "the file is too large",
            where=f"{spec.repository} {spec.path}",
            expected=f"at most {SIZE_LIMIT} bytes",
            got=f"{pointer.size} bytes",
        )
    if is_local(git.repository) and _copy_local(git.repository, pointer, into):
        return
    endpoint = _endpoint(git, commit)
    why = "the repository is not reached over http"
    if endpoint is not None:
        try:
            _by_api(endpoint, pointer, into, context)
        except _NotByApi as error:
            why = str(error)
        else:
            return
    _by_git_lfs(git, spec, pointer, into, why)


def _copy_local(repository: str, pointer: LfsPointer, into: Path) -> bool:
    root = repository
    if root.startswith("file://"):
        root = urllib.request.url2pathname(urllib.parse.urlsplit(root).path)
    tail = Path("lfs", "objects", pointer.oid[:2], pointer.oid[2:4], pointer.oid)
    for candidate in (Path(root) / tail, Path(root) / ".git" / tail, Path(f"{root}.git") / tail):
        if candidate.is_file():
            if files.copy(candidate, into) == pointer.oid:
                return True
            into.unlink()
            raise SourceError(
                "the repository's LFS object is damaged",
                where=str(candidate),
                expected=f"sha256 {pointer.oid}",
                remedy="git lfs fsck there",
            )
    return False


def _endpoint(git: Git, commit: str) -> str | None:
    """Address of the LFS server, None where it speaks no http: as `.lfsconfig` says, else beside the repository."""
    configured = git.config_of(commit, ".lfsconfig", "lfs.url")
    if configured is not None:
        check_repository(configured)
        return configured.rstrip("/") if configured.startswith(("https://", "http://")) else None
    if not git.repository.startswith(("https://", "http://")):
        return None
    base = git.repository.rstrip("/")
    return f"{base}/info/lfs" if base.endswith(".git") else f"{base}.git/info/lfs"


def _by_api(endpoint: str, pointer: LfsPointer, into: Path, context: SourceContext) -> None:
    """git-lfs's batch API, basic transfers (git-lfs, docs/api/batch.md)."""
    found = next((item for item in _batch(endpoint, pointer).objects if item.oid == pointer.oid), None)
    if found is None:
        raise _NotByApi("the LFS server's answer does not mention the file")
    if found.error is not None:
        raise SourceError(
            "the LFS server does not have the file",
            where=shown(endpoint),
            expected=f"the content of {pointer.oid[:12]}",
            got=f"{found.error.code} {found.error.message}"[:200],
            remedy="ask whoever pushed it to run git lfs push --all",
        )
    action = found.actions.download if found.actions is not None else None
    if action is None:
        raise _NotByApi("the LFS server names no address for the file")
    href = _led(endpoint, action.href)
    download(Wanted(url=href, sha256=pointer.oid, size=pointer.size, headers=action.header or {}), into, context)


def _led(endpoint: str, address: str) -> str:
    """Where the server's answer leads. Raises SourceError for another scheme than http(s), and for this machine."""
    try:
        href = urllib.parse.urljoin(endpoint, address)
        scheme, wanted = urllib.parse.urlsplit(href).scheme, urllib.parse.urlsplit(endpoint).scheme
    except ValueError:
        href, scheme, wanted = address, "", "https"
    if scheme not in ("https", "http") or (wanted == "https" and scheme != "https"):
        raise SourceError(
            "the LFS server leads to another scheme, which is refused",
            where=shown(endpoint),
            expected=f"{wanted}://",
            got=shown(href),
        )
    # Its files may lie on another server over http than itself, but not in this machine.
    check_outward(endpoint, href)
    return href


class _Link(msgspec.Struct):
    href: str
    header: dict[str, str] | None = None


class _Actions(msgspec.Struct):
    download: _Link | None = None


class _Fault(msgspec.Struct):
    code: int | str = "?"
    message: str = ""


class _Object(msgspec.Struct):
    oid: str = ""
    error: _Fault | None = None
    actions: _Actions | None = None


class _Answer(msgspec.Struct):
    """What of the batch API's answer is used."""

    objects: list[_Object] = []


def _batch(endpoint: str, pointer: LfsPointer) -> _Answer:
    body = {
        "operation": "download",
        "transfers": ["basic"],
        "objects": [{"oid": pointer.oid, "size": pointer.size}],
        "hash_algo": "sha256",
    }
    request = urllib.request.Request(  # noqa: S310 - `_endpoint` gives http and https only
        f"{endpoint}/objects/batch",
        data=json.dumps(body).encode(),
        headers={"Accept": _MEDIA, "Content-Type": _MEDIA, "User-Agent": "supercombo-build"},
        method="POST",
    )
    try:
        with open_url(request, TIMEOUT) as response:
            return msgspec.json.decode(response.read(_ANSWER_LIMIT), type=_Answer)
    except urllib.error.HTTPError as error:
        with error:
            raise _NotByApi(f"the LFS server answers {error.code} {error.reason}") from None
    except (http.client.HTTPException, OSError, ValueError, RecursionError) as error:
        raise _NotByApi(f"the LFS server cannot be asked: {error}") from None


def _by_git_lfs(git: Git, spec: GitSource, pointer: LfsPointer, into: Path, why: str) -> None:
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{pointer.oid}\nsize {pointer.size}\n"
    where = f"{spec.repository} {spec.path}"
    try:
        with files.replacing(into) as file:
            git.filter(
                "lfs", "smudge", "--", spec.path, stdin=text.encode(), stdout=file, env={"GIT_LFS_SKIP_SMUDGE": "0"}
            )
    except SourceUnavailable as error:
        missing = "is not a git command" in (error.got or "")
        raise SourceUnavailable(
            "the file lies in git-lfs and does not come",
            where=where,
            got=f"{why}; " + ("git-lfs is not installed" if missing else f"git-lfs says: {error.got}"),
            remedy="install git-lfs (apt install git-lfs; brew install git-lfs)" if missing else error.remedy,
        ) from None
    finally:
        git.forget_lfs()
    sha256 = files.hash_file(into)
    if sha256 != pointer.oid:
        into.unlink(missing_ok=True)
        raise SourceError("git-lfs gave another file", where=where, expected=f"sha256 {pointer.oid}", got=sha256)
