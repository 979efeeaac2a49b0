"""A compile script for tests of everything around a compile: it takes no time and leaves a real artifact.

It lies on the test device as /data/stand-in/compile.py, so it is the device's own script (`compile_script`). Beside it:
`artifact` (a real one), `offset` (where 32 bytes of its weights may be overwritten), `calls` (a line a run), and what a
test asks for: `sleep-NAME` (seconds), `fail-NAME`, `hook-NAME` (a program run in the middle). NAME is the artifact's
file name. The 32 bytes are the fingerprint of what it was given, so a test can read from any artifact what made it.
"""

from __future__ import annotations

import hashlib
import os
import runpy
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def fingerprint(onnx: bytes, flags: dict[str, str], extra: str = "") -> bytes:
    """What made an artifact, in 32 bytes."""
    told = [hashlib.sha256(onnx).hexdigest(), *(f"{name}={flags[name]}" for name in sorted(flags)), extra]
    return hashlib.sha256("\n".join(told).encode()).digest()


def main() -> None:
    arguments = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    onnx, output = Path(arguments["--onnx"]), Path(arguments["--output"])
    name = output.name.replace(".recompiled", "")
    with (HERE / "calls").open("a") as calls:
        calls.write(f"{name} {os.getpid()}\n")
    data = onnx.read_bytes()
    if (HERE / f"sleep-{name}").exists():
        time.sleep(float((HERE / f"sleep-{name}").read_text()))
    if (HERE / f"hold-{name}").exists():
        held = (HERE / f"hold-{name}").replace(HERE / f"held-{name}")
        patience = time.monotonic() + 600
        while held.exists() and time.monotonic() < patience:
            time.sleep(0.05)
    if (HERE / f"hook-{name}").exists():
        runpy.run_path(str(HERE / f"hook-{name}"), run_name="__main__")
    if (HERE / f"fail-{name}").exists():
        output.write_bytes(b"half an arti")
        print("error: " + (HERE / f"fail-{name}").read_text())
        sys.exit(1)
    known = {"HOME", "XDG_CACHE_HOME", "UV_CACHE_DIR", "TMPDIR", "PYTHONPATH", "PATH", "VIRTUAL_ENV", "CC"}
    known |= {"PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}  # a shell's and python's own
    flags = {flag: text for flag, text in os.environ.items() if flag not in known}
    artifact = bytearray((HERE / "artifact").read_bytes())
    offset = int((HERE / "offset").read_text())
    artifact[offset : offset + 32] = fingerprint(data, flags)
    output.write_bytes(artifact)
    with (HERE / "calls").open("a") as calls:
        calls.write(f"{name} {os.getpid()} done\n")
    print(f"Saved JITs to {output} ({len(artifact) / 1e6:.2f} MB)")


if __name__ == "__main__":
    main()
