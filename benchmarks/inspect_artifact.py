"""Seconds and memory of a static reading, beside the sha256 of the same file.

    python benchmarks/inspect_artifact.py [FILE]

FILE: an artifact. Without one, the sample of width 2040 is really compiled on the CPU, which takes half a minute.
Payloads are skipped, so the number of opcodes counts more than the size: both are printed.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUNS = 5
CHILD = """
import json, resource, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from buildlib.artifact.inspect_file import inspect_artifact
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
found = inspect_artifact(Path(sys.argv[1]))
seconds = time.perf_counter() - start
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
unit = 1 if sys.platform == "darwin" else 1024
print(json.dumps({"seconds": seconds, "peak": after * unit, "before": before * unit, "opcodes": found.opcodes}))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else compile_sample(Path(directory))
        runs = [read(path) for _ in range(RUNS)]
        hashing = min(hash_seconds(path) for _ in range(RUNS))
        best = min(runs, key=lambda one: one["seconds"])
        size = path.stat().st_size / 1e6
        print(f"{size:.1f} MB, {best['opcodes']:,} opcodes")
        print(f"inspect  {best['seconds']:.3f} s   best of {RUNS}, imports not counted")
        print(f"sha256   {hashing:.3f} s")
        print(f"memory   {best['peak'] / 1e6:.1f} MB peak, {best['before'] / 1e6:.1f} MB of it before reading")


def read(path: Path) -> dict[str, float]:
    command = (sys.executable, "-c", CHILD, str(path), str(ROOT))
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def hash_seconds(path: Path) -> float:
    start = time.perf_counter()
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")
    return time.perf_counter() - start


def compile_sample(directory: Path) -> Path:
    """The sample, compiled. It is written in another process: a child's peak counts its parent's size."""
    sys.path.insert(0, str(ROOT))
    from buildlib.toolchain.c_compiler import find_c_compiler

    onnx, artifact = directory / "sample.onnx", directory / "sample.pkl"
    code = (
        "import sys; from pathlib import Path; from buildlib.sources.sample import write_sample;"
        "write_sample(Path(sys.argv[1]), 1, 2040)"
    )
    subprocess.run([sys.executable, "-c", code, str(onnx)], check=True, cwd=ROOT)
    script = ROOT / "buildlib" / "device_scripts" / "compile_supercombo.py"
    options = ["--model-size", "512x256", "--camera-resolutions", "1344x760", "1928x1208", "--frame-skip", "4"]
    options += ["--expected-device", "CPU", "--onnx", str(onnx), "--output", str(artifact)]
    environment = {"HOME": str(directory), "XDG_CACHE_HOME": str(directory), "PATH": "/usr/bin:/bin"}
    environment |= {"CC": str(find_c_compiler(directory).path), "DEV": "CPU", "WARP_DEV": "CPU"}
    subprocess.run([sys.executable, str(script), *options], env=environment, check=True, capture_output=True)
    return artifact


if __name__ == "__main__":
    main()
