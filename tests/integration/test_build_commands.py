"""doit's own ways of being asked: names, options and commands that a user may try on this project."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.projects import CHECKOUT, Project

UP_TO_DATE = "2 models up to date.\n"
ONE = "driving_supercombo_one.pkl"
TWO = "driving_supercombo_two.pkl"


def test_list_shows_the_stages_and_the_models(built: Project) -> None:
    out = built.doit("list").ok().out
    for name in ("preflight", "source", "upload", "compile", "pull", "verify", "install", "one", "two"):
        assert any(line.split()[0] == name for line in out.splitlines()), name
    assert "compile:one" in built.doit("list", "--all").ok().out


def test_help_and_version_need_no_project(built: Project) -> None:
    assert "doit" in built.doit("help").ok().out
    assert built.doit("--version").ok().out


def test_one_stage_of_one_model_does_what_it_needs_and_no_more(project: Project) -> None:
    project.doit("compile:one").ok()
    assert project.calls() == [ONE]
    assert not project.artifact("one").exists(), "pull was not asked for"
    run = project.doit("one").ok()
    assert "1 model done" in run.out, "what was compiled before is not built again"
    assert project.calls() == [ONE]
    assert not project.artifact("two").exists()


def test_an_artifacts_path_is_a_name_for_what_makes_it(project: Project) -> None:
    project.doit(f"artifacts/one/{ONE}").ok()
    assert project.artifact("one").exists()
    assert project.calls() == [ONE]


def test_an_unknown_name_says_what_was_meant_and_runs_nothing(built: Project) -> None:
    for asked, meant in (
        ("oen", "one"),
        ("compile:tow", "compile:two"),
        ("complie", "compile"),
        ("statu", "status"),
        ("docter", "doctor"),
    ):
        run = built.doit(asked)
        assert run.status == 3, run
        assert asked in run.err
        assert f"did you mean {meant!r}" in run.err
    assert built.calls() == []


@pytest.mark.parametrize("words", [("install", "one"), ("one", "compile"), ("plan", "publish", "one")])
def test_a_stage_and_a_model_as_two_words_are_refused(built: Project, words: tuple[str, ...]) -> None:
    """`doit publish one` would publish every model."""
    run = built.doit(*words)
    assert run.status == 3
    assert run.out == ""
    assert f"  try   doit {({*words} - {'plan', 'one'}).pop()}:one\n" in run.err


@pytest.mark.parametrize("words", [("list",), ("help", "one"), ("info", "compile:one"), ("inspect", "Mødel – 1.pkl")])
def test_a_name_that_the_output_cannot_spell_ends_no_command(built: Project, words: tuple[str, ...]) -> None:
    """As with a locale that is not UTF-8; a model's display name may be any text."""
    built.models["one"]["display_name"] = "Mødel – 1"
    built.declare()
    shutil.copyfile(built.artifact("one"), built.root / "Mødel – 1.pkl")
    built.environment["PYTHONIOENCODING"] = "ascii"
    assert "M\\xf8del \\u2013 1" in built.doit(*words).ok().out


@pytest.mark.parametrize("command", ["status", "explain", "plan", "rebuild"])
def test_commands_know_models_by_name_too(built: Project, command: str) -> None:
    run = built.doit(command, "oen")
    assert run.status == 3
    assert "oen" in run.err


def test_an_unknown_device_is_a_usage_error(built: Project) -> None:
    run = built.doit("device=lokal")
    assert run.status == 3
    assert "no device is called 'lokal'" in run.err


@pytest.mark.parametrize("word", ["devcie=local", "Device=local", "device=", "device= "])
@pytest.mark.parametrize("command", [[], ["status"], ["-s", "compile:one"]])
def test_a_word_that_sets_no_variable_of_ours_builds_nothing(built: Project, command: list[str], word: str) -> None:
    """Taken in silence, it would build on another device than was meant."""
    run = built.doit(*command, word)
    assert run.status == 3
    assert "expected device=NAME" in run.text


def test_always_compiles_again_although_nothing_changed(built: Project) -> None:
    before = {path: path.read_bytes() for path in built.receipts()}
    built.doit("-a", "one").ok()
    assert built.calls() == [ONE]
    assert set(built.receipts()) == set(before)
    assert built.doit().ok().text == UP_TO_DATE
    built.assert_right()


def test_rebuild_compiles_the_named_model_again_and_no_other(built: Project) -> None:
    built.doit("rebuild", "one").ok()
    assert built.calls() == [ONE]
    built.assert_right()
    assert built.doit("rebuild").status == 3
    assert built.doit("rebuild", "compile:one").status == 3


def test_a_rebuild_that_gives_other_bytes_brings_them_everywhere_and_makes_no_compile_stale(built: Project) -> None:
    """Compilers vary: unequal bytes under one key are no reason to compile a third time."""
    before = built.artifact("one").read_bytes()
    wish = built.wish("hook", "one", "import os\nos.environ['LUCK'] = '1'\n")
    built.doit("rebuild", "one").ok()
    wish.unlink()
    made = built.artifact("one").read_bytes()
    assert made != before
    assert (built.device() / "data/media/0/models" / ONE).read_bytes() == made
    assert built.doit().ok().text == UP_TO_DATE
    assert built.calls() == [ONE]
    assert built.artifact("one").read_bytes() == made


def test_a_rebuild_that_fails_takes_nothing_away(built: Project) -> None:
    wish = built.wish("fail", "one", "no luck")
    assert built.doit("rebuild", "one").status == 1
    wish.unlink()
    assert built.doit().ok().text == UP_TO_DATE
    built.assert_right()


def test_forget_and_reset_dep_and_clean_rebuild_nothing(built: Project) -> None:
    for command in (["forget", "--all"], ["forget", "compile:one"], ["reset-dep"], ["reset-dep", "one"]):
        built.doit(*command).ok()
        assert built.doit().ok().text == UP_TO_DATE
    assert built.calls() == []


def test_ignore_lasts_until_forget_and_says_so(built: Project) -> None:
    built.doit("ignore", "compile:one").ok()
    built.models["one"]["flags"] = {"NOLOCALS": 1}
    built.declare()
    run = built.doit()
    assert run.out == (
        "compile:one is ignored (doit ignore); `doit forget compile:one` ends that\n1 model up to date, 1 ignored.\n"
    )
    assert built.doit().out == run.out
    assert built.calls() == []
    built.doit("forget", "compile:one").ok()
    built.doit().ok()
    assert built.calls() == [ONE]
    built.assert_right()


def test_a_look_at_devices_alone_counts_no_models(built: Project) -> None:
    assert built.doit("preflight").ok().out == (
        "No model was asked for, devices only: `doit doctor` shows what they say.\n"
    )


def test_a_mark_that_cannot_be_stored_is_told_without_a_traceback(built: Project) -> None:
    built.doit("ignore", "two").ok()
    marks = built.root / ".build/doit-marks.json"
    marks.unlink()
    (marks / "in the way").mkdir(parents=True)
    run = built.doit("ignore", "one")
    assert run.status == 1
    assert "doit-marks.json" in run.err
    assert "  try   " in run.err


@pytest.mark.parametrize("processes", ["1", "2", "8"])
def test_threads_build_the_same_one_device_one_task_at_a_time(project: Project, processes: str) -> None:
    run = project.doit("-n", processes).ok()
    assert "2 models built" in run.out
    assert sorted(project.calls()) == [ONE, TWO]
    project.assert_right()
    assert project.doit("-n", processes).ok().text == UP_TO_DATE


def test_single_does_one_task_without_what_comes_before(built: Project) -> None:
    built.doit("-s", "verify:one").ok()
    assert built.calls() == []


def test_from_another_directory_the_project_is_found_or_the_error_says_how(built: Project, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    dodo = built.root / "dodo.py"
    run = built.doit("-f", str(dodo), cwd=elsewhere)
    assert run.status == 3
    assert f"run doit in {built.root}" in run.err
    assert list(elsewhere.iterdir()) == [], "nothing is left there"
    run = built.doit("-f", str(dodo), "-d", str(built.root), cwd=elsewhere)
    assert run.status in (0, 3)


def test_without_a_project_doit_says_so(built: Project, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert built.doit(cwd=empty).status == 3
    shutil.copy(CHECKOUT / "pyproject.toml", empty)
    shutil.copy(CHECKOUT / "dodo.py", empty)
    run = built.doit(cwd=empty)
    assert run.status == 4
    assert "models.yaml" in run.err
    assert "nothing was run" in run.err


def test_a_wrong_models_yaml_ends_every_command_with_its_lines(built: Project) -> None:
    path = built.root / "models.yaml"
    path.write_text(path.read_text().replace("display_name: Model one", "displayname: Model one"))
    for command in ([], ["status"], ["explain"], ["plan"], ["gc"], ["list"], ["rebuild", "one"], ["compile:one"]):
        run = built.doit(*command)
        assert run.status == 4, command
        assert "models.yaml:" in run.err, command
        assert "nothing was run" in run.err, command
    assert built.calls() == []


def test_a_broken_pipe_is_no_traceback(built: Project) -> None:
    command = " ".join(f"'{word}'" for word in built.command("status"))
    done = subprocess.run(
        ["sh", "-c", f"{command} | true"],
        cwd=built.root,
        env=built.environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr


def test_nothing_heavy_is_imported_when_nothing_is_to_do(built: Project) -> None:
    built.doit().ok()
    for arguments in ([], ["status"], ["plan"], ["explain"]):
        code = (
            "import sys\n"
            "from doit.doit_cmd import DoitMain\n"
            f"status = DoitMain().run({arguments!r})\n"
            "print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}))\n"
            "sys.exit(status)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=built.root,
            env=built.environ(),
            capture_output=True,
            text=True,
            check=True,
        )
        loaded = set(done.stdout.splitlines()[-1].split())
        assert "buildlib" in loaded
        assert loaded & {"tinygrad", "onnx", "paramiko", "git", "rich", "jinja2", "numpy", "yaml"} == set()


@pytest.mark.parametrize(
    "words",
    [("--bogus",), ("list", "--bogus"), ("status", "--only", "x"), ("devise=local",), ("status", "devise=local")],
)
def test_a_word_that_nobody_knows_stops_every_command_with_a_remedy(built: Project, words: tuple[str, ...]) -> None:
    run = built.doit(*words).without_traceback()
    assert run.status == 3, run
    assert "  try   " in run.err
    assert "CmdOption" not in run.text
    assert built.calls() == []


def test_options_come_after_names_too_and_dumpdb_reads_our_marks(built: Project) -> None:
    assert built.doit("one", "--keep").ok().out == "1 model up to date.\n"
    built.doit("dumpdb").ok().without_traceback()
    run = built.doit("inspect", "dir/a=b.pkl")
    assert run.status == 1
    assert "dir/a=b.pkl" in run.err


def test_single_looks_at_the_device_first_and_never_acts_on_yesterdays_look(built: Project) -> None:
    (built.device() / "data/openpilot/tinygrad_repo/tinygrad/__init__.py").write_text("version = 2\n")
    built.doit("-s", "compile:one").ok()
    assert built.calls() == [ONE]


def test_no_validation_counts_for_another_tinygrad_than_the_one_that_was_looked_at(built: Project) -> None:
    """The device's tinygrad is renewed between this run's look and its drive."""
    tinygrad = built.device() / "data/openpilot/tinygrad_repo/tinygrad/__init__.py"
    looked = built.root.parent / "looked"
    (built.device() / "python").write_text(
        f'#!/bin/sh\n[ -e "{looked}" ] && echo "version = 2" > "{tinygrad}"\ntouch "{looked}"\n'
        f'exec "{sys.executable}" "$@"\n'
    )
    run = built.doit("validate:one")
    assert run.status == 1
    assert "the toolchain is another than at the probe: tinygrad" in run.text
