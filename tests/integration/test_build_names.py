"""Names and words on the command line that mean nothing: told with what was meant, and nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.projects import Project

MODELS = ("status", "explain", "plan", "rebuild", "report", "attest", "diagnose", "update", "rollback", "unpublish")
TASKS = ("list", "info", "forget", "ignore", "clean", "reset-dep", "help")


@pytest.mark.parametrize(
    "words",
    [
        *((command, "oen") for command in (*MODELS, "abandon", "publish-new", *TASKS)),
        ("inspect", "-m", "oen", "x.pkl"),
        ("diagnose", "--compare-stock", "/", "oen"),
        ("-s", "oen"),
    ],
)
def test_every_command_that_takes_a_name_says_which_was_meant(built: Project, words: tuple[str, ...]) -> None:
    run = built.doit(*words)
    if "--compare-stock" not in words:  # that its tree is none is told first
        assert "did you mean 'one'?" in run.err
    assert run.status == 3, run
    assert built.calls() == []


@pytest.mark.parametrize("word", ["ONE", "compile:oen", "complie:one", "complie", "artifacts/one/x.pkl"])
def test_a_plan_of_nothing_is_an_error_with_a_remedy(built: Project, word: str) -> None:
    run = built.doit("plan", word)
    assert run.status == 3
    assert word in run.err or "oen" in run.err
    assert "  try   " in run.err


def test_a_plan_takes_what_a_build_takes(built: Project) -> None:
    artifact = built.artifact("one").relative_to(built.root)
    for word in (str(artifact), f"{artifact}.sha256", "one", "compile", "pull:one", "preflight:local"):
        assert built.doit("plan", word).ok().out == "Nothing to do.\n"
    assert built.doit("plan", "preflight:lokal").status == 3


@pytest.mark.parametrize(
    "words", [("doctor", "lokal"), ("gc", "--device", "lokal"), ("device=lokal", "status"), ("device=lokal",)]
)
def test_a_device_too(built: Project, words: tuple[str, ...]) -> None:
    run = built.doit(*words)
    assert run.status == 3
    assert "did you mean 'local'?" in run.err


def test_a_target_too(built: Project) -> None:
    built.head = {"targets": {"sandbox": {"repository": "x", "sandbox": True}}}
    built.declare()
    run = built.doit("catalog", "new", "sandbo")
    assert run.status == 3
    assert "did you mean 'sandbox'?" in run.err


@pytest.mark.parametrize("words", [("gc", "one"), ("sandbox", "one"), ("diagnose", "--file", "models.yaml", "one")])
def test_a_word_that_a_command_would_not_listen_to_is_refused(built: Project, words: tuple[str, ...]) -> None:
    run = built.doit(*words)
    assert run.status == 3
    assert f"doit {words[0]} takes no one" in run.err
    assert f"expected doit {words[0]}" in run.err


@pytest.mark.parametrize("words", [("-s",), ("-s", "one"), ("-s", "compile:one", "two")])
def test_single_refuses_a_name_that_stands_for_many_steps(built: Project, words: tuple[str, ...]) -> None:
    """Without those many steps nothing is left of it, and `0 models up to date` would be the answer."""
    run = built.doit(*words)
    assert run.status == 3
    assert "is no single step" in run.err
    assert built.calls() == []


@pytest.mark.parametrize("command", ["rebuild", "publish-new", "rollback", "unpublish", "abandon", "attest"])
def test_a_command_without_its_model_says_so_on_stderr(built: Project, command: str) -> None:
    run = built.doit(command)
    assert run.status == 3
    assert run.out == ""
    assert f"expected doit {command} MODEL" in run.err


def test_strace_would_build_beside_the_lock_and_does_not(built: Project) -> None:
    run = built.doit("strace", "-k", "compile:one")
    assert run.status == 3
    assert "no step here is one" in run.err
    assert built.calls() == []


def test_a_log_that_is_not_there_has_a_remedy(built: Project) -> None:
    run = built.doit("diagnose", "--file", "model.yaml")
    assert run.status == 3
    assert "did you mean models.yaml?" in run.err
    assert "doit diagnose MODEL" in built.doit("diagnose", "--file", "no/such/folder/x.log").err


def test_of_a_long_log_the_end_is_read_and_of_an_endless_one_nothing(built: Project) -> None:
    log = built.root / "long.log"
    with log.open("wb") as file:
        file.truncate(40 << 30)
        file.seek(0, 2)
        file.write(b"\nRan out of input\n")
    out = built.doit("diagnose", "--file", "long.log").ok().out
    assert "the artifact is incomplete" in out
    log.write_text("")
    assert "empty: nothing was logged" in built.doit("diagnose", "--file", "long.log").ok().out
    run = built.doit("diagnose", "--file", "/dev/zero")
    assert run.status == 3
    assert "got a device" in run.err


def test_a_missing_models_yaml_has_a_remedy(built: Project) -> None:
    (built.root / "models.yaml").unlink()
    for command in ([], ["status"], ["list"]):
        run = built.doit(*command)
        assert run.status == 4
        assert "nothing was run" in run.err
        assert "  try   run doit where models.yaml is" in run.err


def test_a_missing_source_names_its_line_and_nothing_twice(built: Project) -> None:
    built.models["one"]["source"] = "wto.onnx"
    built.declare()
    number = next(n for n, line in enumerate((built.root / "models.yaml").read_text().splitlines(), 1) if "wto" in line)
    said = f"models.yaml:{number}: wto.onnx: there is no such file"
    run = built.doit("one")
    assert run.status == 1
    assert f"one source failed\n  what  {said}\n  try   correct the path; did you mean two.onnx?\n" in run.out
    for command in ("status", "explain", "plan"):
        assert said in built.doit(command, "one").ok().out


def test_what_comes_before_a_single_step_is_named_where_it_is_not_done(project: Project) -> None:
    run = project.doit("-s", "verify:one")
    assert run.status == 1
    assert "one verify failed\n  what  source comes first, and is not done\n  try   doit one\n" in run.out


def test_a_failure_of_last_time_is_called_that(built: Project) -> None:
    wish = built.wish("fail", "one", "no luck")
    built.models["one"]["flags"] = {"NOLOCALS": 1}
    built.declare()
    assert built.doit("one").status == 1
    wish.unlink()
    row = next(line for line in built.doit("plan", "one").ok().out.splitlines() if " compile " in line)
    assert " failed at 20" in row
    assert "one compile failed at 20" in built.doit("explain", "one").ok().out
    assert "one: compile failed at 20" in built.doit("status", "one").ok().out


def test_what_was_never_done_is_said_once(project: Project) -> None:
    assert "one: source was never done\n" in project.doit("status").ok().out
    assert "one source was never done\n" in project.doit("explain", "one").ok().out


def test_a_misspelt_flag_is_told_with_its_line_and_the_near_one(built: Project) -> None:
    tinygrad = built.device() / "data/openpilot/tinygrad_repo/tinygrad"
    (tinygrad / "helpers.py").write_text('class ContextVar: pass\nnames = "NOLOCALS", "DEV", "OPENPILOT_HACKS"\n')
    built.models["one"]["flags"] = {"OPENPILOT_HAKCS": 1}
    built.declare()
    lines = (built.root / "models.yaml").read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if "HAKCS" in line)
    said = (
        f"models.yaml:{number}: OPENPILOT_HAKCS is ignored: the device's tinygrad does not know it; "
        "did you mean OPENPILOT_HACKS?"
    )
    assert said in built.doit("doctor").out
    assert said in built.doit("one").ok().out
    built.models["one"]["strict_flags"] = True
    built.declare()
    run = built.doit("doctor")
    assert run.status == 1
    assert f"  BAD   {said}" in run.out


def test_without_a_backup_the_remedy_names_the_step_and_the_model(built: Project) -> None:
    run = built.doit("rollback", "one")
    assert run.status == 1
    assert "there is no backup of it" in run.err
    assert "doit install:one" in run.err


@pytest.mark.parametrize("name", ["one.onnx", "one.pkl"])
def test_a_pipe_is_called_one_and_not_read(built: Project, name: str) -> None:
    import os

    pipe = Path(built.root) / "pipes" / name
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    for words in (("inspect", f"pipes/{name}"), ("new", "four", f"pipes/{name}"), ("new", "four", f"file://{pipe}")):
        run = built.doit(*[word.replace(" ", "%20") if "://" in word else word for word in words])
        assert run.status == 1
        assert "a FIFO (named pipe)" in run.err
        assert "did you mean" not in run.err


def test_a_plan_to_publish_where_nothing_can_be_published_says_what_to_do(built: Project) -> None:
    built.head = {"targets": {"sandbox": {"repository": ".build/sandbox/IQModels", "sandbox": True}}}
    built.models["one"]["target"] = "sandbox"
    built.declare()
    out = built.doit("plan", "publish:one").ok().out
    assert "there is no sandbox yet\n  try   doit sandbox\n" in out


def test_changes_are_told_in_words_and_once(built: Project) -> None:
    built.models["one"].update(flags={"NOLOCALS": 1, "IMAGE": 1}, frame_skip=2, model_size="256x128")
    built.declare()
    row = next(line for line in built.doit("plan", "one").ok().out.splitlines() if " compile " in line)
    assert row.split(maxsplit=2)[2] == (
        "frame skip: 4 -> 2; model size: 512x256 -> 256x128; IMAGE: unset -> 1; and 1 more"
    )
    explained = built.doit("explain", "one").ok().out
    assert "one compile is stale (last done 20" in explained
    for word in ("frame skip", "model size", "IMAGE", "NOLOCALS"):
        assert explained.count(word) == 1
