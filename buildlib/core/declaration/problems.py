"""Problems of one file, collected so that a person sees all of them at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from buildlib.errors import CatalogError
from buildlib.plain_text import without_logins

SHOWN = 60
"""Characters of a wrong value that a message repeats."""


class Problems:
    """A list of problems in a file, in the order of its lines."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._found: dict[tuple[int, int, str], None] = {}

    def add(self, line: int, where: str, what: str) -> None:
        """line: from 1, or 0 for the whole file. where: dotted path, may be empty."""
        place = f"{self.path}:{line}" if line else self.path
        text = printable(": ".join(filter(None, (place, where, what))))
        self._found[line, len(self._found), text] = None

    def expected(self, line: int, where: str, expected: str, got: str) -> None:
        self.add(line, where, f"expected {expected}, got {got}")

    def __bool__(self) -> bool:
        return bool(self._found)

    def raise_if_any(self) -> None:
        """Raises CatalogError with every problem once."""
        if self._found:
            raise CatalogError(tuple(dict.fromkeys(text for _, _, text in sorted(self._found))))


def printable(text: str) -> str:
    """The text with what a terminal cannot show (or would obey) escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shown(text: str) -> str:
    """A wrong value in quotes, shortened, and without a login: it may be a token out of the environment."""
    text = without_logins(text)
    short = text if len(text) <= SHOWN else text[:SHOWN] + "..."
    return '"' + printable(short).replace('"', '\\"') + '"'


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean "frame_skip"?`, or nothing when nothing is near."""
    by_form = {candidate.casefold().replace("-", "_"): candidate for candidate in known}
    near = difflib.get_close_matches(word[:SHOWN].casefold().replace("-", "_"), by_form, n=1, cutoff=0.6)
    return f'; did you mean "{by_form[near[0]]}"?' if near else ""
