"""A source on a disk or a mounted share."""

from __future__ import annotations

import contextlib
import difflib
from pathlib import Path

from buildlib.core.catalog import PathSource
from buildlib.errors import InputChanged, SourceError, SourceUnavailable, StoreError
from buildlib.ports.source import Fetched, Observed, SourceContext
from buildlib.sources.plain_file import require_plain
from buildlib.store import files


class Reader:
    """Reads a PathSource. Content decides: its identity is its sha256, wherever it lies."""

    def __init__(self, spec: PathSource, context: SourceContext) -> None:
        self.spec = spec
        self.context = context
        self.file = context.root / Path(spec.path).expanduser()

    def observe(self) -> Observed:
        """Hash and size of the file as it is now."""
        self._check_there()
        try:
            sha256 = self.context.hash_file(self.file)
            size = self.file.stat().st_size
        except OSError as error:
            raise self._unreadable(error) from None
        return Observed(identity={"sha256": sha256}, sha256=sha256, size=size, detail={"path": self.spec.path})

    def fetch(self, into: Path) -> Fetched:
        """Copies the file. Raises InputChanged where it changed while it was copied."""
        before = self.observe()
        self.context.check_cancelled()
        try:
            sha256 = files.copy(self.file, into)
        except StoreError:
            raise
        except OSError as error:
            raise self._unreadable(error) from None
        if sha256 != before.sha256:
            into.unlink(missing_ok=True)
            raise InputChanged(
                "the source changed while it was copied",
                where=self.spec.path,
                expected=f"sha256 {before.sha256}",
                got=sha256,
                remedy="wait until it is written whole, then run doit again",
            )
        return Fetched(path=into, sha256=sha256, size=into.stat().st_size, detail=before.detail)

    def _check_there(self) -> None:
        try:
            if self.file.is_file():
                return
            if self.file.is_dir():
                raise SourceError(
                    "a folder, not a file",
                    where=self.spec.path,
                    expected="an ONNX file",
                    remedy=f"name the file in it{self._among(self.file)}",
                )
            with contextlib.suppress(FileNotFoundError):
                require_plain(self.file, self.spec.path)
            parent = next((folder for folder in self.file.parents if folder.is_dir()), Path("/"))
        except (OSError, ValueError) as error:
            raise SourceError(f"no usable path: {error}", where=self.spec.path) from None
        if parent == self.file.parent:
            raise SourceUnavailable(
                "there is no such file", where=self.spec.path, remedy=f"correct the path{self._among(parent)}"
            )
        raise SourceUnavailable(
            "there is no such file",
            where=self.spec.path,
            got=f"nothing below {parent}",
            remedy="mount the disk or share that holds it, or correct the path in models.yaml",
        )

    def _among(self, folder: Path) -> str:
        """The likeliest file of a folder, as an end of a sentence."""
        try:
            names = sorted(file.name for file in folder.iterdir() if file.suffix.lower() == ".onnx" and file.is_file())
        except OSError:
            return ""
        close = difflib.get_close_matches(self.file.name, names, n=1, cutoff=0.5) or names[:1]
        return f"; did you mean {close[0]}?" if close else ""

    def _unreadable(self, error: OSError) -> SourceUnavailable:
        return SourceUnavailable(
            f"cannot be read: {error.strerror or error}",
            where=self.spec.path,
            remedy="check that the disk or share is mounted and that you may read the file",
        )
