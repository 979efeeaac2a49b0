from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from buildlib.errors import DeviceError
from buildlib.toolchain import c_compiler

# tinygrad 0.14's own command line (runtime/support/compiler_cpu.py).
TINYGRAD_WAY = "-c -x c -O2 -fPIC -ffreestanding -fno-math-errno -nostdlib -fno-ident"
HALF = "typedef _Float16 half; void f(half *a, float *b) { for (int i = 0; i < 64; i++) b[i] = a[i] * 2; }"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    c_compiler.find_c_compiler.cache_clear()
    yield
    c_compiler.find_c_compiler.cache_clear()


@pytest.fixture
def no_clang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.usefixtures("no_clang")
def test_without_clang_the_wrapper_compiles_as_tinygrad_asks_in_an_empty_environment(tmp_path: Path) -> None:
    found = c_compiler.find_c_compiler(tmp_path / "a state dir")
    target, machine = {"x86_64": ("x86_64", "-march=native")}.get(os.uname().machine, ("arm64", "-mcpu=native"))
    command = [str(found.path), *TINYGRAD_WAY.split(), f"--target={target}-none-unknown-elf", machine, "-", "-o", "-"]
    done = subprocess.run(command, input=HALF.encode(), env={}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"\x7fELF")
    assert b"__ubsan" not in done.stdout


@pytest.mark.usefixtures("no_clang")
def test_identity_names_what_compiles_and_never_where(tmp_path: Path) -> None:
    one = c_compiler.find_c_compiler(tmp_path / "one")
    other = c_compiler.find_c_compiler(tmp_path / "other")
    assert one.path != other.path
    assert one.identity == other.identity
    assert one.identity.startswith("zig cc 0.")
    assert "/" not in one.identity


@pytest.mark.usefixtures("no_clang")
def test_the_wrapper_is_written_once_and_mended_when_damaged(tmp_path: Path) -> None:
    path = c_compiler.find_c_compiler(tmp_path).path
    before = path.stat()
    c_compiler.find_c_compiler.cache_clear()
    assert c_compiler.find_c_compiler(tmp_path).path.stat().st_ino == before.st_ino
    path.write_text("#!/bin/sh\nexit 1\n")
    c_compiler.find_c_compiler.cache_clear()
    assert c_compiler.find_c_compiler(tmp_path).path.read_text() != "#!/bin/sh\nexit 1\n"


@pytest.mark.usefixtures("no_clang")
def test_a_clang_that_works_comes_first(tmp_path: Path) -> None:
    zig = c_compiler.find_c_compiler(tmp_path).path
    _program(tmp_path / "bin" / "clang", f'[ "$1" = --version ] && echo clang version 99.0 && exit\nexec "{zig}" "$@"')
    c_compiler.find_c_compiler.cache_clear()
    found = c_compiler.find_c_compiler(tmp_path)
    assert (found.path, found.identity) == (tmp_path / "bin" / "clang", "clang version 99.0")


@pytest.mark.usefixtures("no_clang")
@pytest.mark.parametrize(
    "behaviour",
    ["exit 1", "echo clang version 0; exit 0", "[ $1 = --version ] && echo clang && exit; echo no target >&2; exit 1"],
)
def test_a_clang_that_does_not_work_is_passed_over(tmp_path: Path, behaviour: str) -> None:
    _program(tmp_path / "bin" / "clang", behaviour)
    assert c_compiler.find_c_compiler(tmp_path).identity.startswith("zig cc")


@pytest.mark.usefixtures("no_clang")
def test_apples_stub_is_not_started_without_its_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(c_compiler.shutil, "which", lambda name: f"/usr/bin/{name}")
    real = c_compiler._output

    def output(*command: str) -> str | None:
        asked.append(command[0])
        return None if command[0] == "xcode-select" else real(*command)

    monkeypatch.setattr(c_compiler, "_output", output)
    assert c_compiler.find_c_compiler(tmp_path).identity.startswith("zig cc")
    assert asked[0] == "xcode-select"
    assert "/usr/bin/clang" not in asked


@pytest.mark.usefixtures("no_clang")
def test_neither_is_an_error_that_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceError) as caught:
        c_compiler.find_c_compiler(tmp_path)
    text = caught.value.render()
    assert "clang: not on PATH" in text
    assert "ziglang package is not installed" in text
    assert "-m pip install ziglang" in text


def test_a_machine_without_a_known_target_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_compiler.platform, "machine", lambda: "s390x")
    with pytest.raises(DeviceError, match="s390x"):
        c_compiler.find_c_compiler(tmp_path)


def test_the_pinned_tinygrad_is_the_one_of_pyproject_and_is_installed() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert f"tinygrad=={c_compiler.TINYGRAD}" in project["dependencies"]
    assert c_compiler.check_tinygrad_version() == c_compiler.TINYGRAD


def test_another_tinygrad_is_refused_with_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_compiler.importlib.metadata, "version", lambda name: "0.13.0")
    with pytest.raises(DeviceError, match=r"expected tinygrad 0\.14\.0, got 0\.13\.0"):
        c_compiler.check_tinygrad_version()
