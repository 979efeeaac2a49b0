"""A run with nothing to do, against bare doit and others: `python -m benchmarks.noop [MODELS ...]`.

CPU seconds (user and system, all children) of whole processes, the least of several runs. All sides have the same six
steps a model, the same files and the same probe of the device in each run. `ours/doit` is the ratio to hold: at most
1.3 at 3 and 100 models, at most 1.0 at 1000. `no note`: the same without the note that an idle run leaves, when all is
looked at anew.
"""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import others
from benchmarks.scene import environ, make_scene

LIMITS = {3: 1.3, 100: 1.3, 1000: 1.0}
GROWTH = 0.15
"""Milliseconds of CPU that one more task may cost."""
STATUS = {"status": 1.0, "status MB": 150.0}
"""Seconds of CPU and MB that `doit status` may cost, at any number of models here."""
TASKS = 7
"""Of a model: six steps and its own name."""


def cpu(command: list[str], root: Path, runs: int, without: Path | None = None) -> float:
    """Least CPU seconds of a command's runs, its children's included. without: a file removed before each."""
    least = float("inf")
    for _ in range(runs):
        if without is not None:
            without.unlink(missing_ok=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=root, env=environ(), stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


def peak(command: list[str], root: Path) -> float:
    """Peak memory of a command in MB."""
    process = subprocess.Popen(command, cwd=root, env=environ(), stdout=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def measure(root: Path, models: int) -> dict[str, float]:
    """CPU seconds by tool."""
    runs = 9 if models <= 100 else 4
    ours = [sys.executable, "-m", "doit"]
    found = {
        "ours": cpu(ours, root, runs),
        "no note": cpu(ours, root, min(runs, 4), root / ".build" / "cache" / "idle"),
        "doit": cpu(others.doit(place(root, "doit")), root / "doit", runs),
        "probe alone": cpu(others.probe_alone(), root, runs),
        "status": cpu([*ours, "status"], root, min(runs, 4)),
        "status MB": peak([*ours, "status"], root),
    }
    for name, tell in others.OTHERS.items():
        if shutil.which(name) and models <= others.MOST.get(name, models):
            found[name] = cpu(tell(place(root, name)), root / name, 2)
    return found


def place(root: Path, tool: str) -> Path:
    """A folder for another tool, with what it has to know."""
    (root / tool).mkdir()
    for name in ("files.json", "probe.json", "probe.stdin"):
        shutil.copy(root / name, root / tool / name)
    return root / tool


def growth(found: dict[int, dict[str, float]], name: str) -> list[str]:
    """Milliseconds of CPU that each task adds, between neighbouring sizes."""
    return [
        f"{(found[large][name] - found[small][name]) / ((large - small) * TASKS) * 1000:.3f}"
        for small, large in itertools.pairwise(sorted(found))
    ]


def main(sizes: list[int]) -> int:
    """Prints the table; 1 when a ratio, the growth or what status may cost is missed."""
    missed = False
    heads = f"{'models':>6} {'ours':>7} {'doit':>7} {'ours/doit':>9} {'limit':>6}"
    print(f"{heads}  {'no note':>7} {'probe':>7} {'status':>7} {'MB':>5}  others")
    table: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for models in sizes:
            found = table[models] = measure(make_scene(Path(folder), models), models)
            ratio, limit = found["ours"] / found["doit"], LIMITS.get(models, 1.3)
            missed = missed or ratio > limit or any(found[name] > most for name, most in STATUS.items())
            beside = ", ".join(f"{name} {found[name]:.2f}" for name in others.OTHERS if name in found)
            print(
                f"{models:>6} {found['ours']:>7.3f} {found['doit']:>7.3f} {ratio:>9.2f} {limit:>6.1f}  "
                f"{found['no note']:>7.3f} {found['probe alone']:>7.3f} {found['status']:>7.3f} "
                f"{found['status MB']:>5.0f}  {beside}",
                flush=True,
            )
    for name, words in (("ours", "ours"), ("no note", "ours, no note"), ("doit", "bare doit")):
        limit_told = f" (limit {GROWTH})" if name == "ours" else ""
        print(f"growth per task, ms CPU, {words}: {', '.join(growth(table, name))}{limit_told}")
        missed = missed or (name == "ours" and any(float(one) > GROWTH for one in growth(table, name)))
    absent = [name for name in others.OTHERS if not shutil.which(name)]
    if absent:
        print(f"not installed, so not beside: {', '.join(absent)}; try pip install {' '.join(absent)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main([int(word) for word in sys.argv[1:]] or list(LIMITS)))
