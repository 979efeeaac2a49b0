"""What a tinygrad's sources say of the names that are asked for."""

from __future__ import annotations

from pathlib import Path

from buildlib.device_scripts.agent.hashes import HashCache
from buildlib.device_scripts.agent.heard import heard
from tests.unit.agent.test_hashes import places

SOURCES = {
    "helpers.py": 'class ContextVar: pass\nNOLOCALS = ContextVar("NOLOCALS", 0)\n',
    "engine/jit.py": "class CapturedJit(Generic[T]):\n  pass\nTinyJit = _TinyJit\nif True:\n  class Inner[T]: pass\n",
    "runtime/autogen/kgsl.py": "class Foreign: pass\nTheirs = 1\n",
    "notes.txt": "class Written: pass\n",
}
ASKED = ["CapturedJit", "ContextVar", "Foreign", "IMAGE", "Inner", "NOLOCALS", "Theirs", "TinyJit", "Written"]


def told(folder: Path, sources: dict[str, str]) -> list[str] | None:
    for name, text in sources.items():
        path = folder / "tinygrad" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return heard(HashCache(places(folder)), str(folder / "tinygrad"), "a digest", ASKED)


def test_flags_and_what_tinygrad_itself_defines_are_told(tmp_path: Path) -> None:
    assert told(tmp_path, SOURCES) == ["CapturedJit", "ContextVar", "Inner", "NOLOCALS", "TinyJit"]


def test_sources_that_read_their_flags_in_an_unknown_way_say_nothing(tmp_path: Path) -> None:
    assert told(tmp_path, {"helpers.py": SOURCES["helpers.py"].replace("ContextVar", "Setting")}) is None
