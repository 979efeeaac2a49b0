"""The operators of a tinygrad source tree that lies on this machine."""

from __future__ import annotations

from pathlib import Path

from buildlib.core.sources.operators import SupportedOperators, read_operators

ONNX_SOURCES = ("tinygrad/nn/onnx.py", "tinygrad/frontend/onnx.py", "nn/onnx.py", "frontend/onnx.py")
"""Where a checkout or an installed package keeps its table, newest place first."""


def operators_of(tree: Path) -> SupportedOperators | None:
    """Operators of a tinygrad checkout or package directory; None where they cannot be told."""
    for name in ONNX_SOURCES:
        try:
            source = (tree / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        return read_operators(source)
    return None


def installed_operators() -> SupportedOperators | None:
    """Operators of the tinygrad that is installed here, without importing it."""
    from importlib.util import find_spec

    spec = find_spec("tinygrad")
    places = list(spec.submodule_search_locations or []) if spec else []
    return operators_of(Path(places[0])) if places else None
