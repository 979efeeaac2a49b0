from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from buildlib.errors import StoreError
from buildlib.store import files
from buildlib.store.blobs import BlobStore
from buildlib.store.stat_cache import StatCache


def test_a_write_that_fails_half_way_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    files.write(path, b"before")

    def half() -> None:
        with files.replacing(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_bytes_are_on_the_disk_before_they_get_their_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut leaves an empty file under the name, or takes back what was said to be done."""
    done: list[str] = []
    flush, rename = os.fsync, Path.replace

    def flushed(handle: int) -> None:
        status = os.fstat(handle)
        done.append("folder" if stat.S_ISDIR(status.st_mode) else f"{status.st_size} bytes")
        flush(handle)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "replace", lambda self, to: (done.append("name"), rename(self, to))[1])
    files.write(tmp_path / "state.json", b"state")
    assert done == ["5 bytes", "name", "folder"]
    done.clear()
    store = BlobStore(tmp_path / "blobs", StatCache(tmp_path / "stat"))
    store.add(tmp_path / "state.json")
    assert done == ["5 bytes", "name", "folder", "name", "folder"]


def test_a_write_makes_its_directories_and_sets_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "a b" / "ü" / "state.json"
    files.write(path, b"x", mode=0o444)
    assert path.stat().st_mode & 0o777 == 0o444


def test_a_very_long_name_can_be_written(tmp_path: Path) -> None:
    files.write(tmp_path / ("n" * 250), b"x")


def test_a_copy_says_the_hash_of_what_it_wrote(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc" * 999_999)
    assert (
        files.copy(tmp_path / "a", tmp_path / "b") == files.hash_file(tmp_path / "b") == files.hash_file(tmp_path / "a")
    )


def test_where_nothing_can_be_written_the_error_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot be written"):
        files.write(tmp_path / "file" / "below", b"x")
    (tmp_path / "directory").mkdir()
    with pytest.raises(StoreError, match="move that directory away"):
        files.write(tmp_path / "directory", b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory", "file"]


@pytest.mark.parametrize("place", [0, 31, 32, 35])
def test_a_sealed_file_with_one_wrong_bit_is_refused(tmp_path: Path, place: int) -> None:
    path = tmp_path / "cache"
    files.write_sealed(path, b"data")
    assert files.read_sealed(path) == b"data"
    data = bytearray(path.read_bytes())
    data[place] ^= 8
    path.write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        files.read_sealed(path)


@pytest.mark.parametrize("length", [0, 5, 31])
def test_a_shortened_sealed_file_is_refused(tmp_path: Path, length: int) -> None:
    (tmp_path / "cache").write_bytes(b"x" * length)
    with pytest.raises(ValueError, match="damaged"):
        files.read_sealed(tmp_path / "cache")
