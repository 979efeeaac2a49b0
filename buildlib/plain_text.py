"""Text of strangers (a device, a log, a file) made fit to be shown: nothing in it moves a cursor or fakes a line."""

from __future__ import annotations

import re
from typing import Any, Final

ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
"""Colours, cursor movements and titles as programs print them."""
# Controls but tab and newline, C1 codes, and what turns the direction of writing around or hides in it.
_UNFIT: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_LOGIN: Final = re.compile(r"(?<=http://)[^/@\s]*@|(?<=https://)[^/@\s]*@|(?<=://)[^/@\s:]*:[^/@\s]*@", re.IGNORECASE)


def without_logins(text: str) -> str:
    """The text with the logins of its URLs hidden: other programs repeat the address that they were given."""
    return _LOGIN.sub("...@", text) if "://" in text else text


def escaped(text: str) -> str:
    """The text with what a terminal would obey, or cannot show, as escapes. Lines stay lines."""
    return text if text.isprintable() else _UNFIT.sub(_as_escape, text)


def printable(text: str) -> str:
    """`escaped`, without logins: names and words in messages come from other people and other programs too."""
    return escaped(without_logins(text))


def _as_escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def plain(text: str) -> str:
    """The text without terminal codes; what else no terminal should get is shown as an escape. Lines stay lines."""
    if text.isprintable():
        return text
    return _UNFIT.sub(_as_escape, ANSI.sub("", text.replace("\r\n", "\n")))


def one_line(text: str, most: int = 500) -> str:
    """`plain`, in one line of bounded length: for a place where a second line would look like the build's own."""
    line = " ".join(plain(text[: 8 * most]).split())
    return line if len(line) <= most else line[: most - 3] + "..."


def plain_value(value: Any) -> Any:
    """A JSON value with every string in it made `plain`. Keys stay: they are looked up, not shown."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        return {key: plain_value(item) for key, item in value.items()}
    return value
