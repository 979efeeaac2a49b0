from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildlib.core.receipt import Attempt, Receipt
from buildlib.store.receipts import ReceiptStore, now

KEY = "k" * 64


def receipt(**changes: object) -> Receipt:
    fields: dict[str, object] = {
        "stage": "compile",
        "model": "nopp",
        "device": "desk",
        "key": KEY,
        "key_format": 1,
        "version": 1,
        "parts": {"flags": {"DEV": "QCOM"}},
        "result": {"artifacts": {"supercombo": {"sha256": "a" * 64}}},
        "finished": now(),
        "seconds": 1.5,
    }
    return Receipt(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> ReceiptStore:
    return ReceiptStore(tmp_path)


def test_a_receipt_comes_back_as_it_was_put(store: ReceiptStore) -> None:
    store.put(receipt())
    found = store.get("compile", KEY)
    assert found is not None
    assert msgspec.structs.replace(found, seal=receipt().seal) == receipt(finished=found.finished)
    assert store.latest("nopp") == {"compile@desk": KEY}


def test_all_receipts_are_told_and_each_stages_latest_key_is_kept(store: ReceiptStore) -> None:
    assert store.get("compile", KEY) is None
    for stage in ("compile", "verify"):
        store.put(receipt(stage=stage))
    assert [one.stage for one in store.all()] == ["compile", "verify"]
    assert [one.stage for one in store.of("verify")] == ["verify"]
    assert store.latest("nopp") == {"compile@desk": KEY, "verify@desk": KEY}


def test_a_receipt_of_another_stage_or_key_is_not_believed(store: ReceiptStore) -> None:
    store.put(receipt())
    path = store.path("compile", KEY)
    for other in (store.path("compile", "x" * 64), store.path("verify", KEY)):
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(path.read_bytes())
    assert store.get("compile", "x" * 64) is None
    assert store.get("verify", KEY) is None


@given(place=st.floats(0, 0.999), bit=st.integers(0, 7))
def test_a_receipt_with_one_wrong_bit_is_not_believed(
    tmp_path_factory: pytest.TempPathFactory, place: float, bit: int
) -> None:
    store = ReceiptStore(tmp_path_factory.mktemp("receipts"))
    store.put(receipt())
    path = store.path("compile", KEY)
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 1 << bit
    path.write_bytes(data)
    found = store.get("compile", KEY)
    assert found is None


def test_an_edited_receipt_is_not_believed(store: ReceiptStore) -> None:
    store.put(receipt())
    path = store.path("compile", KEY)
    path.write_bytes(path.read_bytes().replace(b"QCOM", b"CPU"))
    assert store.get("compile", KEY) is None


def test_a_text_that_looks_like_a_seal_confuses_nothing(store: ReceiptStore) -> None:
    odd = receipt(result={"artifacts": {'"seal": "': {"sha256": '"seal": "'}}})
    store.put(odd)
    assert store.get("compile", KEY) is not None


def test_a_success_takes_the_failed_attempt_away(store: ReceiptStore) -> None:
    store.put_attempt(Attempt(stage="compile", model="nopp", key=KEY, error="boom", finished=now()))
    assert store.attempt("compile", "nopp") is not None
    store.put(receipt())
    assert store.attempt("compile", "nopp") is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"compile@desk": 5}', b"null"])
def test_latest_keys_that_are_none_are_as_good_as_absent(store: ReceiptStore, data: bytes) -> None:
    store.latest_path("nopp").parent.mkdir(parents=True)
    store.latest_path("nopp").write_bytes(data)
    assert store.latest("nopp") == {}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"stage": "compile"}', b"null"])
def test_what_is_no_receipt_is_as_good_as_absent(store: ReceiptStore, data: bytes) -> None:
    path = store.path("compile", KEY)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    assert store.get("compile", KEY) is None
    assert list(store.all()) == []
