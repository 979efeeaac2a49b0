from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from buildlib.core import freshness, key, stages
from buildlib.core.catalog import SampleSource
from buildlib.core.freshness import State, judge_model
from buildlib.core.receipt import Attempt, Receipt
from tests.unit.core.worlds import ACTIVE, HERE, ONNX, REMOTE_ONNX, REMOTE_PKL, DictWorld, build, make_subject


@pytest.fixture
def world() -> DictWorld:
    world = DictWorld()
    build(make_subject(), world)
    return world


def stale(subject: Any, world: DictWorld) -> dict[str, str]:
    return {name: j.reason for name, j in judge_model(subject, world).items() if not j.done}


def test_a_first_build_runs_every_stage_and_a_second_none() -> None:
    world = DictWorld()
    assert build(make_subject(), world) == [stage.name for stage in stages.STAGES]
    assert build(make_subject(), world) == []
    assert {j.state for j in judge_model(make_subject(), world).values()} == {State.FRESH}


def test_before_the_first_build_every_stage_is_never_done() -> None:
    judged = judge_model(make_subject(), DictWorld())
    assert {j.state for j in judged.values()} == {State.NEVER}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"flags": {"OPENPILOT_HACKS": None}}, "OPENPILOT_HACKS: 1 -> unset"),
        ({"flags": {"IMAGE": "2"}}, "IMAGE: unset -> 2"),
        ({"frame_skip": 2}, "frame skip: 4 -> 2"),
        ({"camera_resolutions": ((1344, 760),)}, "camera resolutions"),
        ({"model_size": (256, 128)}, "model size"),
    ],
)
def test_a_changed_setting_makes_the_compile_stale_and_says_which(
    world: DictWorld, change: dict[str, Any], reason: str
) -> None:
    found = stale(make_subject(**change), world)
    assert found["compile"].startswith(reason)
    assert "source" not in found
    assert "upload" not in found
    assert found["pull"] == "follows compile"


def test_an_artifact_that_came_out_the_same_is_judged_again_by_another_declaration(world: DictWorld) -> None:
    """A compile that does not hear WARP_DEV leaves the same bytes, and they are not what is declared now."""
    assert "verify" in build(make_subject(flags={"WARP_DEV": "QCOM"}), world)


def test_a_change_taken_back_runs_nothing(world: DictWorld) -> None:
    build(make_subject(frame_skip=2), world)
    assert stale(make_subject(), world) == {}


@pytest.mark.parametrize("change", [{"display_name": "Other"}, {"folder": "elsewhere"}, {"strict_flags": True}])
def test_what_no_artifact_depends_on_makes_nothing_stale(world: DictWorld, change: dict[str, Any]) -> None:
    assert set(stale(make_subject(**change), world)) <= {"publish", "confirm"}


def test_another_onnx_makes_all_that_follows_stale(world: DictWorld) -> None:
    world.content = {"sha256": "d" * 64}
    found = stale(make_subject(), world)
    assert found["source"] == "ONNX: aaaaaaaa -> dddddddd"
    assert found["compile"] == "follows source"


def test_another_tinygrad_or_os_or_script_makes_the_compile_stale(world: DictWorld) -> None:
    for identity in ({"tinygrad": "2" * 64, "python": "3.12.3"}, {"tinygrad": "1" * 64, "python": "3.13.0"}):
        world.seen = replace(world.seen, identity=identity)
        assert set(stale(make_subject(), world)) == {s.name for s in stages.STAGES} - {"source", "upload"}
    world.seen = replace(world.seen, identity={"tinygrad": "1" * 64, "python": "3.12.3"})
    world.script_id = "another"
    assert stale(make_subject(), world)["compile"] == "compile script: builtin-script -> another"


def test_a_device_that_is_gone_leaves_fresh_what_was_fresh_and_says_assumed(world: DictWorld) -> None:
    world.seen = replace(world.seen, reachable=False, age=7200.0)
    judged = judge_model(make_subject(), world)
    assert all(j.done for j in judged.values())
    assert judged["compile"].reason == "desk was last seen 2 hours ago"
    assert [name for name, j in judged.items() if j.state is not State.ASSUMED] == ["source"]


def test_a_device_never_seen_is_a_reason_not_a_crash() -> None:
    world = DictWorld()
    world.seen = freshness_unknown()
    found = stale(make_subject(), world)
    assert found["source"] == "never done"
    world.content = {"sha256": ONNX}
    source = judge_model(make_subject(), world)["source"]
    assert source.key is not None
    assert source.parts is not None
    world.record("source", source.key, source.parts)
    assert stale(make_subject(), world)["upload"] == "desk has not been probed yet"


def freshness_unknown() -> Any:
    from buildlib.core.world import DeviceSeen

    return DeviceSeen()


def test_a_reflashed_device_gets_its_files_again_and_compiles_nothing(world: DictWorld) -> None:
    world.seen = replace(world.seen, files={})
    found = stale(make_subject(), world)
    assert set(found) == {"upload", "install"}
    assert found["upload"] == f"{REMOTE_ONNX} is gone from desk"


def test_other_bytes_at_the_active_path_are_seen(world: DictWorld) -> None:
    world.seen = replace(world.seen, files={**world.seen.files, ACTIVE: "e" * 64})
    assert stale(make_subject(), world) == {"install": f"{ACTIVE} has other bytes on desk"}


def test_an_unreachable_device_with_no_file_list_is_not_called_reflashed(world: DictWorld) -> None:
    world.seen = replace(world.seen, files={}, reachable=False)
    assert stale(make_subject(), world) == {}


@pytest.mark.parametrize("damage", [None, "f" * 64])
@pytest.mark.parametrize("path", [HERE, f"{HERE}.sha256"])
def test_a_damaged_or_missing_target_is_restored_and_nothing_else_runs(
    world: DictWorld, damage: str | None, path: str
) -> None:
    if damage is None:
        del world.files[path]
    else:
        world.files[path] = damage
    judged = judge_model(make_subject(), world)
    assert [name for name, j in judged.items() if not j.done] == ["pull"]
    assert judged["pull"].restorable
    assert path in judged["pull"].reason


def test_an_artifact_lost_everywhere_is_compiled_again(world: DictWorld) -> None:
    world.files.clear()
    world.blobs.discard("b" * 64)
    world.seen = replace(world.seen, files={k: v for k, v in world.seen.files.items() if k != REMOTE_PKL})
    judged = judge_model(make_subject(), world)
    assert judged["compile"].reason == "the artifact is lost here and on the device"
    assert not judged["compile"].restorable


@pytest.mark.parametrize("place", ["the content store", "artifacts/", "the device"])
def test_an_artifact_that_is_left_in_one_place_is_not_compiled_again(world: DictWorld, place: str) -> None:
    if place != "the content store":
        world.blobs.discard("b" * 64)
    if place != "artifacts/":
        world.files.clear()
    if place != "the device":
        world.seen = replace(world.seen, files={k: v for k, v in world.seen.files.items() if k != REMOTE_PKL})
    assert judge_model(make_subject(), world)["compile"].done


def test_a_lost_onnx_blob_is_fetched_again_and_nothing_is_compiled(world: DictWorld) -> None:
    world.blobs.discard(ONNX)
    assert set(stale(make_subject(), world)) == {"source"}


def test_an_unmounted_source_whose_content_is_known_is_assumed(world: DictWorld) -> None:
    world.source_assumed = True
    judged = judge_model(make_subject(), world)
    assert judged["source"].state is State.ASSUMED
    assert all(j.done for j in judged.values())
    assert {j.reason for j in judged.values()} == {"the share is not mounted"}


def test_an_unknown_source_is_a_reason_of_its_own(world: DictWorld) -> None:
    world.content = None
    subject = make_subject()
    assert judge_model(subject, world)["source"].state is State.STALE
    assert stale(subject, world)["source"] == "models.yaml: the share is not mounted"
    for line in ("source", "sources.supercombo"):
        placed = replace(subject, catalog=replace(subject.catalog, lines={f"models.nopp.{line}": 7}))
        assert stale(placed, world)["source"] == "models.yaml:7: the share is not mounted"


def test_a_failed_attempt_with_the_present_key_is_failed_and_with_another_key_is_not(world: DictWorld) -> None:
    subject = make_subject(frame_skip=2)
    compile_key = judge_model(subject, world)["compile"].key
    attempt = Attempt(stage="compile", model="nopp", key=compile_key, error="boom\nmore", finished="now")
    world.attempts["compile"] = attempt
    judged = judge_model(subject, world)["compile"]
    assert (judged.state, judged.reason) == (State.FAILED, "boom")
    world.attempts["compile"] = replace(attempt, key="0" * 64)
    assert judge_model(subject, world)["compile"].state is State.STALE


def test_another_key_format_says_that_the_tool_changed(world: DictWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key.step_key, "__defaults__", (key.KEY_FORMAT + 1,))
    monkeypatch.setattr(freshness, "KEY_FORMAT", key.KEY_FORMAT + 1)
    reason = stale(make_subject(), world)["source"]
    assert (
        reason
        == f"the tool changed: keys of format {key.KEY_FORMAT + 1} instead of {key.KEY_FORMAT}, so all is rebuilt"
    )


def test_another_step_version_says_that_the_tool_changed(world: DictWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace as change

    newer = change(stages.BY_NAME["verify"], version=99)
    rows = tuple(newer if stage.name == "verify" else stage for stage in stages.STAGES)
    judged = judge_model(make_subject(), world, rows)
    was = stages.BY_NAME["verify"].version
    assert judged["verify"].reason == f"the tool changed: step verify is version 99, was {was}"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 seconds"), (59, "59 seconds"), (60, "1 minute"), (7200, "2 hours"), (90000, "1 day"), (200000, "2 days")],
)
def test_ages_are_told_in_words(seconds: float, words: str) -> None:
    assert freshness.age_in_words(seconds) == words


def test_an_entry_that_somebody_edited_makes_the_publication_stale_and_nothing_else(world: DictWorld) -> None:
    world.unpublished = "the entry was edited"
    judged = judge_model(make_subject(), world)
    assert judged["publish"].reason == "the entry was edited"
    assert [name for name, j in judged.items() if not j.done] == ["publish", "confirm"]


def test_a_model_without_a_target_has_nowhere_to_be_published_to(world: DictWorld) -> None:
    assert stale(make_subject(target=None), world)["publish"] == "models.nopp names no target"


SPLIT: dict[str, Any] = {
    "kind": "vision_policy",
    "sources": {"vision": SampleSource(seed=1), "policy": SampleSource(seed=2)},
    "artifacts": {"combined": "driving_nopp.pkl"},
}


def compile_key(**change: Any) -> str | None:
    """The key of a split model's compile, its ONNX files being there."""
    subject, world = make_subject(**{**SPLIT, **change}), DictWorld()
    source = judge_model(subject, world, stages.STAGES[:1])["source"]
    receipt = Receipt(
        stage="source",
        model="nopp",
        key=source.key or "",
        key_format=key.KEY_FORMAT,
        version=1,
        parts={},
        result={"sources": {role: {"sha256": ONNX} for role in SPLIT["sources"]}},
        finished="now",
        seconds=1.0,
    )
    world.receipts["source", receipt.key] = receipt
    return judge_model(subject, world)["compile"].key


def test_one_artifact_for_all_parts_is_another_compile_than_one_a_part() -> None:
    parted = {"artifacts": {"vision": "v.pkl", "policy": "p.pkl"}}
    assert compile_key() is not None
    assert compile_key(**parted) != compile_key()
    assert compile_key(artifacts={"combined": "other.pkl"}) == compile_key(), "a name alone changes no bytes"


def test_what_a_split_compile_is_not_told_makes_it_not_stale() -> None:
    """Neither warps nor queues are captured with it."""
    assert compile_key(frame_skip=2, camera_resolutions=((1344, 760),)) == compile_key()
    assert compile_key(model_size=(256, 128)) != compile_key()
