"""The frame around each step: what does not match its key is not recorded, and what is missing is not waited for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from buildlib import errors
from buildlib.ports.events import Silent
from buildlib.steps import perform
from buildlib.steps.context import Outcome, Services, StepContext
from buildlib.store.receipts import ReceiptStore
from tests.unit.core.worlds import ONNX, RESULTS, DictWorld, make_subject

SUBJECT = make_subject()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DictWorld:
    """Nothing is done yet; what steps record is in the store and in this world."""
    world = DictWorld()
    store = ReceiptStore(tmp_path)
    monkeypatch.setattr(DictWorld, "receipt", lambda self, stage, key: store.get(stage, key))
    monkeypatch.setattr(perform, "FileWorld", lambda workspace: world)
    monkeypatch.setattr(perform, "observe_files", lambda *arguments: None)
    world.store = store  # type: ignore[attr-defined]
    return world


def do(world: DictWorld, stage: str, act: Callable[[StepContext], object] = lambda context: None, **more: Any) -> None:
    def action(context: StepContext) -> Outcome:
        act(context)
        return Outcome(result=RESULTS[stage], **more)

    workspace: Any = SimpleNamespace(receipts=world.store)  # type: ignore[attr-defined]
    services = Services(workspace=workspace, events=Silent(), cancel=Event(), link=lambda device: pytest.fail("asked"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perform, "action_of", lambda name: action)
        perform.perform(services, SUBJECT, stage)


def recorded(world: DictWorld) -> list[tuple[str, bool]]:
    return [(receipt.stage, receipt.sample) for receipt in world.store.all()]  # type: ignore[attr-defined]


def test_what_was_done_is_recorded_once(world: DictWorld) -> None:
    do(world, "source")
    assert recorded(world) == [("source", False)]
    do(world, "source", lambda context: pytest.fail("it is done"))


@pytest.mark.parametrize("after", [{"sha256": "d" * 64}, None])
def test_an_input_that_moves_while_a_step_works_leaves_nothing_recorded(world: DictWorld, after: Any) -> None:
    with pytest.raises(errors.InputChanged):
        do(world, "source", lambda context: setattr(world, "content", after))
    assert recorded(world) == []
    world.content = {"sha256": ONNX}
    assert world.store.attempt("source", "nopp") is not None  # type: ignore[attr-defined]
    do(world, "source")
    assert recorded(world) == [("source", False)]


def test_a_step_that_fails_leaves_nothing_recorded_but_its_attempt(world: DictWorld) -> None:
    def fails(context: StepContext) -> None:
        raise errors.SourceError("gone")

    with pytest.raises(errors.SourceError):
        do(world, "source", fails)
    assert recorded(world) == []
    assert "gone" in world.store.attempt("source", "nopp").error  # type: ignore[attr-defined]


def test_what_is_made_from_a_sample_says_so_in_every_step_after_it(world: DictWorld) -> None:
    do(world, "source", sample=True)
    do(world, "compile")
    do(world, "install")
    assert recorded(world) == [("compile", True), ("install", True), ("source", True)]


def test_a_step_that_needs_a_device_which_did_not_answer_is_not_begun(world: DictWorld) -> None:
    do(world, "source")
    world.seen = replace(world.seen, reachable=False, problem="desk.lan is unreachable")
    with pytest.raises(errors.DeviceUnreachable, match=r"desk\.lan is unreachable"):
        do(world, "upload", lambda context: pytest.fail("begun"))
    assert recorded(world) == [("source", False)]
