"""Rules for the other texts in models.yaml: URLs, git names, hosts, flags, templates.

As in `names`: each rule returns None, or what was expected instead.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from urllib.parse import urlsplit

from buildlib.core.declaration import names

FLAG = r"^[A-Za-z_][A-Za-z0-9_]*$"
SIZE = r"^[1-9][0-9]{0,4}x[1-9][0-9]{0,4}$"
SHA256 = r"^[0-9a-fA-F]{64}$"
DIGITS = r"^[0-9]+$"
HOST = r"^[A-Za-z0-9_\[:][A-Za-z0-9._:%\[\]-]*$"
USER = r"^[A-Za-z0-9_][A-Za-z0-9._@-]*$"
BACKEND = r"^[A-Z][A-Za-z0-9_+:.]*$"
AUTHOR = r"^[^<>]+ <[^<>@\s]+@[^<>@\s]+>$"
HUGGING_FACE = r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$"

PLACEHOLDERS = ("name", "display_name", "folder", "artifact", "branch")
"""What `core.manifests.release` puts into a target's directory, message and URL."""

_ENVIRONMENT = frozenset(
    {
        "HOME",
        "XDG_CACHE_HOME",
        "UV_CACHE_DIR",
        "TMPDIR",
        "PATH",
        "VIRTUAL_ENV",
        "CC",
        "CACHEDB",
        "SHELL",
        "IFS",
        "ENV",
        "BASH_ENV",
    }
)
_ENVIRONMENT_PREFIXES = ("PYTHON", "LD_", "DYLD_", "SUDO_", "GIT_", "SSH_")
_REF_UNFIT = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|\.lock(/|$)")


def matching(pattern: str, expected: str) -> Callable[[str], str | None]:
    """A rule made from a regular expression that must match the whole text."""
    compiled = re.compile(pattern)

    def rule(text: str) -> str | None:
        return None if compiled.fullmatch(text) else expected

    return rule


sha256 = matching(SHA256, "a sha256 of 64 hex digits")
digits = matching(DIGITS, "digits")
backend = matching(BACKEND, "a tinygrad device such as QCOM or CPU")
author = matching(AUTHOR, 'an author such as "Ada Lovelace <ada@example.com>"')
user = matching(USER, "a user name")
hugging_face = matching(HUGGING_FACE, "OWNER/NAME of a Hugging Face repository")


def size(text: str) -> str | None:
    """WIDTHxHEIGHT in pixels, both even: chroma planes are half as wide and high."""
    if not re.fullmatch(SIZE, text):
        return "WIDTHxHEIGHT in pixels, like 512x256"
    return None if all(int(side) % 2 == 0 for side in text.split("x")) else "an even width and height"


def flag_name(text: str) -> str | None:
    """The name of an environment variable that tinygrad may hear."""
    if not re.fullmatch(FLAG, text) or len(text) > 64:
        return "a flag's name: letters, digits and _, not starting with a digit"
    upper = text.upper()
    if upper in _ENVIRONMENT or upper.startswith(_ENVIRONMENT_PREFIXES):
        return "a flag; the build itself sets this variable (guide, section 5)"
    return None


def flag_value(text: str) -> str | None:
    """The exact text that the compile's environment gets."""
    odd = names.odd_characters(text)
    if odd:
        return f"one line of printable text (it holds {odd})"
    return "at most 200 characters" if len(text) > 200 else None


def url(text: str) -> str | None:
    """http, https or file, without user and password."""
    if any(ord(character) < 33 or ord(character) == 127 for character in text):
        return "a URL without spaces and control characters (%20 is a space)"
    try:
        parts = urlsplit(text)
        has_login, host = parts.username is not None or parts.password is not None, parts.hostname
        _ = parts.port
    except ValueError:
        return "a URL"
    if parts.scheme not in ("http", "https", "file"):
        return "a URL starting with https://, http:// or file://"
    if has_login:
        return "a URL without user and password; models.yaml holds no secrets"
    if parts.scheme == "file":
        return None if parts.path.startswith("/") else "a URL such as file:///share/model.onnx"
    return None if host else "a URL with a host"


def git_repository(text: str) -> str | None:
    """What git may be asked to fetch from: https, http, ssh, git, file, host:path, or a path here."""
    if any(ord(character) < 32 or ord(character) == 127 for character in text) or not text:
        return "a git URL or a path"
    if text.startswith("-"):
        return "a repository; git would take this for an option"
    if re.match(r"^[A-Za-z0-9+.-]*::", text):
        return "a repository; git would run a helper program for this one"
    scheme = re.match(r"^([A-Za-z][A-Za-z0-9+.-]*)://", text)
    if scheme is None:
        scp = re.match(r"^([^/]+):", text)
        if scp is None:
            return names.local_path(text)
        return None if re.fullmatch(r"[A-Za-z0-9._-]+(@[A-Za-z0-9._-]+)?", scp.group(1)) else "a git URL or a path"
    if scheme.group(1) not in ("https", "http", "ssh", "git", "file"):
        return "a git URL with https, http, ssh, git or file"
    try:
        parts = urlsplit(text)
        password, host = parts.password, parts.hostname or ""
    except ValueError:
        return "a git URL"
    if password is not None:
        return "a git URL without a password; models.yaml holds no secrets"
    if host.startswith("-") or (parts.username or "").startswith("-"):
        return "a repository; ssh would take this host for an option"
    return None


def source_path(text: str) -> str | None:
    """The short form of a source: a path."""
    if "://" in text:
        return "a path; a download is {kind: url, url: ..., sha256: ...}"
    return names.local_path(text)


def git_ref(text: str) -> str | None:
    """A branch, tag or commit, by the rules of git-check-ref-format."""
    unfit = not text or text.startswith(("-", "/", ".")) or text.endswith(("/", ".")) or text == "@"
    if unfit or "/." in text or _REF_UNFIT.search(text) or names.odd_characters(text):
        return "a branch, tag or commit as git names them"
    return None


def host(text: str) -> str | None:
    """A host name, an address, or a Host of ~/.ssh/config."""
    if "@" in text:
        return "a host alone; the user goes in user:"
    return None if re.fullmatch(HOST, text) else "a host name or address"


def jump(text: str) -> str | None:
    """One or more [user@]host[:port], by commas."""
    for hop in text.split(","):
        who, at, where = hop.strip().rpartition("@")
        if (at and user(who)) or host(where):
            return "[user@]host[:port], several by commas"
    return None


def compile_script(text: str) -> str | None:
    """`builtin` or a path on the device."""
    return (
        None if text == "builtin" or names.device_path(text) is None else "builtin, or an absolute path on the device"
    )


def root(text: str) -> str | None:
    """Before every path on the device: empty, absolute, or (local) inside the project."""
    return None if not text else names.local_path(text)


def _template(text: str, known: tuple[str, ...]) -> str | None:
    """Text with {placeholders}; no format specifications, no attributes."""
    if names.odd_characters(text) or not text.strip():
        return "one line of text"
    try:
        fields = [(field, spec, conversion) for _, field, spec, conversion in string.Formatter().parse(text)]
    except ValueError:
        return "text with {placeholders}; {{ and }} stand for braces"
    for field, spec, conversion in fields:
        if field is not None and (field not in known or spec or conversion):
            return f"placeholders out of {', '.join('{' + one + '}' for one in known)}"
    return None


def directory(text: str) -> str | None:
    """A relative path with placeholders."""
    return _template(text, PLACEHOLDERS) or names.inner_path(text)


def message(text: str) -> str | None:
    """A commit's subject with placeholders."""
    return _template(text, (*PLACEHOLDERS, "directory", "changes"))


def target_url(text: str) -> str | None:
    """A URL with placeholders."""
    return _template(text, (*PLACEHOLDERS, "directory", "path")) or url(re.sub(r"\{[a-z_]*\}", "x", text))
