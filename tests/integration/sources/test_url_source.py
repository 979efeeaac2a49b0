"""Downloads over a real HTTP server: whole, resumed, cut, redirected, too large, wrong."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from buildlib.core.catalog import UrlSource
from buildlib.errors import Cancelled, SourceError, SourceUnavailable, StoreError
from buildlib.ports.source import SourceContext
from buildlib.sources import download, reader

Make = Callable[..., SourceContext]
CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    original = download.Wanted

    def quick(**fields: object) -> download.Wanted:
        return original(**{"pause": 0.0, "timeout": 2.0, **fields})

    monkeypatch.setattr("buildlib.sources.url.Wanted", quick)


def fetch(served, context: Make, into: Path, sha256: str = SHA, path: str = "/m.onnx", **more: object):
    return reader(UrlSource(url=served.url + path, sha256=sha256), context(**more)).fetch(into)


def test_a_download_arrives_whole_and_leaves_no_part(served, context: Make, tmp_path: Path) -> None:
    served.files["/m.onnx"] = CONTENT
    fetched = fetch(served, context, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == CONTENT
    assert (fetched.sha256, fetched.size) == (SHA, len(CONTENT))
    assert [file.name for file in tmp_path.glob("m.onnx*")] == ["m.onnx"]


def test_observing_asks_no_server(served, context: Make) -> None:
    observed = reader(UrlSource(url=f"{served.url}/m.onnx", sha256=SHA), context()).observe()
    assert observed.sha256 == SHA
    assert served.seen == []


def test_a_cut_connection_is_resumed_by_a_range_request(served, context: Make, tmp_path: Path) -> None:
    served.files["/m.onnx"] = CONTENT
    served.cut_after = [300_000, 200_000]
    fetch(served, context, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == CONTENT
    assert [headers.get("Range") for _, headers in served.seen] == [None, "bytes=300000-", "bytes=500000-"]


def test_a_cut_download_is_resumed_by_the_next_run(served, context: Make, tmp_path: Path) -> None:
    served.files["/m.onnx"] = CONTENT
    served.cut_after = [400_000, *[0] * 10]
    with pytest.raises(SourceUnavailable, match="400000 bytes are kept"):
        fetch(served, context, tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()
    served.cut_after, served.seen = [], []
    fetch(served, context, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == CONTENT
    assert [headers.get("Range") for _, headers in served.seen] == ["bytes=400000-"]


def test_a_server_without_ranges_starts_anew(served, context: Make, tmp_path: Path) -> None:
    served.files["/m.onnx"], served.ranges = CONTENT, False
    served.cut_after = [300_000]
    fetch(served, context, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == CONTENT


def test_a_part_that_is_already_whole_is_not_fetched_again(served, context: Make, tmp_path: Path) -> None:
    served.files["/m.onnx"] = CONTENT
    (tmp_path / "m.onnx.part").write_bytes(CONTENT)
    fetch(served, context, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == CONTENT
    assert len(served.seen) == 1


@pytest.mark.parametrize("stale", [b"other bytes of an older file", CONTENT + b"longer", b"x" * len(CONTENT)])
def test_a_part_of_another_file_is_thrown_away(served, context: Make, tmp_path: Path, stale: bytes) -> None:
    served.files["/m.onnx"] = CONTENT
    (tmp_path / "m.onnx.part").write_bytes(stale)
    fetch(served, context, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == CONTENT


def test_a_wrong_hash_names_both_and_leaves_nothing(served, context: Make, tmp_path: Path) -> None:
    served.files["/m.onnx"] = CONTENT
    with pytest.raises(SourceError) as caught:
        fetch(served, context, tmp_path / "m.onnx", sha256="ab" * 32)
    assert "ab" * 32 in caught.value.headline()
    assert SHA in caught.value.headline()
    assert list(tmp_path.glob("m.onnx*")) == []


def test_an_html_page_in_place_of_the_file_is_called_that(served, context: Make, tmp_path: Path) -> None:
    served.files["/m.onnx"] = b"<!DOCTYPE html><title>Sign in</title>"
    with pytest.raises(SourceError, match="HTML"):
        fetch(served, context, tmp_path / "m.onnx")


def test_an_lfs_pointer_in_place_of_the_file_is_called_that(served, context: Make, tmp_path: Path) -> None:
    served.files["/m.onnx"] = f"version https://git-lfs.github.com/spec/v1\noid sha256:{SHA}\nsize 5\n".encode()
    with pytest.raises(SourceError, match="git-lfs pointer"):
        fetch(served, context, tmp_path / "m.onnx")


def test_a_length_that_never_comes_is_an_error_with_both_numbers(served, context: Make, tmp_path: Path) -> None:
    served.files["/m.onnx"], served.claim_length, served.ranges = CONTENT, len(CONTENT) + 100, False
    with pytest.raises(SourceUnavailable, match=f"{len(CONTENT)} of {len(CONTENT) + 100} bytes"):
        fetch(served, context, tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


def test_a_length_that_is_too_short_ends_in_the_wrong_hash(served, context: Make, tmp_path: Path) -> None:
    served.files["/m.onnx"], served.claim_length = CONTENT, 1000
    with pytest.raises(SourceError, match=r"another sha256 .*1000 bytes"):
        fetch(served, context, tmp_path / "m.onnx")


def test_a_server_that_sends_another_range_is_not_believed(served, context: Make, tmp_path: Path) -> None:
    served.files["/m.onnx"], served.wrong_range = CONTENT, True
    served.cut_after = [1000]
    with pytest.raises(SourceUnavailable, match="another range"):
        fetch(served, context, tmp_path / "m.onnx")


def test_a_file_above_the_limit_is_refused(
    served, context: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.files["/m.onnx"] = CONTENT
    original = download.Wanted
    monkeypatch.setattr("buildlib.sources.url.Wanted", lambda **f: original(**f, limit=1000, pause=0.0))
    for stated in (True, False):
        served.content_length = stated
        with pytest.raises(SourceError, match="too large: expected at most 1000 bytes"):
            fetch(served, context, tmp_path / "m.onnx")
        assert not (tmp_path / "m.onnx").exists()


def test_a_redirect_within_the_scheme_is_followed(served, context: Make, tmp_path: Path) -> None:
    served.files["/real"] = CONTENT
    served.redirects["/m.onnx"] = "/real"
    fetch(served, context, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == CONTENT


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "https://127.0.0.1:1/x", "data:,x"])
def test_a_redirect_to_another_scheme_is_refused(served, context: Make, tmp_path: Path, target: str) -> None:
    served.redirects["/m.onnx"] = target
    with pytest.raises(SourceError, match="redirected to another scheme") as caught:
        fetch(served, context, tmp_path / "m.onnx")
    assert target.partition(":")[0] in (caught.value.got or "")
    assert len(served.seen) == 1


def test_a_redirect_loop_ends(served, context: Make, tmp_path: Path) -> None:
    served.redirects["/m.onnx"] = "/m.onnx"
    with pytest.raises(SourceUnavailable):
        fetch(served, context, tmp_path / "m.onnx")


def test_a_busy_server_is_asked_again(served, context: Make, tmp_path: Path) -> None:
    served.files["/m.onnx"], served.statuses = CONTENT, [503, 429]
    fetch(served, context, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == CONTENT


@pytest.mark.parametrize(("status", "word"), [(404, "correct the address"), (401, "login"), (403, "refuses")])
def test_a_refusal_says_what_to_do(served, context: Make, tmp_path: Path, status: int, word: str) -> None:
    served.statuses = [status]
    with pytest.raises(SourceError) as caught:
        fetch(served, context, tmp_path / "m.onnx")
    assert str(status) in caught.value.headline()
    assert word in (caught.value.remedy or "")


def test_nobody_listening_is_unavailable(context: Make, tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="does not come through"):
        reader(UrlSource(url="http://127.0.0.1:9/m.onnx", sha256=SHA), context()).fetch(tmp_path / "m.onnx")


def test_a_cancelled_download_stops_and_keeps_what_came(served, context: Make, tmp_path: Path) -> None:
    served.files["/m.onnx"] = CONTENT
    cancel = threading.Event()
    served.on_block = cancel.set
    with pytest.raises(Cancelled):
        fetch(served, context, tmp_path / "m.onnx", cancel=cancel)
    assert not (tmp_path / "m.onnx").exists()
    assert 0 < (tmp_path / "m.onnx.part").stat().st_size <= len(CONTENT)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_no_network_fault(served, context: Make, tmp_path: Path) -> None:
    served.files["/m.onnx"] = CONTENT
    (tmp_path / "m.onnx.part").symlink_to("/dev/full")
    with pytest.raises(StoreError, match="No space left"):
        fetch(served, context, tmp_path / "m.onnx")
    assert len(served.seen) == 1
    assert not (tmp_path / "m.onnx").exists()


def test_a_file_url_is_copied_and_checked(context: Make, tmp_path: Path) -> None:
    source = tmp_path / "a share" / "m.onnx"
    source.parent.mkdir()
    source.write_bytes(CONTENT)
    fetched = reader(UrlSource(url=source.as_uri(), sha256=SHA), context()).fetch(tmp_path / "into" / "m.onnx")
    assert fetched.path.read_bytes() == CONTENT
    with pytest.raises(SourceError, match="another sha256"):
        reader(UrlSource(url=source.as_uri(), sha256="0" * 64), context()).fetch(tmp_path / "n.onnx")
    assert not list(tmp_path.glob("n.onnx*"))
    source.unlink()
    with pytest.raises(SourceUnavailable, match="cannot be read"):
        reader(UrlSource(url=source.as_uri(), sha256=SHA), context()).fetch(tmp_path / "n.onnx")


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("ftp://example.com/m", "scheme"),
        ("m.onnx", "scheme"),
        ("http://user:hunter2@example.com/m", "login"),
        ("http:///m.onnx", "no host"),
        ("file://otherhost/m.onnx", "another host"),
        ("http://example.com/a b.onnx", "percent-encoded"),
        ("http://example.com:port/m", "no URL"),
        ("http://example.com/ü", "percent-encoded"),
    ],
)
def test_urls_that_are_never_fetched_are_refused_before_any_request(context: Make, url: str, word: str) -> None:
    with pytest.raises(SourceError, match=word) as caught:
        reader(UrlSource(url=url, sha256=SHA), context()).observe()
    assert "hunter2" not in caught.value.render()
