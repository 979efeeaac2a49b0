"""What a name, a file name or a path in models.yaml may be.

Each rule takes a text and returns None, or what was expected instead, ready to follow the word "expected". The rules
hold for every disk and shell that the name may meet: Windows and Mac shares, case-insensitive disks, URLs, doit's
own command line.
"""

from __future__ import annotations

import re
import unicodedata

DOIT_COMMANDS = frozenset(
    {
        "auto",
        "clean",
        "doit",
        "dumpdb",
        "forget",
        "help",
        "ignore",
        "info",
        "list",
        "reset-dep",
        "run",
        "strace",
        "tabcompletion",
    }
)
COMMANDS = frozenset(
    {
        "status",
        "explain",
        "plan",
        "graph",
        "doctor",
        "inspect",
        "new",
        "update",
        "rebuild",
        "attest",
        "diagnose",
        "rollback",
        "unpublish",
        "catalog",
        "sandbox",
        "report",
        "gc",
        "watch",
        "publish-new",
        "abandon",
    }
)
STAGES = frozenset(
    {"preflight", "source", "upload", "compile", "pull", "verify", "install", "validate", "publish", "confirm"}
)
BOOLEAN_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
RESERVED = {
    **dict.fromkeys(DOIT_COMMANDS, "a command of doit"),
    **dict.fromkeys(COMMANDS, "a command of the build"),
    **dict.fromkeys(STAGES, "a stage of the build"),
    **dict.fromkeys(BOOLEAN_WORDS, "a YAML boolean or null"),
}

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
MAX_NAME = 64
MAX_FILE_NAME = 180
"""Bytes. 255 is the limit of the disks; the guide appends `.recompiled.pkl`, `.bak.<seconds>`, `.chunk01of03`, ..."""

_NAME = re.compile(NAME)
_WINDOWS_DEVICE = re.compile(r"^(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])\s*(\.|$)", re.IGNORECASE)
_ODD_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_FILE_UNFIT = frozenset('<>:"/\\|?*')
_DRIVE = re.compile(r"^[A-Za-z]:[\\/]")


def odd_characters(text: str) -> str | None:
    """The first character that no eye can see or no disk keeps, as `U+202E`; None when there is none."""
    for character in text:
        if character != " " and unicodedata.category(character) in _ODD_CATEGORIES:
            return f"U+{ord(character):04X}"
        if character != " " and unicodedata.category(character) == "Zs":
            return f"U+{ord(character):04X}"
    return None


def plain_text(text: str) -> str | None:
    """One line for people."""
    if not text.strip():
        return "some text"
    if text != text.strip():
        return "text without a space at either end"
    if len(text) > 200:
        return "at most 200 characters"
    odd = odd_characters(text)
    return f"one line of printable text (it holds {odd})" if odd else None


def name(text: str) -> str | None:
    """A name of a profile, device, target or tag."""
    if text.startswith("-"):
        return "a name that does not start with -, the sign of an option"
    for sign, meaning in (("=", "sets a variable for doit"), (":", "parts a stage from a model"), ("/", "is a path")):
        if sign in text:
            return f"a name without {sign}, which {meaning}"
    if not _NAME.fullmatch(text) or text.endswith("."):
        return "a name of letters (a-z, A-Z), digits, ., _ and -, starting with a letter or digit"
    if len(text) > MAX_NAME:
        return f"a name of at most {MAX_NAME} characters"
    if _WINDOWS_DEVICE.match(text):
        return "a name that Windows disks can keep"
    return None


def model_name(text: str) -> str | None:
    """A model's name is also a doit task, so words with a meaning there are taken."""
    taken = RESERVED.get(text.casefold())
    if taken:
        return f"a name that is not taken: it is {taken}"
    return name(text)


def file_name(text: str) -> str | None:
    """One component of a path, on any disk."""
    if not text:
        return "a bare file name"
    if "/" in text or "\\" in text or text in (".", ".."):
        return "a bare file name"
    odd = odd_characters(text)
    if odd:
        return f"a file name of printable characters (it holds {odd})"
    if unicodedata.normalize("NFC", text) != text:
        return "a file name in composed unicode (NFC), as Mac disks would rename it"
    if text.startswith(("-", ".", " ")) or text.endswith((".", " ")):
        return "a file name that does not start with -, . or a space, nor end with . or a space"
    unfit = sorted(set(text) & _FILE_UNFIT)
    if unfit:
        return f"a file name without {' '.join(unfit)}"
    if _WINDOWS_DEVICE.match(text):
        return "a file name that Windows disks can keep"
    if len(text.encode()) > MAX_FILE_NAME:
        return f"a file name of at most {MAX_FILE_NAME} bytes"
    return None


def artifact_name(text: str) -> str | None:
    """A bare file name ending in .pkl."""
    if not text.endswith(".pkl") or "/" in text or "\\" in text or text == ".pkl":
        return "a bare file name ending in .pkl"
    if folded(text).endswith(".recompiled.pkl"):
        return "a file name that does not end in .recompiled.pkl: on the device a compile's output is called so"
    return file_name(text)


def folded(text: str) -> str:
    """What a case-insensitive disk compares."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _path_text(text: str) -> str | None:
    if not text:
        return "a path"
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cs", "Cn", "Zl", "Zp"):
            return f"a path of printable characters (it holds U+{ord(character):04X})"
    if text.startswith("-"):
        return "a path that does not start with - (write ./-...)"
    return None


def _leaves(text: str) -> bool:
    """Whether a relative path goes above where it starts at any point."""
    depth = 0
    for part in text.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return True
    return False


def inner_path(text: str) -> str | None:
    """A relative path that stays where it starts: inside a repository or a target."""
    wrong = _path_text(text)
    if wrong:
        return wrong
    if text.startswith(("/", "~")) or _DRIVE.match(text) or "\\" in text:
        return "a relative path with /"
    return "a path without .." if ".." in text.split("/") else None


def local_path(text: str) -> str | None:
    """A path on the workstation: absolute (a share), from the home directory, or inside the project."""
    wrong = _path_text(text)
    if wrong:
        return wrong
    if "://" in text:
        return "a path on this machine, not a URL"
    if text.startswith("~") and text != "~" and not text.startswith("~/"):
        return "a path; of home directories only your own (~/) is known"
    if not text.startswith(("/", "~")) and not _DRIVE.match(text) and _leaves(text):
        return "a path inside the project, or an absolute one"
    return None


def device_path(text: str) -> str | None:
    """An absolute path on a device."""
    wrong = _path_text(text)
    if wrong:
        return wrong
    if not text.startswith("/"):
        return "an absolute path on the device"
    return "a path without .." if ".." in text.split("/") else None
