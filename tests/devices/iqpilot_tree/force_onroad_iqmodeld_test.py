"""A small harness in the manner of IQPilot's: fakes onroad, starts the model process, and puts back what it faked.

It lies at `iqpilot/selfdrive/iqmodeld/tools` of a test device. What goes wrong with it is asked for by the file
`data/stand-in/iqpilot.json`: see `tests/devices/iqpilot.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

TOOLS = Path(os.path.abspath(__file__)).parent
ROOT = TOOLS.parents[5]
PARAMS = ROOT / "data/params/d"
WISHES = ROOT / "data/stand-in/iqpilot.json"


def put(name: str, value: str) -> None:
    temporary = PARAMS / f".{name}.harness"
    temporary.write_text(value)
    temporary.replace(PARAMS / name)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--speed", type=float, required=True)
    speed = parser.parse_args().speed
    wishes = json.loads(WISHES.read_text()) if WISHES.exists() else {}
    print(f"fake onroad at {speed} m/s", flush=True)
    if wishes.get("ignores_the_end"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if wishes.get("fails_at_once"):
        raise RuntimeError("no camera can be faked here")
    put("IsOnroad", "1")
    model = None
    began = time.monotonic()
    done = set()
    try:
        if not wishes.get("starts_no_model"):
            model = subprocess.Popen([sys.executable, str(TOOLS.parent / "daemon.py")])
        while True:
            time.sleep(0.05)
            now = time.monotonic() - began
            if model is not None and model.poll() is not None and not wishes.get("leaves_the_dead"):
                print(f"iqmodeld died with exit code {model.returncode}", flush=True)
                return 1
            for name, at in wishes.items():
                if name in done or not isinstance(at, (int, float)) or now < at:
                    continue
                done.add(name)
                if name == "kill_model_at":
                    model.kill()
                elif name == "ends_at":
                    return int(wishes.get("status", 0))
                elif name == "select_other_at":
                    put("ModelManager_ActiveBundle", json.dumps(wishes["other"]))
                elif name == "reset_at":
                    (PARAMS / "ModelManager_ActiveBundle").unlink()
                elif name == "replace_at":
                    path = ROOT / "data/media/0/models" / wishes["replace"]
                    old = path.read_bytes()
                    path.write_bytes(old[:-1] + b"x")
                    if wishes.get("and_back"):
                        path.write_bytes(old)
                elif name == "crash_file_at":
                    (ROOT / "data/community/crashes/2026-12-01--12-00-00.log").write_text(wishes["crash"])
                    (ROOT / "data/community/crashes/error.log").write_text(wishes["crash"])
                elif name == "comm_issue_at":
                    for _ in range(5):
                        print("selfdrived: commIssue: modelV2 not alive", flush=True)
    except KeyboardInterrupt:
        print("stopped", flush=True)
        return 0
    finally:
        if model is not None and model.poll() is None:
            model.kill()
            model.wait()
        if not wishes.get("stays_onroad"):
            put("IsOnroad", "0")


if __name__ == "__main__":
    sys.exit(main())
