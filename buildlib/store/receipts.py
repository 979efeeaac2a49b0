"""Receipts and attempts on disk: `receipts/STAGE/KEY.json` is the truth, one file a finished step."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from buildlib.core.receipt import UNSEALED, Attempt, Receipt
from buildlib.store import files

if TYPE_CHECKING:
    from buildlib.core.freshness import Judgement
    from buildlib.core.world import Subject

_receipt_decoder = msgspec.json.Decoder(Receipt)
_attempt_decoder = msgspec.json.Decoder(Attempt)


def now() -> str:
    """The present moment as receipts write it: UTC, whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class ReceiptStore:
    """What was done. A file that cannot be read is as good as absent: the step runs again."""

    def __init__(self, root: Path) -> None:
        self._receipts = root / "receipts"
        self._top = str(self._receipts)
        self._attempts = root / "attempts"
        self._latest = root / "latest"

    def path(self, stage: str, key: str) -> Path:
        """The receipt's file."""
        return self._receipts / stage / f"{key}.json"

    def get(self, stage: str, key: str) -> Receipt | None:
        """The receipt of a step with this key, if it ever ended well."""
        try:
            with open(f"{self._top}/{stage}/{key}.json", "rb") as file:  # noqa: PTH123 - a Path costs more than the read
                data = file.read()
            receipt = _receipt_decoder.decode(data)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        intact = receipt.key == key and receipt.stage == stage and _seal_of(data) == receipt.seal
        return receipt if intact else None

    def put(self, receipt: Receipt) -> None:
        """Records a success, drops the model's failed attempt and notes the key as the latest."""
        files.write(self.path(receipt.stage, receipt.key), _sealed(receipt))
        self.note_latest(receipt.model, receipt.stage, receipt.device, receipt.key)
        self.drop_attempt(receipt.stage, receipt.model)

    def forget(self, stage: str, key: str) -> None:
        """Drops a receipt."""
        self.path(stage, key).unlink(missing_ok=True)

    def all(self) -> Iterator[Receipt]:
        """Every readable receipt."""
        return self.of("*")

    def of(self, stage: str) -> Iterator[Receipt]:
        """Every readable receipt of a stage."""
        for path in sorted(self._receipts.glob(f"{stage}/*.json")):
            receipt = self.get(path.parent.name, path.stem)
            if receipt is not None:
                yield receipt

    def latest_path(self, model: str) -> Path:
        """The file that holds a model's latest keys."""
        return self._latest / f"{model}.json"

    def latest(self, model: str) -> dict[str, str]:
        """A model's latest key by `stage@device`. Serves explanations only, never a decision."""
        try:
            return msgspec.json.decode(self.latest_path(model).read_bytes(), type=dict[str, str])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}

    def note_latest(self, model: str, stage: str, device: str | None, key: str) -> None:
        """Remembers a key as the last one of a model's stage."""
        known = self.latest(model)
        name = f"{stage}@{device or ''}"
        if known.get(name) != key:
            files.write(self.latest_path(model), msgspec.json.encode({**known, name: key}))

    def note_done(self, subject: Subject, verdict: Judgement) -> None:
        """Notes that a step which is done is the model's last of its stage, whichever model did it."""
        if verdict.key is not None:
            self.note_latest(subject.model.name, verdict.stage, subject.device.name, verdict.key)

    def attempt_path(self, stage: str, model: str) -> Path:
        """The file of a model's failed attempt."""
        return self._attempts / stage / f"{model}.json"

    def attempt(self, stage: str, model: str) -> Attempt | None:
        """The model's last failed attempt at a stage, if it has not succeeded since."""
        try:
            return _attempt_decoder.decode(self.attempt_path(stage, model).read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def drop_attempt(self, stage: str, model: str) -> None:
        """What a failure left has been dealt with."""
        self.attempt_path(stage, model).unlink(missing_ok=True)

    def put_attempt(self, attempt: Attempt) -> None:
        """Keeps a failure as evidence."""
        files.write(self.attempt_path(attempt.stage, attempt.model), _pretty(attempt))


def _sealed(receipt: Receipt) -> bytes:
    blank = _pretty(msgspec.structs.replace(receipt, seal=UNSEALED))
    head, tail = _around_seal(blank)
    return head + _seal_of(blank).encode() + tail


def _seal_of(data: bytes) -> str:
    head, tail = _around_seal(data)
    return hashlib.sha256(head + UNSEALED.encode() + tail).hexdigest()


def _around_seal(data: bytes) -> tuple[bytes, bytes]:
    """The seal is the last field: what stands before its 64 digits, and after."""
    start = data.rfind(b'"seal": "') + len(b'"seal": "')
    return data[:start], data[start + len(UNSEALED) :]


def _pretty(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
