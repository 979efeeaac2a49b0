from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from buildlib import errors
from buildlib.device_scripts.agent.processes import start_time
from tests.support.benches import OUTPUT, Bench, until

SLEEP = "import time,sys\nprint('begun')\ntime.sleep(60)"
GOOD = "import sys\nprint('working')\nopen(sys.argv[1],'wb').write(b'artifact')\nprint('done')"


def state(begun: dict[str, Any]) -> tuple[bool, str]:
    """Whether a job was started, and what it is."""
    return begun["started"], begun["state"]


def job_file(bench: Bench, key: str, name: str) -> str:
    path = bench.path(f"/data/supercombo-build/jobs/{key}/{name}")
    return path.read_text() if path.exists() else ""


def test_a_job_runs_with_the_built_environment_and_its_output_is_hashed(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("QCOM", "1")
    code = "import os,sys\nprint(sorted(k for k in os.environ if k!='LC_CTYPE'))\nopen(sys.argv[1],'w').write('x')"
    assert bench.start("a", code, bench.link.real(OUTPUT), env={"DEV": "CPU"}, output=OUTPUT)["started"]
    log: list[bytes] = []
    status = bench.link.follow("a", on_log=lambda _, data: log.append(data))
    assert status["state"] == "ok"
    assert status["output"]["size"] == 1
    assert b"".join(log) == b"['DEV']\n"
    assert bench.path("/data/supercombo-build/jobs/a").stat().st_mode & 0o777 == 0o700


def test_a_finished_job_is_found_again_while_its_output_is_whole(bench: Bench):
    bench.start("a", GOOD, bench.link.real(OUTPUT), output=OUTPUT)
    bench.link.follow("a")
    assert state(bench.start("a", GOOD, bench.link.real(OUTPUT), output=OUTPUT)) == (False, "ok")
    bench.path(OUTPUT).write_bytes(b"artifacT")
    assert bench.start("a", GOOD, bench.link.real(OUTPUT), output=OUTPUT)["started"]
    assert bench.link.follow("a")["state"] == "ok"


def test_a_failed_job_is_reported_once_and_then_done_again(bench: Bench):
    bench.start("a", "import sys;open(sys.argv[1],'w');sys.exit(3)", bench.link.real(OUTPUT), output=OUTPUT)
    until(lambda: job_file(bench, "a", "status.json"))
    assert state(bench.start("a", GOOD)) == (False, "failed")
    assert bench.link.follow("a")["exit"] == 3
    assert not bench.path(OUTPUT).exists()
    assert bench.start("a", GOOD, bench.link.real(OUTPUT), output=OUTPUT)["started"]
    assert bench.link.follow("a")["state"] == "ok"


def test_a_command_that_ends_well_without_output_has_failed(bench: Bench):
    bench.write(OUTPUT, b"left over from an earlier run")
    bench.start("a", "pass", output=OUTPUT)
    assert bench.link.follow("a")["state"] == "failed"


def test_a_command_that_cannot_be_run_has_failed(bench: Bench):
    bench.link.call("job_start", key="a", argv=["/no/such/program"], env={})
    assert "cannot be run" in bench.link.follow("a")["reason"]


def test_a_job_outlives_its_follower_and_the_log_goes_on_at_its_byte(bench: Bench):
    code = "import time,os\nfor i in range(15):\n os.write(1, b'line %d \\xff\\n' % i)\n time.sleep(.1)"
    bench.start("a", code)
    program = (
        "import sys\nfrom pathlib import Path\nfrom tests.support.benches import *\n"
        "import msgspec\nfrom buildlib.core.catalog import Device\n"
        "device=msgspec.json.decode(sys.argv[1],type=Device)\n"
        "link=DeviceLink(LocalTransport(),device)\n"
        "link.follow('a',on_log=lambda o,b:(sys.stdout.buffer.write(b),sys.stdout.flush()))"
    )
    import msgspec

    text = msgspec.json.encode(bench.device).decode()
    follower = subprocess.Popen([sys.executable, "-c", program, text], stdout=subprocess.PIPE)
    assert follower.stdout is not None
    first = follower.stdout.readline() + follower.stdout.readline()
    follower.kill()
    follower.wait()
    follower.stdout.close()
    rest: list[bytes] = []
    offsets: list[int] = []
    status = bench.link.follow("a", offset=len(first), on_log=lambda at, data: (offsets.append(at), rest.append(data)))
    assert status["state"] == "ok"
    assert offsets[0] == len(first)
    assert first + b"".join(rest) == b"".join(b"line %d \xff\n" % i for i in range(15))


def test_another_checkout_waits_and_is_told_for_whom(bench: Bench):
    bench.start("a", SLEEP, subject="nopp compile")
    other = bench.new_link(owner="ana@laptop")
    with pytest.raises(errors.DeviceBusy) as caught:
        bench.start("b", GOOD, link=other)
    assert "tester@bench" in str(caught.value)
    assert "nopp compile" in str(caught.value)
    bench.link.call("job_cancel", key="a")
    assert bench.start("b", "pass", link=other)["started"]


def test_the_same_job_asked_for_twice_runs_once(bench: Bench):
    assert bench.start("a", SLEEP)["started"]
    assert state(bench.start("a", SLEEP, link=bench.new_link("other"))) == (False, "running")


def test_cancel_ends_children_and_grandchildren(bench: Bench):
    grandchild = f"{sys.executable!r}, '-c', 'import time; time.sleep(60)', 'marker-{os.getpid()}'"
    code = f"import subprocess,time\nsubprocess.Popen([{grandchild}], start_new_session=True)\n{SLEEP}"
    bench.start("a", code)
    until(lambda: bench.pids(f"marker-{os.getpid()}"))
    assert bench.link.call("job_cancel", key="a")["state"] == "cancelled"
    assert bench.pids(f"marker-{os.getpid()}") == []


def test_a_child_that_ignores_the_polite_signal_is_killed(bench: Bench):
    code = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEP}"
    bench.start("a", code)
    until(lambda: "begun" in job_file(bench, "a", "log"))
    assert bench.link.call("job_cancel", key="a")["state"] == "cancelled"
    assert bench.link.call("job_list")["lock"] is None


def test_a_timeout_ends_the_job(bench: Bench):
    bench.start("a", SLEEP, timeout=0.5)
    assert bench.link.follow("a")["state"] == "timeout"


@pytest.mark.parametrize("state", ["1", None])
def test_going_onroad_ends_the_job_within_two_seconds(bench: Bench, state: str | None):
    # Seconds of the job's own: on a machine that stands still, it stands still too.
    code = "import time\nfor tick in range(600):\n print('tick', tick, flush=True)\n time.sleep(.1)"
    bench.start("a", code, "a-marker-of-this-job", output=OUTPUT)
    until(lambda: "tick 0\n" in job_file(bench, "a", "log"))
    bench.param("IsOnroad", state)
    before = job_file(bench, "a", "log").count("tick")
    until(lambda: not bench.pids("a-marker-of-this-job"))
    assert job_file(bench, "a", "log").count("tick") - before < 20
    assert bench.link.follow("a")["state"] == "onroad"


@pytest.mark.parametrize("state", ["1", "2", "", None])
def test_no_job_starts_on_a_device_that_is_onroad_or_does_not_say(bench: Bench, state: str | None):
    bench.param("IsOnroad", state)
    with pytest.raises(errors.RailRefused):
        bench.start("a", SLEEP)
    assert not bench.path("/data/supercombo-build/jobs/a").exists()


def test_no_job_starts_while_a_model_process_runs_on_this_device(bench: Bench):
    script = bench.path("/data/openpilot/selfdrive/modeld/modeld.py")
    script.parent.mkdir(parents=True)
    script.write_text("import time\ntime.sleep(60)")
    model = subprocess.Popen([sys.executable, str(script)])
    try:
        with pytest.raises(errors.RailRefused, match="model process"):
            bench.start("a", SLEEP)
    finally:
        model.kill()
        model.wait()


def test_a_killed_runner_leaves_no_orphan_and_the_job_is_done_again(bench: Bench):
    bench.start("a", SLEEP, "orphan-marker")
    until(lambda: bench.pids("orphan-marker"))
    os.kill(json.loads(job_file(bench, "a", "job.json"))["pid"], signal.SIGKILL)
    assert bench.start("a", "print('again')")["started"]
    assert bench.pids("orphan-marker") == []
    assert bench.link.follow("a")["state"] == "ok"


def test_a_follower_of_a_killed_runner_hears_that_it_is_lost(bench: Bench):
    bench.start("a", SLEEP)
    pid = json.loads(job_file(bench, "a", "job.json"))["pid"]
    os.kill(pid, signal.SIGKILL)
    assert bench.link.follow("a")["state"] == "lost"


def test_a_job_of_a_past_boot_is_lost_and_redone(bench: Bench):
    boot = "/proc/sys/kernel/random/boot_id"
    bench.write(boot, b"one")
    bench.start("a", SLEEP, "past-marker")
    until(lambda: bench.pids("past-marker"))
    about = json.loads(job_file(bench, "a", "job.json"))
    bench.write(boot, b"two")
    # The power went: its processes are gone, and other processes have their pids.
    os.killpg(about["pid"], signal.SIGKILL)
    for pid in bench.pids("past-marker"):
        os.kill(pid, signal.SIGKILL)
    assert bench.start("a", "pass")["started"]
    assert bench.link.follow("a")["state"] == "ok"


@pytest.mark.parametrize("undo", [False, True])
def test_an_input_that_moves_while_the_job_runs_gives_no_result(bench: Bench, undo: bool):
    sha256 = bench.write("/data/media/0/in.onnx", b"A" * 100)
    inputs = [{"path": "/data/media/0/in.onnx", "sha256": sha256}]
    code = "import sys,time\nprint('begun')\ntime.sleep(1)\nopen(sys.argv[1],'w').write('x')"
    bench.start("a", code, bench.link.real(OUTPUT), inputs=inputs, output=OUTPUT)
    until(lambda: "begun" in job_file(bench, "a", "log"))
    bench.write("/data/media/0/in.onnx", b"B" * 100)
    if undo:
        bench.write("/data/media/0/in.onnx", b"A" * 100)
    assert bench.link.follow("a")["state"] == "input_changed"
    assert not bench.path(OUTPUT).exists()


def test_a_wrong_or_missing_input_is_noticed_before_the_start(bench: Bench):
    bench.write("/data/media/0/in.onnx", b"A")
    bench.start("a", SLEEP, inputs=[{"path": "/data/media/0/in.onnx", "sha256": "0" * 64}])
    assert bench.link.follow("a")["state"] == "input_changed"
    bench.start("b", SLEEP, inputs=[{"path": "/data/media/0/none.onnx", "sha256": "0" * 64}])
    assert "not on the device" in bench.link.follow("b")["reason"]


def test_a_toolchain_that_moves_while_the_job_runs_gives_no_result(bench: Bench):
    bench.write("/data/openpilot/tinygrad_repo/tinygrad/__init__.py", b"")
    bench.write("/data/openpilot/tinygrad_repo/tinygrad/engine.py", b"a = 1")
    spec = {"pythonpath": ["/data/openpilot/tinygrad_repo"], "script": {"sha256": "0" * 64}}
    identity = bench.link.call("probe", toolchain=spec)["identity"]
    code = "import sys,time\nprint('begun')\ntime.sleep(1)\nopen(sys.argv[1],'w').write('x')"
    more = {"output": OUTPUT, "toolchain": spec, "expected_identity": identity}
    bench.start("a", code, bench.link.real(OUTPUT), **more)
    until(lambda: "begun" in job_file(bench, "a", "log"))
    bench.write("/data/openpilot/tinygrad_repo/tinygrad/engine.py", b"a = 2")
    assert "toolchain" in bench.link.follow("a")["reason"]
    bench.start("b", code, bench.link.real(OUTPUT), **more)
    status = bench.link.follow("b")
    assert status["state"] == "input_changed"
    assert "tinygrad" in status["reason"]


HARNESS = """
import subprocess, sys, time
model = subprocess.Popen([sys.executable, sys.argv[1]])
print("begun")
time.sleep(2.5)
model.kill()
"""


def model_script(bench: Bench) -> str:
    path = "/data/openpilot/selfdrive/modeld/modeld.py"
    bench.write(path, b"import time\ntime.sleep(60)")
    return bench.link.real(path)


def test_a_harness_may_start_a_model_itself_and_nobody_else_may(bench: Bench):
    script = model_script(bench)
    bench.start("a", HARNESS, script, harness=True)
    assert bench.link.follow("a")["state"] == "ok"
    bench.start("b", HARNESS, script)
    assert bench.link.follow("b")["state"] == "onroad"
    bench.start("c", HARNESS, script, harness=True)
    until(lambda: "begun" in job_file(bench, "c", "log"))
    of_the_car = subprocess.Popen([sys.executable, script])
    try:
        assert bench.link.follow("c")["state"] == "onroad"
    finally:
        of_the_car.kill()
        of_the_car.wait()


def test_a_harness_that_fakes_onroad_says_so_and_leaves_no_model_behind(bench: Bench):
    script = model_script(bench)
    code = HARNESS.replace('print("begun")', 'print("begun"); open(sys.argv[2], "w").write("1")')
    code = code.replace("model.kill()", 'open(sys.argv[2], "w").write("0")')
    param = bench.link.real("/data/params/d/IsOnroad")
    bench.start("a", code, script, param, harness=True, fakes_onroad=True)
    assert bench.link.follow("a")["state"] == "ok"
    assert bench.link.call("probe")["health"]["model_processes"] == []


def test_a_report_is_kept_however_the_job_ends(bench: Bench):
    report = "/data/supercombo-build/report.json"
    code = "import sys;open(sys.argv[1],'w').write('{\"verdict\": \"leaks\"}');sys.exit(4)"
    bench.start("a", code, bench.link.real(report), report=report)
    status = bench.link.follow("a")
    assert (status["state"], status["report"]) == ("failed", {"verdict": "leaks"})


@pytest.mark.parametrize("output", ["/data/media/0/models/active.pkl", "/etc/passwd", "/data/params/d/IsOnroad"])
def test_a_jobs_output_lies_where_the_build_may_write(bench: Bench, output: str):
    with pytest.raises(errors.RailRefused):
        bench.start("a", "pass", output=output)
    assert bench.path("/data/params/d/IsOnroad").read_text() == "0"


@pytest.mark.parametrize("key", ["../x", "", "a/b", "-rf", ".hidden", "a" * 129, "a\n"])
def test_a_job_key_is_a_plain_name(bench: Bench, key: str):
    with pytest.raises(errors.DeviceError, match="not a job key"):
        bench.start(key, "pass")


def test_a_process_of_this_boot_with_the_pid_of_a_job_of_a_past_one_is_no_job_and_is_left_alone(bench: Bench):
    innocent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        who = {"pid": innocent.pid, "started": start_time(innocent.pid)}
        about = {**who, "boot": "a past boot", "child": who, "key": "a"}
        bench.write("/data/supercombo-build/jobs/a/job.json", json.dumps(about).encode())
        bench.link.call("probe")
        assert json.loads(job_file(bench, "a", "status.json"))["state"] == "lost"
        assert innocent.poll() is None
    finally:
        innocent.communicate()
