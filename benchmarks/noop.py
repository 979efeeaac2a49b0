"""A run with nothing to do, against bare doit and others: `python -m benchmarks.noop [MODELS ...]`.

CPU seconds (user and system, all children) of whole processes, the least of several runs. All sides have the same six
steps a model, the same files and the same probe of the device in each run. `ours/doit` is the ratio to hold: at most
1.3 at 3 and 100 models, at most 1.0 at 1000.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.scene import BARE_DOIT, SCONSTRUCT, environ, make_scene

LIMITS = {3: 1.3, 100: 1.3, 1000: 1.0}


def cpu(command: list[str], root: Path, runs: int) -> float:
    """Least CPU seconds of a command's runs, its children's included."""
    least = float("inf")
    for _ in range(runs):
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
    doit = [sys.executable, "-m", "doit"]
    (root / "bare").mkdir()
    for name in ("files.json", "probe.json", "probe.stdin"):
        shutil.copy(root / name, root / "bare" / name)
    (root / "bare" / "dodo.py").write_text(BARE_DOIT)
    subprocess.run(doit, cwd=root / "bare", env=environ(), check=True)
    send = "subprocess.run(json.load(open('probe.json')),stdin=open('probe.stdin','rb'),stdout=subprocess.DEVNULL)"
    probe = [sys.executable, "-c", f"import json,subprocess;{send}"]
    found = {
        "ours": cpu(doit, root, runs),
        "doit": cpu(doit, root / "bare", runs),
        "probe alone": cpu(probe, root, runs),
        "status": cpu([*doit, "status"], root, min(runs, 4)),
        "status MB": peak([*doit, "status"], root),
    }
    if shutil.which("scons"):
        (root / "bare" / "SConstruct").write_text(SCONSTRUCT)
        subprocess.run(["scons", "-Q"], cwd=root / "bare", env=environ(), check=True, stdout=subprocess.DEVNULL)
        found["scons"] = cpu(["scons", "-Q"], root / "bare", 2)
    return found


def main() -> None:
    """Prints the table; exit status 1 when a ratio is missed."""
    sizes = [int(word) for word in sys.argv[1:]] or list(LIMITS)
    missed = False
    heads = f"{'models':>6} {'ours':>7} {'doit':>7} {'ours/doit':>9} {'limit':>6}"
    print(f"{heads}  {'probe':>7} {'status':>7} {'MB':>5}  others")
    with tempfile.TemporaryDirectory() as folder:
        for models in sizes:
            found = measure(make_scene(Path(folder), models), models)
            ratio, limit = found["ours"] / found["doit"], LIMITS.get(models, 1.3)
            missed = missed or ratio > limit
            others = ", ".join(f"{name} {found[name]:.2f}" for name in ("scons", "dvc", "ninja") if name in found)
            print(
                f"{models:>6} {found['ours']:>7.3f} {found['doit']:>7.3f} {ratio:>9.2f} {limit:>6.1f}  "
                f"{found['probe alone']:>7.3f} {found['status']:>7.3f} {found['status MB']:>5.0f}  {others}",
                flush=True,
            )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
