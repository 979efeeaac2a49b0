"""Every line of `doit doctor`: good, or with its remedy."""

from __future__ import annotations

from typing import Any

import pytest

from buildlib.core.catalog import Device, Profile
from buildlib.core.declaration.builtin import PROFILES
from buildlib.core.doctor import Line, active_model, departures, examine, flag_differences

QCOM = Profile(name="qcom", flags=dict(PROFILES["qcom"]["flags"]), expected_device="QCOM")
WORDS = ["DEV=QCOM", "IMAGE=2", "FLOAT16=1", "NOLOCALS=1", "JIT_BATCH_SIZE=0", "OPENPILOT_HACKS=1"]
DESK = Device(name="desk", host="desk.lan")


def answer(**health: Any) -> dict[str, Any]:
    good = {
        "free": {"state": 9e9, "models": 9e9},
        "clock": 1000.0,
        "onroad": "0",
        "power_saving": False,
        "active_bundle": '{"displayName": "TobyRL"}',
        "directories": {"/data/root-home": "ok"},
        "model_processes": [],
        "jobs": [],
        "held": [],
        "undone": [],
        "pending": [],
    }
    return {"problems": [], "flags": {"_flags": WORDS}, "health": {**good, **health}}


def bad(told: dict[str, Any], now: float = 1000.0) -> list[tuple[str, str | None]]:
    lines = examine(DESK, QCOM, told, now=now, toolchain_text="tinygrad 9c8d21f4")
    return [(line.text, line.remedy) for line in lines if line.level == "BAD"]


def test_a_good_device_has_no_bad_line() -> None:
    assert bad(answer()) == []


@pytest.mark.parametrize(
    ("health", "text"),
    [
        ({"onroad": "1"}, "onroad"),
        ({"onroad": None}, "IsOnroad cannot be read"),
        ({"model_processes": ["pid 7: iqmodeld"]}, "a model process runs: pid 7: iqmodeld"),
        ({"free": {"state": 1e8}}, "0.10 GB free"),
        ({"directories": {"/data/root-tmp": "not writable: Permission denied"}}, "/data/root-tmp: not writable"),
        ({"pending": ["install of x.pkl"]}, "still to be put back: install of x.pkl"),
    ],
)
def test_each_fault_is_a_bad_line_with_a_remedy(health: dict[str, Any], text: str) -> None:
    ((found, remedy),) = bad(answer(**health))
    assert text in found
    assert remedy


def test_a_skewed_clock_is_worth_a_note_and_no_more() -> None:
    lines = list(examine(DESK, QCOM, answer(clock=5000.0), now=1000.0, toolchain_text=""))
    (clock,) = [line for line in lines if "clock" in line.text]
    assert clock.text == "its clock is 4000 s off; nothing here depends on it"
    assert "date -s" in (clock.remedy or "")
    assert not [line for line in lines if line.level == "BAD"]


def told(device: Device, **changes: Any) -> list[str]:
    return [line.text for line in examine(device, QCOM, {**answer(), **changes}, now=1000.0, toolchain_text="")]


def test_the_screen_names_compile_script_clock_and_what_of_ours_is_there() -> None:
    lines = told(DESK)
    assert "compile script builtin" in lines
    assert "its clock agrees" in lines
    assert "of ours there: 0 sources, 0 compiled and 0 installed, 0 ended jobs, 0 backups" in lines
    own = Device(name="desk", host="desk.lan", compile_script="/data/openpilot/compile.py")
    files = {
        "/data/media/0/driving_supercombo_nopp_source.onnx": {"sha256": "0"},
        "/data/media/0/models/driving_supercombo_nopp.recompiled.pkl": {"sha256": "1"},
        "/data/media/0/models/driving_supercombo_nopp.pkl": {"sha256": "1"},
        "/data/media/0/models/driving_supercombo_drl3.pkl": None,
        "/data/openpilot/iqpilot/selfdrive/iqmodeld/SConscript": {"sha256": "2"},
    }
    jobs = [{"state": "ok"}, {"state": "running", "subject": "compile nopp", "owner": "ann@mac"}]
    health = {**answer()["health"], "jobs": jobs, "backups": 2}
    lines = told(own, files=files, health=health, identity={"script": "77ab" * 16})
    assert "compile script /data/openpilot/compile.py 77ab77ab" in lines
    assert "of ours there: 1 source, 1 compiled and 1 installed, 1 ended job, 2 backups" in lines


@pytest.mark.parametrize(
    ("health", "line"),
    [
        ({"power_saving": True}, Line("ok", "power saving is on, and off during compiles")),
        ({"power_saving": False}, Line("ok", "power saving is off, and off during compiles")),
        ({}, Line("ok", "offroad, no model process runs")),
        ({}, Line("note", "active model: TobyRL")),
        ({"active_bundle": None}, Line("note", "no active model")),
        ({}, Line("ok", "no unfinished work")),
        (
            {"held": ["m.pkl"]},
            Line(
                "note",
                "m.pkl is there for its validation, and taken back without a verdict",
                "doit validate:MODEL; or doit install:MODEL, which lets it stay",
            ),
        ),
        ({"undone": ["x.pkl put back"]}, Line("note", "put back what an unfinished test had changed: x.pkl put back")),
        (
            {"jobs": [{"state": "running", "subject": "compile nopp", "owner": "ann@mac"}]},
            Line("note", "a job runs: compile nopp by ann@mac"),
        ),
    ],
)
def test_the_screen_tells_power_saving_state_active_model_and_unfinished_work(
    health: dict[str, Any], line: Line
) -> None:
    lines = list(examine(DESK, QCOM, answer(**health), now=1000.0, toolchain_text=""))
    assert line in lines
    assert ("no unfinished work" in [one.text for one in lines]) == (not {"undone", "held"} & health.keys())


def test_of_a_machine_without_power_saving_nothing_is_said_of_it() -> None:
    lines = examine(DESK, QCOM, answer(power_saving=None), now=1000.0, toolchain_text="")
    assert not [line for line in lines if "power saving" in line.text]


def test_a_flag_missing_in_one_of_two_functions_is_named_with_its_function() -> None:
    flags = {"_flags": WORDS, "_fused_flags": WORDS[:-1]}
    assert flag_differences(flags, QCOM) == ["_fused_flags lacks OPENPILOT_HACKS=1"]
    ((text, remedy),) = bad({**answer(), "flags": flags})
    assert text == "SConscript: _fused_flags lacks OPENPILOT_HACKS=1"
    assert remedy is not None
    assert "sync_sconscript" in remedy


def test_another_value_is_named_with_both() -> None:
    flags = {"_flags": ["IMAGE=1" if word == "IMAGE=2" else word for word in WORDS]}
    assert flag_differences(flags, QCOM) == ["_flags has IMAGE=1, the profile qcom says 2"]


def test_warp_dev_is_the_commands_and_not_sconscripts_business() -> None:
    assert flag_differences({"_flags": WORDS}, QCOM) == []
    assert flag_differences({"_flags": [*WORDS, "WARP_DEV=CPU"]}, QCOM) == [
        "_flags has WARP_DEV=CPU, the profile qcom says QCOM"
    ]


def test_another_backends_profile_is_not_compared_with_sconscript() -> None:
    cpu = Profile(name="cpu", flags={"DEV": "CPU"}, expected_device="CPU")
    assert flag_differences({"_flags": WORDS}, cpu) is None, "the release checklist must not call that agreement"
    assert flag_differences(None, QCOM) is None


def test_a_sconscript_without_flags_that_can_be_read_is_no_agreement() -> None:
    assert flag_differences({}, QCOM) is None, "the release checklist must not call that agreement"
    lines = examine(DESK, QCOM, {**answer(), "flags": {}}, now=1000.0, toolchain_text="")
    (line,) = [line for line in lines if "SConscript" in line.text]
    assert line == Line(
        "note",
        "no flags for larch64 are found in SConscript, so none were compared",
        "compare it with the profile by hand (guide, section 1)",
    )


def test_each_of_the_guides_flags_that_a_qcom_compile_gets_otherwise_departs_from_it() -> None:
    assert departures({**QCOM.flags, "BEAM": "0"}, "QCOM") == []
    assert departures({**QCOM.flags, "IMAGE": "1"}, "QCOM") == ["IMAGE"]
    assert departures({"DEV": "CPU"}, "CPU") == []
    for name in QCOM.flags:
        rest = {flag: value for flag, value in QCOM.flags.items() if flag != name}
        assert departures(rest, "QCOM") == [name]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (None, None),
        ("", None),
        ('{"displayName": "TobyRL"}', "TobyRL"),
        ('{"short_name": "NOPP"}', "NOPP"),
        ("{}", "unnamed"),
        ("[]", "unreadable"),
        ("{", "unreadable"),
    ],
)
def test_the_active_model_is_told_by_its_bundle(text: str | None, name: str | None) -> None:
    assert active_model(text) == name


def test_what_a_device_calls_its_own_things_moves_no_cursor() -> None:
    from buildlib.commands.doctor import printed

    shown = printed(Line("BAD", "/data/\x1b[2Jx: not writable", "ls -ld /data/\x1b[2Jx\r"))
    assert shown == ["  BAD   /data/\\x1b[2Jx: not writable", "        try: ls -ld /data/\\x1b[2Jx\\r"]
