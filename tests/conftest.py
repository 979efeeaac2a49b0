"""What several tests share: one real sample and its real artifact, made once for all workers and kept between runs."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

from buildlib.sources import sample
from buildlib.toolchain.c_compiler import CCompiler, find_c_compiler
from tests.support.projects import Project, moved_copy, new_project, variant
from tests.support.scripts import content_of, in_checkout, lay_script

# A busy machine is no failure: no example has a time limit, pytest's own is for hangs.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

COMPILE_SCRIPT = in_checkout("compile_supercombo")
SEED, WIDTH = 1, 64

pytest_plugins = ("tests.support.captured_jits",)

Compile = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def kept(request: pytest.FixtureRequest) -> Path:
    """A directory of this checkout that outlives the run and that all workers see."""
    path = request.config.rootpath / ".pytest_cache" / "compiled files"
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture(scope="session")
def compile_script() -> Path:
    return COMPILE_SCRIPT


@pytest.fixture(scope="session")
def validate_script() -> Path:
    return in_checkout("validate_supercombo")


@pytest.fixture(scope="session")
def c_compiler(kept: Path) -> CCompiler:
    with alone(kept / "cc.lock"):
        return find_c_compiler(kept)


@pytest.fixture(scope="session")
def cpu_environment(kept: Path, c_compiler: CCompiler) -> dict[str, str]:
    """All that a compile or a load on the CPU needs; built, never inherited."""
    (kept / "home").mkdir(exist_ok=True)
    return {
        "HOME": str(kept / "home"),
        "XDG_CACHE_HOME": str(kept / "home"),
        "TMPDIR": str(kept / "home"),
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "CC": str(c_compiler.path),
        "DEV": "CPU",
        "WARP_DEV": "CPU",
    }


@pytest.fixture(scope="session")
def run_compile(cpu_environment: dict[str, str]) -> Compile:
    """run_compile(onnx, output, **changed options, environment={}, script=path): the compile script, in a process."""

    def run(
        onnx: Path,
        output: Path,
        *,
        model_size: str = "512x256",
        cameras: tuple[str, ...] = ("1344x760", "1928x1208"),
        frame_skip: int = 4,
        expected_device: str = "CPU",
        environment: dict[str, str] | None = None,
        script: Path = COMPILE_SCRIPT,
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), "--model-size", model_size, "--camera-resolutions", *cameras]
        command += ["--onnx", str(onnx), "--output", str(output), "--frame-skip", str(frame_skip)]
        command += ["--expected-device", expected_device]
        full = cpu_environment | (environment or {})
        return subprocess.run(command, env=full, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def sample_onnx(kept: Path) -> Path:
    """The sample of seed 1, width 64: 2.7 MB. Read it, never write to it."""
    name = hashlib.sha256(Path(sample.__file__).read_bytes()).hexdigest()[:16]
    path = kept / f"sample-{name}.onnx"
    with alone(kept / "sample.lock"):
        if not path.is_file():
            sample.write_sample(path, SEED, WIDTH)
    return path


@pytest.fixture(scope="session")
def sample_artifact(kept: Path, sample_onnx: Path, c_compiler: CCompiler, run_compile: Compile) -> Path:
    """The sample compiled for the CPU with the guide's arguments, 8 MB. Read it, never write to it.

    Its compile log is beside it, `.log` for `.pkl`.
    """
    script = content_of("compile_supercombo")
    key = hashlib.sha256(script + sample_onnx.read_bytes() + c_compiler.identity.encode())
    path = kept / f"artifact-{key.hexdigest()[:16]}.pkl"
    with alone(kept / "artifact.lock"):
        if not path.is_file():
            done = run_compile(sample_onnx, path)
            assert done.returncode == 0, done.stderr
            path.with_suffix(".log").write_text(done.stdout + done.stderr)
    return path


@pytest.fixture
def bare_project(tmp_path: Path, sample_artifact: Path, c_compiler: CCompiler) -> Project:
    """A project without models, on the device `local`, whose compiles take no time."""
    return new_project(tmp_path, sample_artifact, (c_compiler.path, c_compiler.identity))


@pytest.fixture
def project(bare_project: Project, sample_onnx: Path) -> Project:
    """The same with the models `one` and `two`, each from a file of its own: `one.onnx`, `two.onnx`."""
    return _two_models(bare_project, sample_onnx)


@pytest.fixture(scope="session")
def _built_once(
    tmp_path_factory: pytest.TempPathFactory, sample_artifact: Path, sample_onnx: Path, c_compiler: CCompiler
) -> Project:
    folder = tmp_path_factory.mktemp("built")
    project = _two_models(new_project(folder, sample_artifact, (c_compiler.path, c_compiler.identity)), sample_onnx)
    project.doit().ok()
    (project.control() / "calls").unlink()
    return project


@pytest.fixture
def built(_built_once: Project, tmp_path: Path) -> Project:
    """`project` after its first build, with no compiles counted yet: a copy, so moved from where it was built."""
    project = moved_copy(_built_once, tmp_path)
    project.doit().ok()  # as after any first build: what has nothing to do leaves its note
    return project


def _two_models(project: Project, onnx: Path) -> Project:
    for number, name in enumerate(("one", "two")):
        (project.root / f"{name}.onnx").write_bytes(variant(onnx.read_bytes(), number + 1))
        project.add(name, f"{name}.onnx")
    return project


@pytest.fixture(scope="session")
def split_scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts for split models as a device gets them: with what they load, in a directory of their own."""
    folder = tmp_path_factory.mktemp("the scripts")
    for name in ("compile_split", "validate_split"):
        lay_script(name, folder)
    return folder


@pytest.fixture(scope="session")
def split_parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small samples of every part of a split model, by role."""
    folder = tmp_path_factory.mktemp("split")
    roles = [role for role in sample.ROLE_INPUTS if role != "supercombo"]
    for role in roles:
        sample.write_sample(folder / f"{role}.onnx", SEED, 16, role)
    return {role: folder / f"{role}.onnx" for role in roles}


@pytest.fixture(scope="session")
def run_split(split_scripts: Path, cpu_environment: dict[str, str]) -> Compile:
    """run_split(*options, onnx={role: path}, output=path, **environment): the split compile script, in a process."""

    def run(*options: str, onnx: dict[str, Path], output: Path, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(split_scripts / "compile_split.py"), f"--output={output}"]
        command += ["--expected-device=CPU", *options, "--onnx", *(f"{role}={path}" for role, path in onnx.items())]
        return subprocess.run(command, env=cpu_environment | more, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def split_artifact(kept: Path, split_parts: dict[str, Path], c_compiler: CCompiler, run_split: Compile) -> Path:
    """All parts of a vision_multi_policy in one artifact for the CPU. Read it, never write to it."""
    key = hashlib.sha256(c_compiler.identity.encode() + content_of("compile_split"))
    for source in split_parts.values():
        key.update(source.read_bytes())
    path = kept / f"split-{key.hexdigest()[:16]}.pkl"
    with alone(kept / "split.lock"):
        if not path.is_file():
            onnx = {role: split_parts[role] for role in ("off_policy", "vision", "on_policy")}
            done = run_split(onnx=onnx, output=path)
            assert done.returncode == 0, done.stderr
    return path


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One process at a time; the lock dies with its holder."""
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
