"""The guide's fifteen points, filled from what was really done."""

from __future__ import annotations

import msgspec

from buildlib.core.attestation import AFTER_PUBLISHING, POINTS, Attestation
from buildlib.core.checklist import checklist
from buildlib.core.declaration.builtin import QCOM_FLAGS
from buildlib.core.freshness import judge_model
from tests.unit.core.worlds import ARTIFACT, DictWorld, build, make_subject

NAME = "driving_supercombo_nopp.pkl"


def drive(published: bool = False) -> Attestation:
    return Attestation(
        model="nopp",
        artifacts={NAME: ARTIFACT},
        runtime="r",
        device="desk",
        unit="u",
        by="Ann",
        on="2026-12-01T12:00:00Z",
        points=dict.fromkeys(AFTER_PUBLISHING if published else POINTS, True),
        published=published,
    )


def test_nothing_done_is_fifteen_open_points_each_with_what_is_missing() -> None:
    points = checklist(judge_model(make_subject(), DictWorld()), {}, [], runtime=None, flags_differ=None)
    assert [point.number for point in points] == list(range(1, 16))
    assert not any(point.done for point in points)
    assert all(point.evidence for point in points)


def test_everything_done_is_fifteen_closed_points() -> None:
    world, exact = DictWorld(), make_subject(flags=QCOM_FLAGS)
    build(exact, world)
    judged = judge_model(exact, world)
    points = checklist(judged, {NAME: ARTIFACT}, [drive(), drive(True)], runtime="r", flags_differ=[])
    assert [point.number for point in points if not point.done] == []
    assert "attested by Ann" in points[7].evidence
    assert "seen on the road by Ann" in points[14].evidence


def test_what_cannot_be_looked_at_now_stays_done_and_says_since_when() -> None:
    world, exact = DictWorld(), make_subject(flags=QCOM_FLAGS)
    build(exact, world)
    world.seen = msgspec.structs.replace(world.seen, reachable=False, age=7200.0)
    points = checklist(
        judge_model(exact, world), {NAME: ARTIFACT}, [drive(), drive(True)], runtime="r", flags_differ=[]
    )
    assert [point.number for point in points if not point.done] == []
    assert points[2].evidence.endswith("; assumed: desk was last seen 2 hours ago")


def test_a_compile_without_one_of_the_guides_flags_is_not_the_exact_environment() -> None:
    world, other = DictWorld(), make_subject(flags={**QCOM_FLAGS, "OPENPILOT_HACKS": None})
    build(other, world)
    points = checklist(judge_model(other, world), {NAME: ARTIFACT}, [drive()], runtime="r", flags_differ=[])
    assert not points[2].done
    assert points[2].evidence.endswith("; other than the guide's: OPENPILOT_HACKS")


def test_a_stale_step_opens_its_points_again() -> None:
    world = DictWorld()
    build(make_subject(), world)
    judged = judge_model(make_subject(frame_skip=2), world)
    points = checklist(judged, {NAME: ARTIFACT}, [drive()], runtime="r", flags_differ=[])
    assert not points[2].done
    assert "frame skip: 4 -> 2" in points[2].evidence


def test_a_download_that_no_device_has_validated_leaves_the_last_point_open_and_says_how_to_close_it() -> None:
    world = DictWorld()
    build(make_subject(), world)
    judged = dict(judge_model(make_subject(), world))
    confirmed = judged["confirm"].receipt
    assert confirmed is not None
    for on_device, drives, done in (
        ({"skipped": "desk has no model selector"}, [], False),
        ({"skipped": "desk has no model selector"}, [drive(True)], True),
        ({"device": "desk", "verdicts": {}}, [], True),
    ):
        receipt = msgspec.structs.replace(confirmed, result={**confirmed.result, "on_device": on_device})
        judged["confirm"] = msgspec.structs.replace(judged["confirm"], receipt=receipt)
        last = checklist(judged, {NAME: ARTIFACT}, drives, runtime="r", flags_differ=[])[14]
        assert last.done == done
        assert done or last.evidence.endswith("validate it on a device, then doit attest nopp --published")
