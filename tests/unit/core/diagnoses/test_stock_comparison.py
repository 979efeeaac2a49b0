"""Ours against a stock tree: which differences matter, and which only look so."""

from __future__ import annotations

import pytest

from buildlib.core.diagnoses.stock_comparison import Toolchain, compare_toolchains

STOCK = {
    "DEV": "QCOM", "IMAGE": "1", "FLOAT16": "1", "NOLOCALS": "1", "JIT_BATCH_SIZE": "0", "OPENPILOT_HACKS": "1",
}  # fmt: skip


def stock(**changed: str) -> Toolchain:
    return Toolchain(name="stock", flags=STOCK | changed, tinygrad="aa", version=(0, 14), script="s1")


def ours(flags: dict[str, str], **changed: object) -> Toolchain:
    fields = {"tinygrad": "aa", "version": (0, 14), "script": "s1"} | changed
    return Toolchain(name="ours", flags=flags, **fields)  # type: ignore[arg-type]


def test_the_same_gives_nothing() -> None:
    assert compare_toolchains(ours(STOCK), stock()) == ()


def test_missing_hacks_are_refused() -> None:
    flags = {name: value for name, value in STOCK.items() if name != "OPENPILOT_HACKS"}
    (finding,) = compare_toolchains(ours(flags), stock())
    assert (finding.code, finding.severity, finding.guide) == ("flag_differs", "refuse", "18")
    assert (finding.expected, finding.found) == ("OPENPILOT_HACKS=1", "OPENPILOT_HACKS unset")


@pytest.mark.parametrize(("version", "severity"), [((0, 12), "refuse"), ((0, 13), "warn"), (None, "refuse")])
def test_image_1_and_2_differ_only_in_an_old_tinygrad(version: tuple[int, ...] | None, severity: str) -> None:
    found = compare_toolchains(ours({**STOCK, "IMAGE": "2"}, version=version), stock())
    assert [one.severity for one in found if one.code == "flag_differs"] == [severity]


def test_image_off_differs_from_on_in_every_tinygrad() -> None:
    (finding,) = compare_toolchains(ours({**STOCK, "IMAGE": "0"}), stock())
    assert finding.severity == "refuse"


def test_zero_and_unset_are_the_same() -> None:
    (finding,) = compare_toolchains(
        ours({**STOCK, "NOLOCALS": "0"}), Toolchain(name="stock", flags=_without("NOLOCALS"))
    )
    assert finding.severity == "warn"


def _without(name: str) -> dict[str, str]:
    return {flag: value for flag, value in STOCK.items() if flag != name}


def test_a_flag_that_only_ours_sets_is_shown() -> None:
    (finding,) = compare_toolchains(ours({**STOCK, "GMMU": "0"}), stock())
    assert (finding.severity, finding.expected, finding.found) == ("warn", "GMMU unset", "GMMU=0")


def test_hacks_that_tinygrad_does_not_hear_are_told() -> None:
    found = compare_toolchains(ours(STOCK, version=(0, 12)), stock())
    assert [one.code for one in found] == ["flag_not_heard"]


def test_another_tinygrad_is_refused_and_another_script_told() -> None:
    found = compare_toolchains(ours(STOCK, tinygrad="bb", script="s2"), stock())
    assert [(one.code, one.severity) for one in found] == [("tinygrad_differs", "refuse"), ("script_differs", "warn")]


def test_what_is_not_known_is_not_compared() -> None:
    assert compare_toolchains(ours(STOCK, tinygrad=None, script=None), stock()) == ()
