"""The detached job itself: it owns the lock, watches the car, and is the only one that says how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

from . import journal, power, selector, toolchain
from .guard import onroad_state, require_offroad, why_not_offroad
from .hashes import HashCache, Signature
from .jobs import Job
from .main import Request
from .places import Places, read_json, unlink, write_json
from .processes import boot_id, descendants, end_all, end_group, end_strays, model_processes, start_time
from .recovery import recover
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASK_CHILD = 0.05
ASK_CAR = 0.4
ASK_PROCESSES = 1.0
ASK_JOURNALS = 0.2
ASK_AGAIN = 10.0
"""Seconds at most between two tries to put back what could not be: the car may drive for hours meanwhile."""
PATIENCE = 0.7
"""Seconds between asking a job to end and killing it."""
PATIENCE_WITH_A_FAKE = 3.0
"""A harness that fakes onroad must get to unfake it, unless the car is really on."""
MAX_LOG = 256 << 20
MAX_REPORT = 4 << 20


class Stopped(Exception):
    """The job ends without a result. state: onroad, timeout, cancelled, failed, input_changed."""

    def __init__(self, state: str, reason: str, **more: Any) -> None:
        super().__init__(reason)
        self.value = {"state": state, "reason": reason, **more}


def do_job_run(request: Request) -> dict[str, Any]:
    """Runs `argv` with exactly `env`, and writes the final status. Never called over a link: `job_start` spawns it.

    inputs: [{path, sha256}] that must have these hashes before and after. toolchain: a spec for
    `toolchain.identify`; expected_identity: what it must give before and after. output: device path, hashed at the
    end; report: device path of a small JSON file that goes into the status however the job ended. timeout: seconds.
    power: switch power saving off meanwhile. params: {key: text or None} set meanwhile. harness: model processes that
    the job starts itself do not count as the car's. fakes_onroad: the harness writes IsOnroad itself, so a "1" is not
    the car's; a model process of the manager's still ends the job. aside, remember: see `selector.prepare`. hand_over:
    seconds for which a job that ended well leaves its changes in place; the status names their `journal`. guard:
    journals of others that this job, when it is over, undoes if their time comes.
    """
    job = Job(request.places, str(request.args["key"]))
    since, begun = time.time(), time.monotonic()
    about = {
        "key": job.key,
        "pid": os.getpid(),
        "started": start_time(os.getpid()),
        "boot": boot_id(request.places),
        "owner": request.owner,
        "subject": request.args.get("subject"),
        "inputs": [item["path"] for item in request.args.get("inputs", ())],
        "since": since,
    }
    unlink(job.cancel_file)
    write_json(job.job_file, about)
    try:
        status = _work(request, job, about)
    except Stopped as stop:
        status = stop.value
    except Refusal as refusal:
        state = {"rail": "onroad", "input_changed": "input_changed"}.get(refusal.value["kind"], "failed")
        status = {"state": state, "reason": refusal.value["what"], "error": refusal.value}
    except Exception as error:  # noqa: BLE001  (whatever happens, the status must be written)
        import traceback

        traceback.print_exc()
        status = {"state": "failed", "reason": f"{type(error).__name__}: {error}"}
    if status["state"] != "ok" and request.args.get("output") and "child" in about:
        unlink(request.places.owned(request.args["output"]))
    status.update(key=job.key, elapsed=round(time.monotonic() - begun, 3), ended=time.time(), report=_report(request))
    request.hashes.save()
    write_json(job.status_file, status)
    guarded = {*request.args.get("guard", ()), status.get("journal")} - {None}
    if guarded:
        os.close(int(request.args["lock"]))
        _guard(request.places, guarded)
    return status


def _guard(places: Places, ids: set[str]) -> None:
    """Puts back what was left for a time when that is over and nobody has asked for it: the workstation is gone."""
    pause = ASK_JOURNALS
    while left := [entry for entry in journal.everything(places) if entry["id"] in ids]:
        if any(journal.due(places, entry, set()) for entry in left):
            with contextlib.suppress(Refusal, OSError):
                recover(places)
            pause = min(2 * pause, ASK_AGAIN)
        else:
            pause = ASK_JOURNALS
        time.sleep(pause)


def _work(request: Request, job: Job, about: dict[str, Any]) -> dict[str, Any]:
    places = request.places
    reason = why_not_offroad(places)
    if reason is not None:
        raise Stopped("onroad", reason.value["what"], error=reason.value)
    for path in (request.args.get("output"), request.args.get("report")):
        if path:
            unlink(places.owned(path))
    before, watch_before = _inputs(request)
    entry = journal.begin(places, f"job {job.key}", job=job.key)
    onroad = handed = False
    try:
        _change(request, entry)
        child = _start(request, job)
        try:
            about["child"] = {"pid": child.pid, "started": start_time(child.pid)}
            write_json(job.job_file, about)
            code = _watch(request, job, child)
        except Stopped as stop:
            onroad = stop.value["state"] == "onroad"
            raise
        finally:
            family = descendants(child.pid)
            faked = bool(request.args.get("fakes_onroad")) and not onroad
            end_group(child.pid, PATIENCE_WITH_A_FAKE if faked else PATIENCE)
            child.wait()
            end_all(family)
            end_strays(job.log)
        if code == 0 and request.args.get("hand_over"):
            selector.hand_over(request, entry)
            handed = True
    finally:
        if not handed:
            _put_back(places, entry, onroad)
    try:
        status = _outcome(request, code, before, watch_before)
    except Exception:
        if handed:
            _put_back(places, entry, False)
        raise
    return {**status, "journal": entry["id"]} if handed else status


def _outcome(request: Request, code: int, before: dict[str, Any], watch_before: list[Any]) -> dict[str, Any]:
    """The status of a job whose command has ended by itself. Raises Stopped unless all is as it was before."""
    places = request.places
    if code != 0:
        signalled = f"signal {-code}" if code < 0 else f"exit status {code}"
        raise Stopped("failed", signalled, exit=code)
    request.hashes = HashCache(places)
    try:
        after, watch_after = _inputs(request)
    except Stopped as stop:
        raise Stopped("input_changed", f"changed while the job ran: {stop.value['reason']}") from None
    if after != before or watch_after != watch_before:
        moved = [name for name in before if before[name] != after.get(name)] or ["bytes that went and came back"]
        raise Stopped("input_changed", f"changed while the job ran: {', '.join(moved)}")
    status: dict[str, Any] = {"state": "ok", "exit": 0, "identity": after.get("toolchain")}
    output = request.args.get("output")
    if output:
        real = places.real(output)
        if not os.path.isfile(real):
            raise Stopped("failed", "the command ended well and wrote no output", exit=0)
        digest, signature = request.hashes.file(real)
        status["output"] = {"path": output, "size": signature[2], "sha256": digest}
    return status


def _inputs(request: Request) -> tuple[dict[str, Any], list[Any]]:
    """(what the job depends on, by name; the signatures that would show a change that was undone)."""
    values: dict[str, Any] = {}
    watch: list[Any] = []
    for item in request.args.get("inputs", ()):
        digest, signature = _input(request, item)
        values[item["path"]] = digest
        watch.append(signature)
    spec = request.args.get("toolchain")
    if spec is not None:
        found = toolchain.identify(request.places, request.hashes, spec)
        values["toolchain"] = found["identity"]
        watch.append(found["watch"])
        expected = request.args.get("expected_identity")
        if expected is not None and expected != found["identity"]:
            other = sorted(name for name in expected if expected[name] != found["identity"].get(name))
            raise Stopped("input_changed", f"the toolchain is another than at the probe: {', '.join(other)}")
    return values, watch


def _input(request: Request, item: dict[str, Any]) -> tuple[str, Signature]:
    try:
        digest, signature = request.hashes.file(request.places.real(item["path"]))
    except FileNotFoundError:
        raise Stopped("input_changed", f"an input is not on the device: {item['path']}") from None
    if digest != item["sha256"]:
        raise Stopped("input_changed", f"{item['path']}: expected sha256 {item['sha256']}, got {digest}")
    return digest, signature


def _change(request: Request, entry: dict[str, Any]) -> None:
    from . import params

    # Asked again: the inputs may have been hashed for seconds since.
    require_offroad(request.places)
    if request.args.get("power"):
        power.off(request.places, entry)
    for key, text in (request.args.get("params") or {}).items():
        journal.add(request.places, entry, params.undo_of(request.places, key))
        params.write(request.places, key, None if text is None else str(text).encode())
    selector.prepare(request, entry)


def _start(request: Request, job: Job) -> subprocess.Popen[bytes]:
    cwd = request.args.get("cwd")
    with open(job.log, "ab", buffering=0) as log:
        try:
            return subprocess.Popen(
                [str(word) for word in request.args["argv"]],
                env={str(name): str(text) for name, text in request.args["env"].items()},
                cwd=request.places.real(cwd) if cwd else job.dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # The child keeps the lock too: were the runner killed, nobody could start beside it.
                pass_fds=(int(request.args["lock"]),),
                start_new_session=True,
            )
        except OSError as error:
            raise Stopped("failed", f"cannot be run: {error.strerror}: {request.args['argv'][0]}") from None


def _watch(request: Request, job: Job, child: subprocess.Popen[bytes]) -> int:
    """The child's exit status. Raises Stopped for the car, the clock, the user and a log without end."""
    timeout = float(request.args.get("timeout") or 3600)
    harness = os.getpid() if request.args.get("harness") else None
    calm = ("0", "1") if request.args.get("fakes_onroad") else ("0",)
    started = time.monotonic()
    next_car = next_processes = started + ASK_CAR
    while True:
        try:
            return child.wait(ASK_CHILD)
        except subprocess.TimeoutExpired:
            pass
        now = time.monotonic()
        if os.path.exists(job.cancel_file):
            raise Stopped("cancelled", "ended on request")
        if now - started > timeout:
            raise Stopped("timeout", f"ended after {timeout:.0f} s")
        if now >= next_car:
            next_car = now + ASK_CAR
            if onroad_state(request.places) not in calm:
                raise Stopped("onroad", "the device went onroad")
            if os.path.getsize(job.log) > MAX_LOG:
                raise Stopped("failed", f"the log passed {MAX_LOG >> 20} MiB")
        if now >= next_processes:
            next_processes = now + ASK_PROCESSES
            running = model_processes(request.places, except_under=harness)
            if running:
                raise Stopped("onroad", f"a model process runs: pid {running[0].pid}")


def _put_back(places: Places, entry: dict[str, Any], onroad: bool) -> None:
    """Undoes the job's changes. Onroad, power saving is the car's; the rest waits in the journal for the next probe."""
    if why_not_offroad(places) is None:
        journal.undo(places, entry, onroad=onroad)
        return
    if onroad_state(places) == "1":
        entry["steps"] = [step for step in entry["steps"] if step.get("undo") != "power"]
    journal.keep(places, entry)


def _report(request: Request) -> Any:
    path = request.args.get("report")
    if not path:
        return None
    real = request.places.real(path)
    return read_json(real) if os.path.isfile(real) and os.path.getsize(real) <= MAX_REPORT else None


signal.signal(signal.SIGHUP, signal.SIG_IGN)
