"""Which repositories, refs and paths a git source may name. Pure: what git would take as an option or run is refused.

git reads `--upload-pack=COMMAND` as an option and `ext::COMMAND` as a program to run; a models.yaml that somebody else
wrote must be able to do neither.
"""

from __future__ import annotations

import re
import urllib.parse

from buildlib.errors import SourceError

PROTOCOLS = ("https", "http", "ssh", "git", "file")
"""Also given to git itself, as GIT_ALLOW_PROTOCOL: a redirect or `insteadOf` cannot leave them either."""
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ABBREVIATED = re.compile(r"[0-9a-f]{7,63}")
_HELPER = re.compile(r"[A-Za-z0-9+.-]*::")
_SCP_LIKE = re.compile(r"(?:[A-Za-z0-9_.-]+@)?(?!-)[A-Za-z0-9_.-]{2,}:(?!/?/)[^\s]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def is_commit(ref: str) -> bool:
    """True for a full commit name, which cannot move."""
    return _COMMIT.fullmatch(ref) is not None


def is_abbreviated(ref: str) -> bool:
    """True for what may be a shortened commit name: servers cannot be asked for those."""
    return _ABBREVIATED.fullmatch(ref) is not None and not is_commit(ref)


def check_reference(repository: str, ref: str, path: str) -> None:
    """Raises SourceError for a repository, ref or path that git would misread or run."""
    check_repository(repository)
    _check_ref(ref)
    _check_path(path)


def check_repository(repository: str) -> None:
    """Raises SourceError for a repository that is an option, a helper to run, or holds a password."""
    where = f"repository {_hidden(repository)}"
    if not repository or repository.startswith("-"):
        raise _refused(where, "an option of git's in place of a repository", "a URL or a path")
    if _CONTROL.search(repository):
        raise _refused(where, "control characters", "a URL or a path")
    if _HELPER.match(repository):
        raise _refused(where, "a helper that git would run", " ".join(f"{name}://" for name in PROTOCOLS))
    if "://" not in repository:
        if repository.partition(":")[0].rpartition("@")[2].startswith("-") and ":" in repository:
            raise _refused(where, "a host that ssh would take as an option", "HOST:PATH")
        return
    try:
        parts = urllib.parse.urlsplit(repository)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        raise _refused(where, "no URL", "a URL or a path") from None
    if parts.scheme not in PROTOCOLS:
        raise _refused(where, f"the protocol {parts.scheme!r}", " ".join(f"{name}://" for name in PROTOCOLS))
    if host.startswith("-") or (parts.username or "").startswith("-"):
        raise _refused(where, "a host that ssh would take as an option", f"{parts.scheme}://HOST/PATH")
    if parts.password is not None or (parts.username and parts.scheme in ("http", "https")):
        raise SourceError(
            "a login inside a URL is refused: models.yaml is no place for secrets",
            where=where,
            remedy="leave it out; git asks its credential helper",
        )
    if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise _refused(where, f"a file on the host {parts.netloc}", "file:///PATH")


def is_local(repository: str) -> bool:
    """True for a path or a file:// URL: no network is needed."""
    if "://" in repository:
        return repository.startswith("file://")
    return _SCP_LIKE.fullmatch(repository) is None or repository.startswith(("/", "./", "../", "~"))


def _check_ref(ref: str) -> None:
    # git check-ref-format's rules, and no revision syntax: `HEAD~1` or `x^{tree}` names no ref that can be asked for.
    where = f"ref {ref!r}"
    bad = ("..", "@{", "//", "\\", " ", "~", "^", ":", "?", "*", "[")
    if not ref or ref.startswith("-"):
        raise _refused(where, "an option of git's in place of a ref", "a branch, a tag or 40 hex digits")
    if _CONTROL.search(ref) or any(part in ref for part in bad) or ref.startswith("/") or ref.endswith(("/", ".")):
        raise _refused(where, "no ref's name", "a branch, a tag or 40 hex digits")
    if ref == "@" or any(part.startswith(".") or part.endswith(".lock") for part in ref.split("/")):
        raise _refused(where, "no ref's name", "a branch, a tag or 40 hex digits")


def _check_path(path: str) -> None:
    where = f"path {path!r}"
    parts = path.split("/")
    if not path or _CONTROL.search(path) or path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise _refused(where, "no path inside a repository", "FOLDER/FILE.onnx, from the repository's root")


def _refused(where: str, got: str, expected: str) -> SourceError:
    return SourceError("refused", where=where, expected=expected, got=got, remedy="correct it in models.yaml")


def _hidden(repository: str) -> str:
    """The repository without what may be a secret, for messages: a login that is one word may be a token."""
    shown = re.sub(r"(?<=://)[^/@]*@", "...@", repository)[:200]
    return shown if shown.isprintable() else repr(shown)
