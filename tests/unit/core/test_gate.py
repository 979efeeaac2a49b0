"""What stands between an artifact and its publication."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from buildlib.core.attestation import AFTER_PUBLISHING, POINTS, Attestation
from buildlib.core.catalog import Profile, Target
from buildlib.core.freshness import judge_model
from buildlib.core.gate import confinement, obstacles
from buildlib.core.world import Subject
from tests.unit.core.worlds import ARTIFACT, DictWorld, build, make_subject

NAME = "driving_supercombo_nopp.pkl"
REAL = Target(name="iqmodels", kind="git", repository="x")
PRACTICE = Target(name="sandbox", kind="git", repository="x", sandbox=True, policy=("harness",))


@pytest.fixture
def world() -> DictWorld:
    world = DictWorld()
    build(make_subject(), world)
    for key, receipt in world.receipts.items():
        world.receipts[key] = replace(receipt, sample=False)
    return world


def drive(**changes: Any) -> Attestation:
    values: dict[str, Any] = {
        "model": "nopp",
        "artifacts": {NAME: ARTIFACT},
        "runtime": "r",
        "device": "desk",
        "unit": "unit-1",
        "by": "Ann",
        "on": "2026-12-01T12:00:00Z",
        "points": dict.fromkeys(POINTS, True),
    }
    return Attestation(**{**values, **changes})


def found(world: DictWorld, target: Target = REAL, subject: Subject | None = None, **more: Any) -> list[str]:
    subject = subject or make_subject()
    attestations = more.pop("attestations", [drive()])
    judged = judge_model(subject, world)
    missing = obstacles(subject, target, judged, {NAME: ARTIFACT}, world.seen, attestations, runtime="r", **more)
    return [one.what for one in missing]


def test_a_verified_validated_and_driven_artifact_may_go_out(world: DictWorld) -> None:
    assert found(world) == []


@pytest.mark.parametrize("stage", ["verify", "validate"])
def test_a_verdict_that_does_not_hold_for_these_bytes_keeps_it(world: DictWorld, stage: str) -> None:
    world.receipts = {key: receipt for key, receipt in world.receipts.items() if key[0] != stage}
    (what,) = found(world)
    assert what.startswith(f"{stage} does not hold for these bytes")


def test_a_device_that_does_not_answer_keeps_it(world: DictWorld) -> None:
    world.seen = replace(world.seen, reachable=False, problem="desk.lan is unreachable")
    assert found(world) == ["desk did not answer this run's probe: desk.lan is unreachable"]


def test_a_source_that_is_away_now_keeps_nothing_that_was_made_of_it(world: DictWorld) -> None:
    world.source_assumed = True
    assert found(world) == []


@pytest.mark.parametrize(
    "attestations",
    [
        [],
        [drive(artifacts={NAME: "0" * 64})],
        [drive(runtime="another")],
        [drive(published=True, points=dict.fromkeys([*POINTS, *AFTER_PUBLISHING], True))],
        [drive(artifacts={NAME: ARTIFACT, "policy.pkl": ARTIFACT})],
        [drive(points={**dict.fromkeys(POINTS, True), "ui_not_frozen": False})],
        [drive(points={**dict.fromkeys(POINTS, True), "brakes": False})],
    ],
    ids=[
        *("none", "other bytes", "other runtime", "of the published file", "of more than these"),
        *("a point that failed", "a point of nobody's that failed"),
    ],
)
def test_without_a_drive_of_these_bytes_it_stays(world: DictWorld, attestations: list[Attestation]) -> None:
    assert found(world, attestations=attestations) == ["an onroad attestation of bbbbbbbb is missing"]


def test_a_reason_stands_in_for_the_drive_only(world: DictWorld) -> None:
    assert found(world, attestations=[], without_onroad="snowed in") == []
    world.receipts = {key: receipt for key, receipt in world.receipts.items() if key[0] != "validate"}
    assert len(found(world, attestations=[], without_onroad="snowed in")) == 1


def test_a_sandbox_asks_for_the_harness_only(world: DictWorld) -> None:
    assert found(world, PRACTICE, attestations=[]) == []


def test_a_sample_goes_to_sandboxes_only_and_no_reason_helps(world: DictWorld) -> None:
    for key, receipt in world.receipts.items():
        world.receipts[key] = replace(receipt, sample=True)
    assert found(world, PRACTICE) == []
    subject = make_subject()
    judged = judge_model(subject, world)
    missing = obstacles(
        subject, REAL, judged, {NAME: ARTIFACT}, world.seen, [drive()], runtime="r", without_onroad="please"
    )
    assert [one.rail for one in missing] == [True]


def test_all_else_that_is_missing_is_no_rail(world: DictWorld) -> None:
    world.receipts = {key: receipt for key, receipt in world.receipts.items() if key[0] not in ("verify", "validate")}
    world.seen = replace(world.seen, reachable=False)
    judged = judge_model(make_subject(), world)
    missing = obstacles(make_subject(), REAL, judged, {NAME: ARTIFACT}, world.seen, [], runtime="r")
    assert [one.rail for one in missing] == [False] * 4


def test_what_was_compiled_with_another_profile_is_confined(world: DictWorld) -> None:
    subject = make_subject()
    cpu = Profile(name="cpu", flags={"DEV": "CPU"}, expected_device="CPU")
    catalog = replace(subject.catalog, profiles={**subject.catalog.profiles, "cpu": cpu})
    other = Subject(catalog, subject.model, replace(subject.device, profile="cpu"))
    assert confinement(other, []) == "compiled with profile cpu instead of its own, qcom"
    assert confinement(subject, []) is None


def test_an_artifact_for_the_cpu_is_confined_though_the_model_itself_asks_for_it(world: DictWorld) -> None:
    subject = make_subject(profile="cpu")
    cpu = Profile(name="cpu", flags={"DEV": "CPU"}, expected_device="CPU")
    own = Subject(replace(subject.catalog, profiles={"cpu": cpu}), subject.model, subject.device)
    word = make_subject(expected_device="CPU")
    for one in (own, word):
        assert confinement(one, []) == "compiled for the CPU, which drives no car"
        build(one, world)
        assert any("for the CPU" in what for what in found(world, subject=one))


@pytest.mark.parametrize("points", [{}, {"loaded": True}, {**dict.fromkeys(POINTS, True), "ui_not_frozen": False}])
def test_an_attestation_file_that_leaves_a_point_open_opens_no_gate(world: DictWorld, points: dict[str, bool]) -> None:
    (what,) = found(world, attestations=[drive(points=points)])
    assert what.startswith("an onroad attestation")


@pytest.mark.parametrize("reason", ["", " ", "\t\n"])
def test_an_empty_reason_is_none(world: DictWorld, reason: str) -> None:
    (what,) = found(world, attestations=[], without_onroad=reason)
    assert what.startswith("an onroad attestation")
