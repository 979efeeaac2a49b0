"""What may go wrong around a build: cuts, two at once, signals, unwritable places, damaged state (issue 3)."""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.projects import Project, end, hear, until, variant

UP_TO_DATE = "2 models up to date.\n"
ONE = "driving_supercombo_one.pkl"
TWO = "driving_supercombo_two.pkl"


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """A run's status and all that it said."""
    try:
        out, err = process.communicate(timeout=200)
    finally:
        end(process)
    assert "Traceback" not in out + err, out + err
    return process.returncode, out + err


def test_of_two_builds_at_once_one_waits_and_nothing_is_built_twice(project: Project) -> None:
    held = project.hold("one")
    first, second = project.start(), project.start()
    try:
        until(lambda: held.exists() and select.select([first.stderr, second.stderr], [], [], 0)[0])
    finally:
        held.unlink(missing_ok=True)
        results = [finish(first), finish(second)]
    assert [status for status, _ in results] == [0, 0]
    assert sorted(project.calls()) == [ONE, TWO]
    assert sum("waiting for doit (pid" in text for _, text in results) == 1
    project.assert_right()


def test_a_waiting_build_reads_what_models_yaml_says_when_its_turn_comes(project: Project) -> None:
    held = project.hold("one")
    first = project.start("one")
    until(held.exists)
    second = project.start("two")
    said = until(lambda: second.stderr.readline() if second.stderr else None)
    assert "waiting for doit one" in said
    project.models["two"]["flags"] = {"NOLOCALS": 1}
    project.declare()
    held.unlink()
    assert finish(first)[0] == 0
    assert finish(second)[0] == 0
    assert project.calls() == [ONE, TWO]
    assert project.made_from("two", (project.root / "two.onnx").read_bytes(), NOLOCALS="1")


def test_commands_that_only_read_do_not_wait_for_a_build(project: Project) -> None:
    project.doit("upload").ok()
    held = project.hold("one")
    first = project.start("one")
    try:
        until(held.exists)
        assert project.status()["two"]["compile"]["state"] == "never"
        assert first.poll() is None
    finally:
        first.send_signal(signal.SIGINT)
        finish(first)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_signal_in_a_compile_ends_it_and_what_it_started_and_records_nothing(
    project: Project, number: signal.Signals, status: int, processes: str
) -> None:
    project.wish("sleep", "one", "600")
    run = project.start("-n", processes)
    until(lambda: project.calls())
    pid = int((project.control() / "calls").read_text().split()[1])
    run.send_signal(number)
    assert finish(run)[0] == status
    assert not alive(pid)
    assert not list((project.root / ".build/receipts/compile").glob("*one*"))
    (project.control() / f"sleep-{ONE}").unlink()
    project.doit().ok()
    project.assert_right()


def test_a_second_build_stops_waiting_when_it_is_asked_to(project: Project) -> None:
    project.wish("sleep", "one", "600")
    first = project.start()
    until(lambda: project.calls())
    second = project.start()
    until(lambda: "waiting" in (second.stderr.readline() if second.stderr else ""))
    second.send_signal(signal.SIGINT)
    assert finish(second)[0] == 130
    first.send_signal(signal.SIGTERM)
    assert finish(first)[0] == 143


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 25))])
def test_a_signal_at_any_moment_leaves_a_state_that_the_next_build_completes(project: Project, seed: int) -> None:
    chance = random.Random(seed)
    number = chance.choice([signal.SIGINT, signal.SIGTERM])
    run = project.start("-n", chance.choice(["0", "2"]))
    # Before that the interpreter itself still loads doit, and no word of ours can change how it ends.
    until(lambda: (project.root / ".build/lock").exists())
    time.sleep(chance.random() * 4)
    run.send_signal(number)
    status, text = finish(run)
    assert status in (0, 130 if number == signal.SIGINT else 143), text
    done = set(project.finished())
    project.doit().ok()
    project.assert_right()
    for name in done:
        if any(name.removesuffix(".pkl").rpartition("_")[2] in path.read_text() for path in project.receipts()):
            assert project.calls().count(name) <= 2
    assert project.doit().ok().text == UP_TO_DATE


def test_after_a_kill_the_running_compile_is_taken_up_and_nothing_is_redone(project: Project) -> None:
    held = project.hold("two")
    run = project.start()
    until(held.exists)
    run.kill()
    run.communicate()
    run = project.start()
    hear(run, "two         compile    takes up the compile that runs there already\n")
    held.unlink()
    assert finish(run)[0] == 0
    assert project.calls() == [ONE, TWO], "the device's job went on, and was found again"
    project.assert_right()


# A kill at every rename and flush.

CALLS = "rename,renameat,renameat2,fsync"


def strace(*options: str) -> list[str]:
    """strace over doit's own process: the device's processes live on when it dies."""
    return ["strace", "-qq", "-e", f"trace={CALLS}", *options]


def count_calls(project: Project, folder: Path) -> dict[str, int]:
    """How many renames and flushes a whole build makes, by the system call that it uses."""
    log = folder / "strace.log"
    run = project.start(wrapper=strace("-o", str(log)))
    assert finish(run)[0] == 0
    found = re.findall(rf"^({CALLS.replace(',', '|')})\(", log.read_text(), re.MULTILINE)
    assert "fsync" in found
    assert any(name.startswith("rename") for name in found)
    return dict(Counter(found))


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, int]:
    from tests.conftest import _two_models
    from tests.support.projects import new_project

    folder = tmp_path_factory.mktemp("counted")
    compiler = request.getfixturevalue("c_compiler")
    project = new_project(folder, request.getfixturevalue("sample_artifact"), (compiler.path, compiler.identity))
    return count_calls(_two_models(project, request.getfixturevalue("sample_onnx")), folder)


def kill_at(project: Project, call: str, number: int) -> None:
    """Kills a build at one call: strace counts each system call for itself, so one is named."""
    injected = strace("-o", str(project.root.parent / "cut.log"), "-e", f"inject={call}:signal=SIGKILL:when={number}")
    run = project.start(wrapper=injected)
    run.communicate(timeout=200)
    assert run.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), f"the fault at {call} {number} did not fire"
    lines = (project.root.parent / "cut.log").read_text().splitlines()
    assert "killed by SIGKILL" in lines[-1]
    assert sum(line.startswith(f"{call}(") for line in lines) == number


def check_after_cut(project: Project) -> None:
    for name in ("one", "two"):
        artifact = project.artifact(name)
        if artifact.exists():
            assert project.made_from(name, (project.root / f"{name}.onnx").read_bytes()), "a target is whole or absent"
            assert artifact.stat().st_size == (project.control() / "artifact").stat().st_size
    one_is_done = project.status()["one"]["pull"]["state"] == "fresh"
    before = project.compiled("one")
    project.doit().ok()
    assert project.compiled("one") == before or not one_is_done, "a finished model is not redone"
    assert project.compiled("one") <= 2
    assert project.compiled("two") <= 2
    project.assert_right()
    assert project.doit().ok().text == UP_TO_DATE
    leftovers = [path for path in (project.root / ".build").rglob("*.tmp") if "cache" not in path.parts]
    assert leftovers == [], "what a cut build left is swept"


@pytest.mark.parametrize(("kind", "point"), [("rename", 0.2), ("rename", 0.55), ("fsync", 0.4)])
def test_a_kill_at_a_rename_or_flush_costs_the_running_step_and_nothing_else(
    project: Project, calls: dict[str, int], kind: str, point: float
) -> None:
    call = next(name for name in calls if name.startswith(kind))
    kill_at(project, call, max(1, int(calls[call] * point)))
    check_after_cut(project)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("kind", ["rename", "fsync"])
def test_a_kill_at_every_rename_and_flush_costs_the_running_step_and_nothing_else(
    project: Project, calls: dict[str, int], tmp_path: Path, kind: str
) -> None:
    from tests.support.projects import moved_copy

    for call, count in calls.items():
        for number in range(1, count + 1) if call.startswith(kind) else ():
            folder = tmp_path / f"{call} {number}"
            folder.mkdir()
            copy = moved_copy(project, folder)
            kill_at(copy, call, number)
            check_after_cut(copy)
            shutil.rmtree(folder)


def test_no_file_of_the_state_is_ever_half_written(project: Project, tmp_path: Path) -> None:
    """Each file of the memory and each artifact is written under another name, flushed, and only then renamed."""
    log = tmp_path / "strace.log"
    options = ["-f", "-y", "-qq", "-e", "trace=openat,fsync,rename,renameat,renameat2", "-e", "signal=none"]
    process = project.start("one", wrapper=["strace", "-o", str(log), *options])
    assert finish(process)[0] == 0
    ours = re.escape(str(project.root))
    final = re.compile(rf'"({ours}/(?:artifacts|\.build/(?:receipts|blobs|latest|devices))/[^"]*)"')
    flushed: set[str] = set()
    renamed = 0
    for line in log.read_text().splitlines():
        if "fsync(" in line:
            flushed |= set(re.findall(r"fsync\(\d+<([^>]*)>\)", line))
        elif "rename" in line and (names := re.findall(r'"([^"]*)"', line)):
            if final.search(f'"{names[-1]}"'):
                assert names[0] in flushed, f"renamed before it was flushed: {line}"
                renamed += 1
            if names[0] in flushed:
                flushed.add(names[-1])
        elif "openat(" in line and re.search(r"O_(WRONLY|RDWR)", line) and (found := final.search(line)):
            name = Path(found[1]).name
            assert name.startswith(".") or "incoming" in found[1], f"written in its place: {line}"
    assert renamed > 10


# Places that cannot be written.


@contextlib.contextmanager
def mounted(path: Path, options: str) -> Iterator[None]:
    """A small file system in a directory, with what was there."""
    kept = path.with_name(f"{path.name} before")
    path.rename(kept)
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=False, capture_output=True)
    if done.returncode != 0:
        path.rmdir()
        kept.rename(path)
        pytest.skip("mounting is not allowed here")
    try:
        shutil.copytree(kept, path, dirs_exist_ok=True, symlinks=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
        path.rmdir()
        kept.rename(path)


def test_a_full_disk_is_an_error_with_a_remedy_and_no_half_file(project: Project) -> None:
    with mounted(project.root, "size=9m"):
        run = project.doit()
        assert run.status == 1
        assert "No space left on device" in run.text
        assert "df -h" in run.text
        assert not project.artifact("one").exists()
        assert not list(project.root.rglob(".*.tmp"))
        assert not list((project.root / "artifacts").rglob("*.part"))
        subprocess.run(["mount", "-o", "remount,size=200m", str(project.root)], check=True)
        project.doit().ok()
        project.assert_right()


def test_a_read_only_project_still_answers_and_builds_nothing(built: Project) -> None:
    with mounted(built.root, "size=200m"):
        built.doit().ok()
        subprocess.run(["mount", "-o", "remount,ro", str(built.root)], check=True)
        run = built.doit()
        assert run.status != 0
        assert "Read-only file system" in run.text
        assert "  try   " in run.text
        for command in ("status", "explain", "plan"):
            assert built.doit(command).status == 0


# State that is damaged or gone.


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x15
    path.write_bytes(data)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def made_binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)))


def made_other_json(path: Path) -> None:
    path.write_bytes(b'["valid", {"but": "not ours"}]')


HARMS = [flipped, emptied, made_binary, made_other_json]


@pytest.mark.parametrize(
    "place", [0.5, *(pytest.param(place, marks=pytest.mark.slow) for place in (0.01, 0.2, 0.8, 0.99))]
)
@pytest.mark.parametrize("name", ["catalog.msgpack", "stat.msgpack", "c-compiler.json", "idle"])
def test_a_cache_with_one_wrong_bit_is_not_believed(built: Project, name: str, place: float) -> None:
    path = built.root / ".build/cache" / name
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 1
    path.write_bytes(data)
    if name != "idle":
        (built.root / ".build/cache/idle").unlink()
    assert built.doit().ok().text == UP_TO_DATE
    assert built.calls() == []


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("where", ["cache", "latest", "devices", "attempts", "lock"])
def test_damaged_memory_other_than_receipts_costs_no_compile(built: Project, where: str, harm: object) -> None:
    folder = built.root / ".build"
    if where == "attempts":
        (folder / "attempts/compile").mkdir(parents=True)
        (folder / "attempts/compile/one.json").write_text("{}")
    if where == "lock":
        (folder / "lock").write_text("{}")
    found = [path for path in [folder / where, *(folder / where).rglob("*")] if path.is_file()]
    assert found
    for path in found:
        harm(path)  # type: ignore[operator]
    assert built.doit("status").status == 0
    built.doit().ok()
    assert built.calls() == []
    built.assert_right()
    assert built.doit().ok().text == UP_TO_DATE


@pytest.mark.parametrize("harm", [*HARMS, Path.unlink])
def test_damaged_receipts_are_as_good_as_absent_and_never_believed(built: Project, harm: object) -> None:
    for path in built.receipts():
        harm(path)  # type: ignore[operator]
    assert built.doit("status").status == 0
    assert built.doit("explain").status == 0
    assert built.doit("gc").status == 0
    built.doit().ok()
    built.assert_right()
    assert built.doit().ok().text == UP_TO_DATE


def test_a_receipt_under_another_key_is_not_believed(built: Project) -> None:
    (receipt,) = [path for path in (built.root / ".build/receipts/verify").glob("*") if '"one"' in path.read_text()]
    built.models["one"]["flags"] = {"NOLOCALS": 1}
    built.declare()
    stale = built.status()["one"]
    forged = receipt.with_name(f"{stale['compile']['key']}.json")
    shutil.copy(receipt, forged.parent.parent / "compile" / forged.name)
    built.doit().ok()
    assert built.calls() == [ONE]
    built.assert_right()


def test_without_any_state_all_is_built_again_and_right(built: Project) -> None:
    shutil.rmtree(built.root / ".build")
    built.doit().ok()
    built.assert_right()
    assert built.doit().ok().text == UP_TO_DATE


def test_a_clock_that_was_set_back_hides_no_change(built: Project) -> None:
    past = time.time() - 10 * 365 * 86400
    for path in [built.root / "one.onnx", *built.receipts()]:
        os.utime(path, (past, past))
    assert built.doit().ok().text == UP_TO_DATE
    path = built.root / "one.onnx"
    path.write_bytes(variant(path.read_bytes(), 5))
    os.utime(path, (past, past))
    built.doit().ok()
    assert built.calls() == [ONE]
    built.assert_right()


def test_a_clock_that_is_ahead_neither_breaks_nor_believes_racy_files(built: Project) -> None:
    future = time.time() + 86400 * 365
    path = built.root / "one.onnx"
    os.utime(path, (future, future))
    assert built.doit().ok().text == UP_TO_DATE
    path.write_bytes(variant(path.read_bytes(), 6))
    os.utime(path, (future, future))
    built.doit().ok()
    built.assert_right()
