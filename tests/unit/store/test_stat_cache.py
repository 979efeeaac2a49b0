from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from buildlib.store.stat_cache import COARSE_NS, TICK_NS, StatCache, settled, signature


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def cache(tmp_path: Path) -> StatCache:
    return StatCache(tmp_path / "cache" / "stat.msgpack")


def settle() -> None:
    time.sleep(TICK_NS / 1e9 * 2)


def test_a_settled_file_is_hashed_once(tmp_path: Path, cache: StatCache) -> None:
    file = tmp_path / "a.onnx"
    file.write_bytes(b"one")
    settle()
    assert [cache.sha256(file) for _ in range(3)] == [sha(b"one")] * 3
    assert cache.hashed == 1


def test_a_hash_outlives_the_process(tmp_path: Path, cache: StatCache) -> None:
    file = tmp_path / "a.onnx"
    file.write_bytes(b"one")
    settle()
    cache.sha256(file)
    cache.save()
    again = StatCache(tmp_path / "cache" / "stat.msgpack")
    assert again.sha256(file) == sha(b"one")
    assert again.hashed == 0


def test_touching_costs_one_hash_once_and_changes_nothing(tmp_path: Path, cache: StatCache) -> None:
    file = tmp_path / "a.onnx"
    file.write_bytes(b"one")
    settle()
    cache.sha256(file)
    os.utime(file)
    settle()
    assert cache.sha256(file) == sha(b"one")
    assert cache.sha256(file) == sha(b"one")
    assert cache.hashed == 2


def test_a_replaced_file_of_the_same_size_and_mtime_is_seen(tmp_path: Path, cache: StatCache) -> None:
    file = tmp_path / "a.onnx"
    file.write_bytes(b"one")
    settle()
    cache.sha256(file)
    stat = file.stat()
    other = tmp_path / "b.onnx"
    other.write_bytes(b"two")
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(file)
    assert file.stat().st_mtime_ns == stat.st_mtime_ns
    assert cache.sha256(file) == sha(b"two")


def test_an_overwrite_in_place_with_the_mtime_set_back_is_seen(tmp_path: Path, cache: StatCache) -> None:
    file = tmp_path / "a.onnx"
    file.write_bytes(b"one")
    settle()
    cache.sha256(file)
    stat = file.stat()
    with file.open("r+b") as handle:
        handle.write(b"two")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (stat.st_ino, stat.st_mtime_ns)
    assert cache.sha256(file) == sha(b"two")


def test_two_writes_within_one_clock_tick_are_both_seen(tmp_path: Path, cache: StatCache) -> None:
    file = tmp_path / "a.onnx"
    for round_ in range(30):
        for text in (b"one", b"two"):
            file.write_bytes(text)
            assert cache.sha256(file) == sha(text), round_


def test_a_racy_entry_is_not_believed_by_the_next_process_either(tmp_path: Path, cache: StatCache) -> None:
    file = tmp_path / "a.onnx"
    file.write_bytes(b"one")
    cache.sha256(file)
    cache.save()
    again = StatCache(tmp_path / "cache" / "stat.msgpack")
    again.sha256(file)
    assert again.hashed == 1


def test_whole_second_times_need_two_seconds_to_settle() -> None:
    whole = 1_700_000_000 * 1_000_000_000
    seen = (1, 2, 3, whole, whole)
    assert not settled(seen, whole + COARSE_NS - 1)
    assert settled(seen, whole + COARSE_NS + 1)


def test_a_file_from_the_future_is_never_settled(tmp_path: Path, cache: StatCache) -> None:
    file = tmp_path / "a.onnx"
    file.write_bytes(b"one")
    ahead = time.time_ns() + 3_600_000_000_000
    os.utime(file, ns=(ahead, ahead))
    settle()
    cache.sha256(file)
    cache.sha256(file)
    assert cache.hashed == 2


def test_what_is_no_regular_readable_file_has_no_hash(tmp_path: Path, cache: StatCache) -> None:
    assert cache.sha256(tmp_path / "absent") is None
    assert cache.sha256(tmp_path) is None
    assert cache.sha256(tmp_path / "a\0b") is None


@pytest.mark.parametrize("damage", [b"", b"\xff\xff", b"{}", b"\x80"])
def test_a_damaged_cache_file_costs_hashes_only(tmp_path: Path, damage: bytes) -> None:
    place = tmp_path / "stat.msgpack"
    place.write_bytes(damage)
    file = tmp_path / "a.onnx"
    file.write_bytes(b"one")
    assert StatCache(place).sha256(file) == sha(b"one")


def test_entries_of_files_that_are_gone_are_dropped_on_save(tmp_path: Path, cache: StatCache) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"x" * 100)
    settle()
    cache.sha256(tmp_path / "a")
    cache.sha256(tmp_path / "b")
    (tmp_path / "a").unlink()
    cache.save()
    text = (tmp_path / "cache" / "stat.msgpack").read_bytes()
    assert str(tmp_path / "b").encode() in text
    assert str(tmp_path / "a").encode() not in text


def test_a_signature_is_taken_of_files_only_where_they_are(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"abc")
    found = signature(file)
    assert found is not None
    assert found[2] == 3
    assert signature(tmp_path / "b") is None
