"""models.yaml: text in, Catalog out, or one CatalogError with everything that is wrong."""

from __future__ import annotations

from collections.abc import Mapping

from buildlib.core.catalog import Catalog
from buildlib.core.declaration.catalog_file import File
from buildlib.core.declaration.problems import Problems
from buildlib.core.declaration.reader import INVALID, Reader
from buildlib.core.declaration.resolver import resolve
from buildlib.core.declaration.yaml_tree import read_tree
from buildlib.errors import CatalogError


def decode_catalog(data: bytes, *, path: str) -> str:
    """The text of a file's bytes, which must be UTF-8. Raises CatalogError with the line of the first bad byte."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"{path}:{line}: expected UTF-8 text, got the byte 0x{data[error.start]:02x}"
        raise CatalogError((problem,)) from None


def parse_catalog(text: str, *, path: str, environ: Mapping[str, str]) -> Catalog:
    """Parses and resolves.

    path: how messages name the file, relative to the project ("models.yaml").
    environ: for `${VAR}` and `~/`; only what the text names is read.
    Raises CatalogError holding every problem, in the order of lines.
    """
    problems = Problems(path)
    tree = read_tree(text, problems, environ)
    if tree is not None:
        reader = Reader(problems, environ)
        raw = reader.read(tree, File)
        catalog = resolve(raw, reader.lines, problems) if raw is not INVALID else None
        problems.raise_if_any()
        if catalog is not None:
            return catalog
    problems.raise_if_any()
    raise CatalogError((f"{path}: cannot be read",))
