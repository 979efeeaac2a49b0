from __future__ import annotations

from pathlib import Path

import pytest

from buildlib.device_scripts.agent.hashes import HashCache
from buildlib.device_scripts.agent.imports import closure, imported_names
from tests.unit.agent.test_hashes import places


@pytest.mark.parametrize(
    ("source", "package", "names"),
    [
        (b"import a.b, c as d", "", ["a.b", "c"]),
        (b"from a import b, c", "", ["a", "a.b", "a.c"]),
        (b"from . import x", "p.q", ["p.q", "p.q.x"]),
        (b"from ..r import y", "p.q", ["p.r", "p.r.y"]),
        (b"def f():\n  from late import z", "", ["late", "late.z"]),
        (b"from a import *", "", ["a"]),
        (b"if not python(", "", []),
    ],
)
def test_imported_names(source: bytes, package: str, names: list[str]):
    assert imported_names(source, package) == names


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(root: Path) -> list[str]:
    script = root / "tools" / "compile.py"
    roots = [str(script.parent), str(root)]
    return [relative for relative, _, _ in closure(HashCache(places(root)), str(script), roots)]


def test_the_closure_follows_packages_siblings_relative_imports_and_compiled_modules(tmp_path: Path):
    put(
        tmp_path,
        {
            "tools/compile.py": "import helper, json, numpy\nfrom openpilot.common import params\nimport tinygrad.x",
            "tools/helper.py": "",
            "tools/unused.py": "",
            "openpilot/__init__.py": "",
            "openpilot/common/params.py": "from .util import f\nfrom openpilot.common import params_pyx",
            "openpilot/common/util.py": "import helper",
            "openpilot/common/params_pyx.abi3.so": "",
            "openpilot/common/other.py": "",
            "tinygrad/__init__.py": "",
            "tinygrad/x.py": "",
        },
    )
    assert found(tmp_path) == [
        "helper.py",
        "openpilot/__init__.py",
        "openpilot/common/params.py",
        "openpilot/common/params_pyx.abi3.so",
        "openpilot/common/util.py",
    ]


def test_modules_that_import_each_other_end(tmp_path: Path):
    put(tmp_path, {"tools/compile.py": "import a", "a.py": "import b", "b.py": "import a"})
    assert found(tmp_path) == ["a.py", "b.py"]


def test_a_new_module_that_shadows_another_is_seen(tmp_path: Path):
    put(tmp_path, {"tools/compile.py": "import a", "a.py": ""})
    before = closure(
        HashCache(places(tmp_path)), str(tmp_path / "tools/compile.py"), [str(tmp_path / "tools"), str(tmp_path)]
    )
    put(tmp_path, {"tools/a.py": "other"})
    after = closure(
        HashCache(places(tmp_path)), str(tmp_path / "tools/compile.py"), [str(tmp_path / "tools"), str(tmp_path)]
    )
    assert [entry[1] for entry in before] != [entry[1] for entry in after]


@pytest.mark.parametrize(
    ("imports", "files"),
    [
        ("from extra.onnx import OnnxRunner", ["extra/onnx.py"]),
        ("import onnx", ["onnx/__init__.py"]),
        ("import a", ["a.py"]),
        ("import b", ["b.abi3.so", "b.py"]),
        ("import c.d", ["c/__init__.abi3.so", "c/d.py"]),
        ("import e", ["e.pyc"]),
        ("import f.g", ["f/g.py"]),
        ("import os", []),
    ],
)
def test_what_python_would_load_is_found_as_python_looks_for_it(tmp_path: Path, imports: str, files: list[str]):
    """`extra` lies beside tinygrad; a module's file goes before a folder that is no package; compiled files count."""
    made = ["extra/onnx.py", "onnx/__init__.py", "a/z.py", "a.py", "b.py", "b.abi3.so", "c/__init__.abi3.so", "c/d.py"]
    put(tmp_path, {"tools/compile.py": imports, **dict.fromkeys((*made, "e.pyc", "f/g.py"), "")})
    assert found(tmp_path) == files


def test_what_python_loads_unasked_is_in_it(tmp_path: Path):
    put(tmp_path, {"tools/compile.py": "", "sitecustomize.py": "import patches", "patches.py": "", "other.py": ""})
    assert found(tmp_path) == ["patches.py", "sitecustomize.py"]
