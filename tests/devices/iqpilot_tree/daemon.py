"""A small model process in the manner of IQPilot's: runs the artifact that the active bundle names, sends modelV2.

It lies at `iqpilot/selfdrive/iqmodeld/daemon.py` of a test device. By default it maps the artifact and reads all of
it; with the wish `real` it loads it with tinygrad and drives it as the device does, through the runtime of our own
harness, whose frame skip is 4 whatever the artifact says. Wishes: see `tests/devices/iqpilot.py`.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(os.path.abspath(__file__)).parent
ROOT = HERE.parents[4]
WISHES = ROOT / "data/stand-in/iqpilot.json"
FRAME_SKIP = 4
CAMERA = (1344, 760)


def active_file(wishes: dict[str, Any]) -> Path:
    bundle = json.loads((ROOT / "data/params/d/ModelManager_ActiveBundle").read_text())
    artifact = bundle["models"][0]["artifact"]
    name = wishes.get("runs") or artifact.get("fileName") or artifact["file_name"]
    return ROOT / "data/media/0/models" / name


class Queue:
    """A message queue's head in shared memory: readers, writer."""

    def __init__(self, name: str) -> None:
        folder = ROOT / "dev/shm"
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"msgq_{name}"
        self.path.write_bytes(bytes(64))
        self.file = self.path.open("r+b")
        self.map = mmap.mmap(self.file.fileno(), 64)
        self.sent = 0
        self.name = name

    def send(self) -> None:
        self.sent += 1
        self.map[8:16] = struct.pack("<Q", self.sent * 32)


def real_runtime(path: Path) -> Any:
    """The artifact, unpickled and driven: each call is one frame."""
    sys.path.insert(0, str(HERE / "tools"))
    import pickle

    from supercombo_build_validate import command
    from supercombo_build_validate.findings import Failure
    from supercombo_build_validate.runtime import Runtime

    with path.open("rb") as file:
        root = pickle.load(file)
    # As the device's: it asks for its camera, and its queues have its own frame skip.
    root[CAMERA]
    root["frame_skip"] = FRAME_SKIP
    words = [str(path), "--frames", "1", "--report", "/dev/null", "--cameras", "1344x760"]
    runtime = Runtime(root, command.parse(words, None), lambda message: None)
    camera = runtime.cameras[0]
    frames = runtime.on_device([camera.picture(view, 0) for view in (0, 1)])
    matrices = [camera.matrix(view, 0) for view in (0, 1)]

    def step() -> None:
        try:
            runtime.policy(runtime.warp(camera.name, matrices, frames))
        except Failure as failure:
            raise failure.__cause__ or failure from None

    step()
    return step


def main() -> None:
    wishes = json.loads(WISHES.read_text()) if WISHES.exists() else {}
    path = active_file(wishes)
    print(f"loading {path.name}", flush=True)
    file = path.open("rb")
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if not wishes.get("keeps_open"):
        file.close()
    if sum(mapped[:4096]) < 0:
        return
    if wishes.get("others_file"):
        other = (path.parent / wishes["others_file"]).open("rb")
        print(f"beside it {other.name}", flush=True)
    step = real_runtime(path) if wishes.get("real") else lambda: sum(range(20000))
    queues = [] if wishes.get("sends_nothing") else [Queue("modelV2"), Queue("livePose")]
    began = time.monotonic()
    print("running", flush=True)
    while True:
        now = time.monotonic() - began
        if now >= wishes.get("raise_at", 1e9):
            raise RuntimeError(wishes["error"])
        if now >= wishes.get("freeze_at", 1e9):
            time.sleep(1000)
        step()
        for queue in queues:
            if queue.name != "livePose" or now < wishes.get("stops_pose_at", 1e9):
                queue.send()
        time.sleep(0.05)


if __name__ == "__main__":
    main()
