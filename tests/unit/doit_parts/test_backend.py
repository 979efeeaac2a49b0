from __future__ import annotations

from pathlib import Path

import pytest

from buildlib.doit_parts.backend import MarksBackend


def test_only_ignore_marks_outlive_a_run(tmp_path: Path) -> None:
    path = tmp_path / "marks.json"
    first = MarksBackend(str(path), None)
    first.set("compile:one", "ignore:", "1")
    first.set("compile:one", "result:", "anything")
    first.dump()
    second = MarksBackend(str(path), None)
    assert second.get("compile:one", "ignore:") == "1"
    assert second.get("compile:one", "result:") is None
    second.remove("compile:one")
    second.dump()
    assert MarksBackend(str(path), None).get("compile:one", "ignore:") is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"12"])
def test_a_damaged_database_is_an_empty_one(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "marks.json"
    path.write_bytes(data)
    assert MarksBackend(str(path), None).get("compile:one", "ignore:") is None


def test_a_run_that_marks_nothing_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "marks.json"
    backend = MarksBackend(str(path), None)
    backend.set("compile:one", "result:", "x")
    backend.dump()
    assert not path.exists()
