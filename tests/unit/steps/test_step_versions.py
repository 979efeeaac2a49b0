from __future__ import annotations

import pytest

from buildlib.core.stages import STAGES
from tests.unit.steps import step_versions
from tests.unit.steps.step_versions import CODE, meaning, present, written


@pytest.mark.parametrize("step", CODE)
def test_a_steps_code_changes_only_together_with_a_thought_about_its_version(step: str) -> None:
    assert written()[step] == present()[step], f"the code of {step} changed. {step_versions.__doc__}"


def test_every_stage_is_guarded() -> None:
    assert {stage.name for stage in STAGES} <= set(CODE)


def test_comments_docstrings_and_layout_are_no_change() -> None:
    first = 'def f(a):\n    """One."""\n    return a + 1\n'
    second = "# a word\ndef f(\n    a,\n):\n    return a + 1  # more\n"
    assert meaning(first) == meaning(second)


@pytest.mark.parametrize(
    "other", ["def f(a):\n    return a + 2\n", "def f(a):\n    return 1 + a\n", "def g(a): return a + 1\n"]
)
def test_other_behaviour_is_a_change(other: str) -> None:
    assert meaning("def f(a):\n    return a + 1\n") != meaning(other)
