"""Fixtures of real captured jits: small ones, made once by the pinned tinygrad and kept between runs."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from buildlib.toolchain.c_compiler import CCompiler

MAKE_JITS = Path(__file__).with_name("make_jits.py")

SPECS: Mapping[str, dict[str, object]] = {
    "good": {"form": "supercombo"},
    "out_of_band": {"form": "supercombo", "out_of_band": True},
    "frame_skip_2": {"form": "supercombo", "frame_skip": 2},
    "one_camera": {"form": "supercombo", "cameras": [[1344, 760]]},
    "wrong_frame": {"form": "supercombo", "frames": {"1344x760": 1344 * 760 * 3 // 2}},
    "other_size": {"form": "supercombo", "model": [256, 128]},
    "half_features": {"form": "supercombo", "dtype": "float16"},
    "positional": {"form": "supercombo", "style": "positional"},
    "zero": {"form": "supercombo", "zero": True},
    "run_model": {"form": "run_model"},
    "compile3": {"form": "compile3"},
}


def make_jits(directory: Path, python: str, environment: Mapping[str, str], names: tuple[str, ...]) -> None:
    """Makes NAME.pkl for each name that is not there yet, in one process of that interpreter."""
    wanted = [SPECS[name] | {"out": str(directory / f"{name}.making")} for name in names]
    missing = [one for name, one in zip(names, wanted, strict=True) if not (directory / f"{name}.pkl").exists()]
    if not missing:
        return
    spec = directory / "spec.json"
    spec.write_text(json.dumps(missing))
    done = subprocess.run(
        (python, str(MAKE_JITS), str(spec)), env=dict(environment), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for name in names:
        making = directory / f"{name}.making"
        if making.exists():
            making.rename(directory / f"{name}.pkl")


@pytest.fixture(scope="session")
def jits(kept: Path, c_compiler: CCompiler, cpu_environment: dict[str, str]) -> dict[str, Path]:
    """Artifacts by the names of SPECS, captured on the CPU by the pinned tinygrad. Read them, never write to them."""
    from tests.conftest import alone

    key = hashlib.sha256(MAKE_JITS.read_bytes() + json.dumps(SPECS).encode() + c_compiler.identity.encode())
    directory = kept / f"jits-{key.hexdigest()[:16]}"
    directory.mkdir(exist_ok=True)
    with alone(kept / "jits.lock"):
        make_jits(directory, sys.executable, cpu_environment | {"PARALLEL": "0"}, tuple(SPECS))
    return {name: directory / f"{name}.pkl" for name in SPECS}
