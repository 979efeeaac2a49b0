"""The agent's look at the runtime signals of guide section 10, on both transports."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.support.benches import Bench

ACTIVE = "/data/media/0/models/m.pkl"


def signals(bench: Bench, **args: object) -> dict[str, object]:
    return bench.link.call("signals", artifacts=[ACTIVE], **args)


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(root.rglob("*"))}


def test_an_empty_device_has_no_signals_and_stays_as_it_is(bench: Bench):
    signals(bench)
    before = snapshot(bench.root)
    seen = signals(bench)
    assert (seen["crashes"], seen["error_log"], seen["pane"], seen["processes"]) == ([], None, None, [])
    assert seen["artifacts"] == {ACTIVE: None}
    assert seen["services"] == {name: {"exists": False, "moves": False} for name in ("modelV2", "livePose", "iqPlan")}
    assert snapshot(bench.root) == before


def test_crash_files_come_newest_first_and_only_new_ones_are_read(bench: Bench):
    for number, name in enumerate(("old", "new")):
        bench.write(f"/data/community/crashes/{name}.log", name.encode())
        os.utime(bench.path(f"/data/community/crashes/{name}.log"), (1000 + number, 1000 + number))
    bench.write("/data/community/crashes/error.log", b"\xff" + b"x" * 100_000 + b"the end")
    seen = signals(bench, since=1000.5)
    assert [one["name"] for one in seen["crashes"]] == ["new.log", "old.log"]  # type: ignore[attr-defined]
    assert seen["crash_texts"] == {"new.log": "new"}
    text = seen["error_log"]["text"]  # type: ignore[index]
    assert text.endswith("the end")
    assert len(text) <= 65536


def test_a_moving_queue_is_told_from_one_that_stands(bench: Bench):
    bench.write("/dev/shm/msgq_livePose", bytes(64))
    bench.write("/dev/shm/modelV2", bytes(64))
    code = (
        "import sys,time\nfor i in range(1,400):\n"
        " f=open(sys.argv[1],'r+b');f.seek(8);f.write(i.to_bytes(8,'little'));f.close();time.sleep(.05)"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(bench.path("/dev/shm/modelV2"))])
    try:
        services = signals(bench)["services"]
    finally:
        writer.kill()
        writer.wait()
    assert services["modelV2"] == {"exists": True, "moves": True}  # type: ignore[index]
    assert services["livePose"] == {"exists": True, "moves": False}  # type: ignore[index]


def test_a_model_process_older_than_the_artifact_is_stale_and_what_it_holds_is_told(bench: Bench):
    bench.write(ACTIVE, b"old")
    daemon = bench.path("/data/openpilot/iqpilot/selfdrive/iqmodeld/daemon.py")
    bench.write(
        "/data/openpilot/iqpilot/selfdrive/iqmodeld/daemon.py",
        b"import sys,time\nf=open(sys.argv[1])\nprint(1,flush=True)\ntime.sleep(60)",
    )
    process = subprocess.Popen([sys.executable, str(daemon), str(bench.path(ACTIVE))], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        (seen,) = signals(bench)["processes"]  # type: ignore[misc]
        assert (seen["pid"], seen["model"], seen["holds"], seen["stale"]) == (process.pid, True, [ACTIVE], [])
        time.sleep(0.5)
        new = bench.path("/data/media/0/models/new")
        new.write_bytes(b"new")
        new.replace(bench.path(ACTIVE))
        (seen,) = signals(bench)["processes"]  # type: ignore[misc]
        assert (seen["holds"], seen["stale"]) == ([], [ACTIVE])
    finally:
        process.kill()
        process.wait()
