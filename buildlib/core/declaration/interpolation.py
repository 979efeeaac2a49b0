"""`${VAR}`, `${VAR:-default}` and `$$` in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_TOKEN = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}|\$\{")


class Unresolved(ValueError):
    """A variable is not set, or `${` is not closed. The text is ready to follow a path and a colon."""


def interpolate(text: str, environ: Mapping[str, str]) -> str:
    """Puts variables in. As in a shell, the default of `:-` also stands for a variable that is empty.

    Raises Unresolved. A `$` before anything but `{` and `$` stays as it is.
    """

    def value(match: re.Match[str]) -> str:
        if match.group() == "$$":
            return "$"
        variable, default = match.group(1), match.group(2)
        if variable is None:
            raise Unresolved(f'expected ${{VAR}} or ${{VAR:-default}} ($$ is a $), got "{text[match.start() :][:40]}"')
        found = environ.get(variable)
        if default is not None:
            return found or default
        if found is None:
            raise Unresolved(f"expected the environment variable {variable} to be set, or ${{{variable}:-a default}}")
        return found

    return _TOKEN.sub(value, text) if "$" in text else text


class UsedEnviron(Mapping[str, str]):
    """An environment that notes in `used` what was asked for: with the text, all that a parse depends on."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.used: dict[str, str | None] = {}
        self._environ = environ

    def __getitem__(self, name: str) -> str:
        self.used[name] = self._environ.get(name)
        return self._environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)
