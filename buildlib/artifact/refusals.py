"""The ways a file ends its reading. Each is an ArtifactError with a `code` that a verdict can carry."""

from __future__ import annotations

from typing import ClassVar

from buildlib.errors import ArtifactError


class NotAnArtifact(ArtifactError):
    """The file is something else: an LFS pointer, a web page, text, an archive."""

    code: ClassVar[str] = "not_an_artifact"


class Truncated(ArtifactError):
    """The file ends before its content does, by the lengths that it declares itself."""

    code: ClassVar[str] = "truncated"


class Damaged(ArtifactError):
    """The bytes are no well-formed pickle."""

    code: ClassVar[str] = "damaged"


class Forbidden(ArtifactError):
    """A well-formed pickle that does what no captured jit does. It was read, nothing in it was called."""

    code: ClassVar[str] = "forbidden"


class TooMuch(ArtifactError):
    """A limit of the reader was reached. Genuine artifacts stay far below each."""

    code: ClassVar[str] = "too_much"


COPY_AGAIN = "copy it again and compare size and sha256 with the device's before anything else"
REBUILD = "do not load it anywhere; compile the model again"
