"""What is said of a name that nothing has."""

from __future__ import annotations

from buildlib.core.unknown_names import near, unknown_device, unknown_model, unknown_target, unknown_task


def test_the_near_name_is_found_in_any_case() -> None:
    assert near("NOPE", ["tobyrl", "nopp"]) == "nopp"
    assert near("TOBYRL", ["tobyrl", "nopp"]) == "tobyrl"
    assert near("tobyrl", ["TobyRL"]) == "TobyRL"
    assert near("zzz", ["tobyrl", "nopp"]) is None
    assert near("zzz", []) is None


def test_each_kind_of_name_says_what_there_is_and_what_to_do() -> None:
    for error in (unknown_model("nop", ["nopp"]), unknown_device("nop", ["nopp"]), unknown_target("nop", ["nopp"])):
        assert error.exit_status == 3
        assert "'nop'" in error.headline()
        assert "expected one of nopp" in error.headline()
        assert error.remedy == "did you mean 'nopp'?"
    for error in (unknown_model("x", []), unknown_device("x", []), unknown_target("x", []), unknown_task("x", [])):
        assert error.remedy
        assert "did you mean" not in error.remedy


def test_of_a_thousand_models_some_are_listed() -> None:
    headline = unknown_model("zzz", [f"model{number}" for number in range(1000)]).headline()
    assert "and 988 more" in headline
    assert len(headline) < 300
