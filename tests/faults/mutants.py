"""Bugs planted on purpose: each must be caught by the tests that are named beside it.

    python -m tests.faults.mutants            all of them, some minutes
    python -m tests.faults.mutants NAME ...   some of them
    python -m tests.faults.mutants --list

Each bug goes into a copy of this checkout, there the named tests run, and one of them must fail. First the copy without
a bug must pass them all, else a red test proves nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent.parent
COPIED = ("buildlib", "tests", "dodo.py", "pyproject.toml", "models.yaml", "models.schema.json")


@dataclass(frozen=True)
class Mutant:
    """A bug: in file, `before` becomes `after`. tests: what pytest is told to run; one of these must fail."""

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]


FRESHNESS = "tests/unit/core/test_freshness.py"
AGAIN = "tests/integration/test_build_again.py"
TRUTH = "tests/integration/test_build_truth.py"
IDLE = "tests/integration/test_build_idle.py"
FAULTS = "tests/faults/test_build_faults.py"

MUTANTS = (
    Mutant(
        "a compile key without flags",
        "buildlib/core/stages.py",
        '        "flags": effective_flags(subject.catalog, subject.model, subject.device),\n',
        '        "flags": {},\n',
        (FRESHNESS,),
    ),
    Mutant(
        "a compile key without the toolchain",
        "buildlib/core/stages.py",
        '        "toolchain": _identity(subject, world),\n',
        '        "toolchain": {},\n',
        (FRESHNESS,),
    ),
    Mutant(
        "a step's version left out of its key",
        "buildlib/core/key.py",
        '"version": version, ',
        "",
        ("tests/unit/core/test_key.py",),
    ),
    Mutant(
        "a script known by what is started alone",
        "buildlib/steps/scripts.py",
        "for file in script])",
        "for file in script[:1]])",
        ("tests/unit/steps/test_scripts.py",),
    ),
    Mutant(
        "no look at the inputs after the job",
        "buildlib/device_scripts/agent/runner.py",
        "    if after != before or watch_after != watch_before:\n",
        "    if False:\n",
        (f"{TRUTH}::test_what_moves_while_a_compile_runs_is_not_recorded",),
    ),
    Mutant(
        "hashes believed without ctime",
        "buildlib/store/signatures.py",
        "    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)\n",
        "    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, 0)\n",
        (f"{AGAIN}::test_other_bytes_at_the_old_size_and_time_are_built",),
    ),
    Mutant(
        "racy timestamps believed",
        "buildlib/store/signatures.py",
        "    return max(mtime, ctime) + tick < at_ns\n",
        "    return True\n",
        ("tests/unit/store/test_stat_cache.py",),
    ),
    Mutant(
        "files written in their place",
        "buildlib/store/files.py",
        "        temporary.replace(path)\n",
        "        path.write_bytes(temporary.read_bytes()[:-1])\n        path.write_bytes(temporary.read_bytes())\n"
        "        temporary.unlink()\n",
        ("tests/unit/store/test_files.py", f"{FAULTS}::test_no_file_of_the_state_is_ever_half_written"),
    ),
    Mutant(
        "no flush before the rename",
        "buildlib/store/files.py",
        "            os.fsync(file.fileno())\n        temporary.chmod(mode)\n",
        "        temporary.chmod(mode)\n",
        (f"{FAULTS}::test_no_file_of_the_state_is_ever_half_written",),
    ),
    Mutant(
        "a lock that is not waited for",
        "buildlib/store/locks.py",
        "        except BlockingIOError:\n",
        "        except BlockingIOError:\n            return\n",
        ("tests/unit/store/test_locks.py",),
    ),
    Mutant(
        "a failed probe that forgets what it knew",
        "buildlib/steps/preflight.py",
        "    return msgspec.structs.replace(before, reachable=False, ",
        "    return Observation(device=before.device, reachable=False, ",
        (f"{TRUTH}::test_a_device_that_is_gone_is_assumed_fresh_and_nothing_is_compiled_when_it_comes_back",),
    ),
    Mutant(
        "targets whose bytes are not looked at",
        "buildlib/core/stages.py",
        "        if there != target.sha256:\n",
        "        if there is None:\n",
        (FRESHNESS,),
    ),
    Mutant(
        "damaged receipts believed",
        "buildlib/store/receipts.py",
        " and _seal_of(data) == receipt.seal\n",
        "\n",
        ("tests/unit/store/test_receipts.py",),
    ),
    Mutant(
        "the short way taken without asking the device",
        "buildlib/doit_parts/idle.py",
        '            if answer is None or answer_digest(answer) != probe["answer"]:\n',
        "            if answer is None:\n",
        (f"{IDLE}::test_any_change_is_looked_into_the_long_way[bump_tinygrad]",),
    ),
    Mutant(
        "a failure that takes the targets of others along",
        "pyproject.toml",
        "continue = true\n",
        "continue = false\n",
        (f"{AGAIN}::test_one_broken_onnx_leaves_the_others_finished_and_says_what_to_do",),
    ),
)


def copy_to(folder: Path) -> Path:
    """This checkout without its history and state; compiled fixtures are shared."""
    for name in COPIED:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    kept = CHECKOUT / ".pytest_cache" / "compiled files"
    kept.mkdir(parents=True, exist_ok=True)
    (folder / ".pytest_cache").mkdir()
    (folder / ".pytest_cache" / "compiled files").symlink_to(kept)
    return folder


def run_tests(folder: Path, tests: tuple[str, ...]) -> bool:
    """True when they all pass."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False).returncode == 0


def plant(folder: Path, mutant: Mutant) -> None:
    """Puts a bug in; a bug that no longer fits the code is an error of this file."""
    path = folder / mutant.file
    text = path.read_text()
    if text.count(mutant.before) != 1:
        raise ValueError(f"{mutant.name}: expected one place in {mutant.file}, found {text.count(mutant.before)}")
    path.write_text(text.replace(mutant.before, mutant.after))


def is_caught(mutant: Mutant) -> bool:
    """Plants a bug into a fresh copy and runs its tests."""
    with tempfile.TemporaryDirectory(prefix="mutant ") as name:
        folder = copy_to(Path(name))
        plant(folder, mutant)
        return not run_tests(folder, mutant.tests)


def main() -> int:
    """0 when every bug was caught."""
    names = sys.argv[1:]
    if names == ["--list"]:
        print("\n".join(mutant.name for mutant in MUTANTS))
        return 0
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    with tempfile.TemporaryDirectory(prefix="no mutant ") as name:
        tests = tuple(dict.fromkeys(test for mutant in chosen for test in mutant.tests))
        if not run_tests(copy_to(Path(name)), tests):
            print("without any bug the tests fail already")
            return 2
    missed = 0
    for mutant in chosen:
        caught = is_caught(mutant)
        missed += not caught
        print(f"{'caught' if caught else 'MISSED'}  {mutant.name}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
