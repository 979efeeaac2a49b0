from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.mutants import CHECKOUT, MUTANTS, Mutant, copy_to, is_caught, run_tests

CI_SHARE = {"a compile key without flags", "a lock that is not waited for", "damaged receipts believed"}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_planted_bug_still_fits_the_code(mutant: Mutant) -> None:
    assert (CHECKOUT / mutant.file).read_text().count(mutant.before) == 1


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, id=mutant.name, marks=() if mutant.name in CI_SHARE else pytest.mark.slow)
        for mutant in MUTANTS
    ],
)
def test_the_tests_catch_each_planted_bug(mutant: Mutant, sample_artifact: Path) -> None:
    assert is_caught(mutant)


def test_without_a_bug_the_named_tests_pass(tmp_path: Path, sample_artifact: Path) -> None:
    tests = tuple(dict.fromkeys(test for mutant in MUTANTS if mutant.name in CI_SHARE for test in mutant.tests))
    assert run_tests(copy_to(tmp_path), tests)
