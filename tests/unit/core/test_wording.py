"""Differences of keys, in the words of models.yaml and the guide."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from buildlib.core.key import Difference
from buildlib.core.wording import for_device, place_of, short, subject_of
from tests.unit.core.worlds import make_subject


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("try   doit install:one --keep", "try   doit device=b install:one --keep"),
        ("then: doit rollback one", "then: doit device=b rollback one"),
        ("`doit attest one` after a drive", "`doit device=b attest one` after a drive"),
        ("run doit again; doit gc --device b", "run doit again; doit gc --device b"),
        ("doit device=a pull:one", "doit device=a pull:one"),
    ],
)
def test_a_command_in_a_message_acts_on_the_device_of_this_run(text: str, said: str) -> None:
    assert for_device(text, "b") == said
    assert for_device(text, None) == text


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("flags.OPENPILOT_HACKS", "OPENPILOT_HACKS"),
        ("arguments.frame_skip", "frame skip"),
        ("arguments.camera_resolutions", "camera resolutions"),
        ("toolchain.tinygrad", "tinygrad"),
        ("toolchain.c_compiler", "c compiler"),
        ("onnx.supercombo", "ONNX"),
        ("onnx.supercombo.sha256", "ONNX"),
        ("onnx.vision", "ONNX vision"),
        ("script", "compile script"),
        ("entries", "published entry"),
        ("artifacts.driving_supercombo_nopp.pkl", "driving_supercombo_nopp.pkl"),
    ],
)
def test_a_difference_is_called_what_people_call_it(path: str, words: str) -> None:
    assert subject_of(Difference(path, 1, 2)) == words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unset"),
        ("a" * 64, "aaaaaaaa"),
        ("a" * 40, "aaaaaaaa"),
        ("a" * 41, "a" * 41),
        ([1344, 760], "1344x760"),
        ([[1344, 760], [1928, 1208]], "1344x760 1928x1208"),
        (
            [{"file_name": "a.pkl", "sha256": "a" * 64, "url": "x", "line": 3, "build_time": "2026"}],
            "a.pkl, aaaaaaaa, 2026",
        ),
        ({"width": 64, "seed": 1}, "64, 1"),
        (4, "4"),
    ],
)
def test_values_are_short_for_the_eye(value: object, text: str) -> None:
    assert short(value) == text


def test_a_difference_says_where_its_present_value_comes_from() -> None:
    subject = make_subject()
    where = (subject.catalog, subject.model, subject.device)
    assert place_of(Difference("toolchain.tinygrad", "a", "b"), *where) == "device desk"
    assert place_of(Difference("script", "a", "b"), *where) == "the tool's own"
    assert place_of(Difference("flags.OPENPILOT_HACKS", "0", "1"), *where).endswith("(profile qcom)")
    assert place_of(Difference("arguments.frame_skip", 4, 2), *where).startswith("models.yaml")


def test_a_setting_from_the_defaults_is_placed_there() -> None:
    subject = make_subject()
    lines = {"models.nopp": 9, "defaults.frame_skip": 3}
    catalog = replace(subject.catalog, lines=lines)
    change = Difference("arguments.frame_skip", 4, 2)
    assert place_of(change, catalog, subject.model, subject.device) == "models.yaml:3"
    own = replace(catalog, lines={**lines, "models.nopp.frame_skip": 12})
    assert place_of(change, own, subject.model, subject.device) == "models.yaml:12"
