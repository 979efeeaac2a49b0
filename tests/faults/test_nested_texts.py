"""JSON nested without end is as good as damaged, whoever wrote it: state of ours, a device, a person."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from buildlib import errors
from buildlib.commands.attest import from_file
from buildlib.core.attestation import POINTS
from buildlib.core.confirmation import artifacts_of
from buildlib.core.doctor import active_model
from buildlib.core.selection import file_names
from buildlib.device.conversation import Conversation
from buildlib.device_scripts.agent.places import read_json
from buildlib.steps.world import read_observation
from buildlib.store import attestations
from buildlib.store.receipts import ReceiptStore
from buildlib.store.workspace import Workspace

LISTS, MAPPINGS = "[" * 200_000, '{"a":' * 100_000


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def heard(root: Path, text: str) -> object:
    talk = Conversation()
    talk.feed(text.encode() + b"\n")
    return talk.answer


READERS: dict[str, Callable[[Path, str], object]] = {
    "a receipt": lambda root, text: (put(root / "receipts/pull/k.json", text), ReceiptStore(root).get("pull", "k"))[1],
    "an attempt": lambda root, text: (
        put(root / "attempts/pull/m.json", text),
        ReceiptStore(root).attempt("pull", "m"),
    )[1],
    "the latest keys": lambda root, text: (put(root / "latest/m.json", text), ReceiptStore(root).latest("m"))[1],
    "an attestation": lambda root, text: (
        put(root / "attestations/m/1.json", text),
        attestations.read_all(root, "m"),
    )[1],
    "an observation": lambda root, text: (
        put(root / ".build/devices/d.json", text),
        read_observation(Workspace(root), "d"),
    )[1],
    "a device's answer": heard,
    "a device's bundle": lambda root, text: (artifacts_of(text), file_names(text))[1],
    "a file on the device": lambda root, text: read_json(str(put(root / "x.json", text))),
}


@pytest.mark.parametrize("text", [LISTS, MAPPINGS], ids=["lists", "mappings"])
@pytest.mark.parametrize("what", READERS)
def test_a_text_nested_without_end_counts_for_nothing(tmp_path: Path, what: str, text: str) -> None:
    assert not READERS[what](tmp_path, text)


@pytest.mark.parametrize("text", [LISTS, MAPPINGS], ids=["lists", "mappings"])
def test_where_a_person_wrote_it_the_file_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(errors.UsageError, match="cannot be read"):
        from_file(str(put(tmp_path / "answers.json", text)), POINTS)
    assert active_model(text) == "unreadable"
