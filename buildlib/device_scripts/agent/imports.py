"""Which modules a compile script loads: its static import closure, read from source, nothing executed."""

from __future__ import annotations

import os
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES

from .hashes import HashCache

SKIPPED = ("tinygrad", "numpy")
"""The identity holds these whole, or by version."""
UNASKED = ("sitecustomize", "usercustomize")
"""Python loads these from the PYTHONPATH although nobody imports them."""
SUFFIXES = (*EXTENSION_SUFFIXES, ".py", *BYTECODE_SUFFIXES)


def imported_names(source: bytes, package: str) -> list[str]:
    """Dotted names that a module's text imports, absolute; `from a import b` gives a.b too, since b may be a module.

    package: the dotted package that the module lives in, for relative imports. Text that is no Python gives none.
    """
    import ast

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".") if package else []
                kept = parents[: len(parents) - node.level + 1]
                base = ".".join([*kept, base] if base else kept)
            if base:
                names.add(base)
                names.update(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
    return sorted(names)


def _candidates(root: str, name: str) -> list[str]:
    """Files that importing a dotted name loads from a root: its packages' `__init__` and the module itself.

    As Python looks: a folder with an `__init__` first, then a module's file, then a folder without one. Of files that
    differ in their suffix only all are given: which of them comes first is Python's affair.
    """
    found = []
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        base = os.path.join(root, *parts[:depth])
        package = _with_suffixes(os.path.join(base, "__init__"))
        module = [] if package else _with_suffixes(base)
        found += package or module
        if module or not os.path.isdir(base):
            break
    return found


def _with_suffixes(base: str) -> list[str]:
    return [base + suffix for suffix in SUFFIXES if os.path.isfile(base + suffix)]


def closure(hashes: HashCache, script: str, roots: list[str]) -> list[tuple[str, str, list[int]]]:
    """(path relative to its root, sha256, signature) of each module under `roots` that the script loads, sorted.

    tinygrad, numpy and whatever is found in no root (standard library, site-packages) are not in it.
    """
    seen: dict[str, tuple[str, str, list[int]]] = {}
    todo = [(script, "")]
    while todo:
        path, package = todo.pop()
        digest, _ = hashes.file(path)
        for name in (*_names(hashes, path, digest, package), *(UNASKED if path == script else ())):
            if name.partition(".")[0] in SKIPPED:
                continue
            for root in roots:
                files = _candidates(root, name)
                for file in files:
                    if file not in seen:
                        relative = os.path.relpath(file, root)
                        sha256, sign = hashes.file(file)
                        seen[file] = (relative, sha256, sign)
                        if file.endswith(".py"):
                            parts = relative[:-3].split(os.sep)
                            todo.append((file, ".".join(parts[:-1])))
                if files:
                    break
    return sorted(seen.values())


def _names(hashes: HashCache, path: str, digest: str, package: str) -> list[str]:
    key = f"imports:{digest}:{package}"
    known = hashes.recall(key)
    if known is None:
        with open(path, "rb") as file:
            known = imported_names(file.read(), package)
        hashes.remember(key, known)
    return list(known)
