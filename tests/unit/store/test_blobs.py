from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from buildlib.errors import StoreError
from buildlib.store.blobs import BlobStore
from buildlib.store.stat_cache import StatCache

DATA = b"weights" * 1000
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    (tmp_path / "file").write_bytes(DATA)
    store = BlobStore(tmp_path / "blobs", StatCache(tmp_path / "stat"))
    assert store.add(tmp_path / "file") == SHA
    return store


def test_what_was_added_is_there_read_only_and_comes_back_whole(blobs: BlobStore, tmp_path: Path) -> None:
    assert blobs.has(SHA)
    assert blobs.path(SHA).stat().st_mode & 0o222 == 0
    blobs.restore(SHA, tmp_path / "out" / "file")
    assert (tmp_path / "out" / "file").read_bytes() == DATA
    assert blobs.all() == {SHA: len(DATA)}


def test_a_file_that_is_taken_over_is_a_blob_like_any_other_and_its_place_is_empty(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "blobs", StatCache(tmp_path / "stat"))
    (tmp_path / "file").write_bytes(DATA)
    store.adopt(tmp_path / "file", SHA)
    assert not (tmp_path / "file").exists()
    assert store.has(SHA)
    assert store.path(SHA).stat().st_mode & 0o222 == 0


def test_a_damaged_blob_is_not_there_and_is_never_handed_out(blobs: BlobStore, tmp_path: Path) -> None:
    path = blobs.path(SHA)
    path.chmod(0o644)
    path.write_bytes(DATA[:-1] + b"x")
    assert not blobs.has(SHA)
    with pytest.raises(StoreError, match="damaged"):
        blobs.restore(SHA, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    blobs.add(tmp_path / "file")
    assert blobs.has(SHA)


def test_a_lost_blob_is_an_error_that_names_it(blobs: BlobStore, tmp_path: Path) -> None:
    blobs.remove(SHA)
    with pytest.raises(StoreError, match=SHA):
        blobs.restore(SHA, tmp_path / "out")


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "a" * 63])
def test_only_a_sha256_names_a_blob(blobs: BlobStore, name: str) -> None:
    with pytest.raises(StoreError, match="not a sha256"):
        blobs.path(name)
