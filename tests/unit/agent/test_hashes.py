from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import msgspec
import pytest

from buildlib.core.catalog import DevicePaths
from buildlib.device_scripts.agent import hashes
from buildlib.device_scripts.agent.hashes import HashCache, settled
from buildlib.device_scripts.agent.places import Places
from tests.support.benches import until


def places(root: Path) -> Places:
    return Places({name: value for name, value in msgspec.to_builtins(DevicePaths(root=str(root))).items() if value})


@pytest.fixture
def cache(tmp_path: Path) -> HashCache:
    return HashCache(places(tmp_path))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    real = hashes.hash_file

    def counted(path: str) -> tuple[str, list[int]]:
        done.append(path)
        return real(path)

    monkeypatch.setattr(hashes, "hash_file", counted)
    return done


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_settled_file_is_read_once_also_by_the_next_command(tmp_path: Path, cache: HashCache, reads: list[str]):
    file = tmp_path / "a"
    file.write_bytes(b"x")
    until(lambda: settled(file.stat().st_ctime_ns, time.time_ns()))
    assert cache.file(str(file))[0] == cache.file(str(file))[0] == sha(b"x")
    cache.save()
    assert HashCache(places(tmp_path)).file(str(file))[0] == sha(b"x")
    assert len(reads) == 1


def test_bytes_replaced_in_place_with_the_old_mtime_are_seen(tmp_path: Path, cache: HashCache):
    file = tmp_path / "a"
    file.write_bytes(b"x")
    until(lambda: settled(file.stat().st_ctime_ns, time.time_ns()))
    cache.file(str(file))
    before = file.stat()
    with file.open("r+b") as handle:
        handle.write(b"y")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cache.file(str(file))[0] == sha(b"y")


def test_two_changes_within_one_tick_of_the_clock_are_both_seen(tmp_path: Path, cache: HashCache):
    file = tmp_path / "a"
    for number in range(200):
        data = b"%03d" % number
        file.write_bytes(data)
        assert cache.file(str(file))[0] == sha(data)


def test_a_time_in_whole_seconds_settles_later():
    assert settled(1_500_000_001, 1_600_000_000)
    assert not settled(1_000_000_000, 1_600_000_000)
    assert not settled(5_000_000_001, 1_600_000_000)


def test_a_tree_is_known_by_its_sources_only(tmp_path: Path, cache: HashCache):
    top = tmp_path / "tinygrad"
    (top / "engine" / "__pycache__").mkdir(parents=True)
    (top / "a.py").write_text("a")
    (top / "engine" / "jit.py").write_text("b")
    digest, watch = cache.tree(str(top))
    (top / "engine" / "__pycache__" / "jit.py").write_text("cached")
    (top / "notes.txt").write_text("n")
    assert cache.tree(str(top)) == (digest, watch)
    (top / "engine" / "jit.py").write_text("c")
    assert cache.tree(str(top))[0] != digest
    (top / "engine" / "jit.py").write_text("b")
    assert cache.tree(str(top))[0] == digest
    assert cache.tree(str(top))[1] != watch
    (top / "engine" / "jit.py").rename(top / "engine" / "jut.py")
    assert cache.tree(str(top))[0] != digest


def test_a_damaged_or_unwritable_cache_costs_time_only(tmp_path: Path, cache: HashCache):
    file = tmp_path / "a"
    file.write_bytes(b"x")
    cache.file(str(file))
    cache.save()
    stored = tmp_path / "data/supercombo-build/cache/hashes.json"
    stored.write_text("{damaged")
    again = HashCache(places(tmp_path))
    assert again.file(str(file))[0] == sha(b"x")
    stored.unlink()
    stored.parent.rmdir()
    stored.parent.write_text("a file in the way")
    again.save()


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "a"
    file.write_bytes(b"x" * 10)
    real = hashes.signature
    count = iter(range(100))
    monkeypatch.setattr(hashes, "signature", lambda status: [*real(status), next(count)])
    with pytest.raises(hashes.Refusal) as caught:
        hashes.hash_file(str(file))
    assert caught.value.value["kind"] == "input_changed"
