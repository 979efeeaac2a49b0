"""The C compiler that tinygrad's CPU backend needs, to compile an artifact and also to load one (facts, section 2).

tinygrad runs `CC` as one path, never split into words. Where a real clang works, that is it. Else the `ziglang` wheel
holds one, behind a wrapper that this module writes: zig reads clang's arguments but not tinygrad's target name.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import platform
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from buildlib.errors import DeviceError
from buildlib.store import files

TINYGRAD = "0.14.0"
"""The version that this project compiles with on `local`; the same as in pyproject.toml."""

# machine -> (what tinygrad calls it, what zig calls it)
MACHINES = {
    "x86_64": ("x86_64", "x86_64"),
    "amd64": ("x86_64", "x86_64"),
    "aarch64": ("arm64", "aarch64"),
    "arm64": ("arm64", "aarch64"),
}

# zig's defaults for C are a debug build's; without these the objects are bigger and call a runtime that is not there.
ZIG_FLAGS = ("-g0", "-fno-sanitize=undefined", "-fno-stack-protector")

WRAPPER = """\
#!/bin/sh
# Written by the build: clang's command line for tinygrad, by zig. The last --target counts.
ZIG_GLOBAL_CACHE_DIR={cache}
ZIG_LOCAL_CACHE_DIR={cache}
export ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR
exec {zig} cc "$@" {flags}
"""

PROBE = "float probe(float *x, int n) { float s = 0; for (int i = 0; i < n; i++) s += x[i]; return s; }\n"


@dataclass(frozen=True)
class CCompiler:
    """path: what to put into CC. identity: what compiled, in words that are the same on every machine."""

    path: Path
    identity: str


@functools.lru_cache
def find_c_compiler(state_dir: Path) -> CCompiler:
    """A compiler that has just compiled a probe in tinygrad's own way: clang, else zig by way of a wrapper.

    state_dir: where the wrapper and zig's cache are kept; made if missing. Spaces in it do no harm.
    Raises DeviceError with what was tried where none works, StoreError where state_dir cannot be written.
    """
    machine = platform.machine()
    names = MACHINES.get(machine.lower())
    if names is None:
        raise DeviceError("DEV=CPU cannot compile here", expected="x86_64 or arm64", got=machine)
    tried = []
    for find in (_clang, _zig):
        found = find(state_dir.absolute(), names[1])
        if isinstance(found, str):
            tried.append(found)
            continue
        if (trouble := _probe(found.path, names[0])) is None:
            return found
        tried.append(trouble)
    raise DeviceError(
        "no C compiler for tinygrad's CPU backend",
        expected="clang, or the ziglang package",
        got="; ".join(tried),
        remedy=f"{shlex.quote(sys.executable)} -m pip install ziglang, or install clang",
    )


def check_tinygrad_version() -> str:
    """The installed tinygrad's version, if it is the pinned one.

    Raises DeviceError for another: an artifact loads only in the tinygrad that made it, so it is no small difference.
    """
    try:
        installed = importlib.metadata.version("tinygrad")
    except importlib.metadata.PackageNotFoundError:
        installed = "none"
    if installed != TINYGRAD:
        raise DeviceError(
            "local compiles with one tinygrad only, because an artifact does not load in another",
            where=sys.prefix,
            expected=f"tinygrad {TINYGRAD}",
            got=installed,
            remedy=f"{shlex.quote(sys.executable)} -m pip install tinygrad=={TINYGRAD}",
        )
    return installed


def _clang(_state_dir: Path, _machine: str) -> CCompiler | str:
    found = shutil.which("clang")
    if found is None:
        return "clang: not on PATH"
    # macOS: /usr/bin/clang is a stub that opens a dialog where the command line tools are not installed.
    if sys.platform == "darwin" and found == "/usr/bin/clang" and _output("xcode-select", "-p") is None:
        return "clang: the command line tools are not installed (xcode-select -p)"
    version = _output(found, "--version")
    if not version:
        return f"{found} --version: no answer"
    return CCompiler(Path(found), version.splitlines()[0].strip())


def _zig(state_dir: Path, machine: str) -> CCompiler | str:
    spec = importlib.util.find_spec("ziglang")
    roots = [Path(root) for root in spec.submodule_search_locations or ()] if spec else []
    zig = next((root / name for root in roots for name in ("zig", "zig.exe") if (root / name).is_file()), None)
    if zig is None:
        return "zig: the ziglang package is not installed"
    version = _output(str(zig), "version")
    if not version:
        return f"{zig} version: no answer"
    flags = " ".join((f"--target={machine}-freestanding-none", *ZIG_FLAGS))
    text = WRAPPER.format(
        cache=shlex.quote(str(state_dir / "zig-cache")), zig=shlex.quote(str(zig)), flags=flags
    ).encode()
    wrapper = state_dir / f"zig-cc-{hashlib.sha256(text).hexdigest()[:16]}"
    if not wrapper.is_file() or wrapper.read_bytes() != text:
        files.write(wrapper, text, mode=0o755)
    # The digest is of the template and the flags: the paths in a wrapper are this machine's own.
    digest = hashlib.sha256(f"{WRAPPER}{flags}".encode()).hexdigest()[:12]
    return CCompiler(wrapper, f"zig cc {version.strip()} wrapper {digest}")


def _probe(compiler: Path, machine: str) -> str | None:
    """None if the compiler makes an ELF object of C on its standard input, else what it did."""
    target, cpu = f"--target={machine}-none-unknown-elf", "-march=native" if machine == "x86_64" else "-mcpu=native"
    arguments = ("-c", "-x", "c", "-O2", "-fPIC", "-ffreestanding", "-nostdlib", "-fno-ident", target, cpu)
    try:
        done = subprocess.run(
            (str(compiler), *arguments, "-", "-o", "-"), input=PROBE.encode(), capture_output=True, check=False
        )
    except OSError as error:
        return f"{compiler}: {error.strerror}"
    if done.returncode == 0 and done.stdout.startswith(b"\x7fELF"):
        return None
    complaint = done.stderr.decode(errors="replace").strip().splitlines() or ["no object came out"]
    return f"{compiler}: exit {done.returncode}, {complaint[0]}"


def _output(*command: str) -> str | None:
    """Standard output of a program that ended well."""
    try:
        done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    except OSError:
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None
