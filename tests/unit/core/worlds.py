"""A world made of dictionaries: `core.world.World` without files or devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from buildlib.core.catalog import Catalog, Device, Model, Profile, SampleSource, Target
from buildlib.core.key import KEY_FORMAT
from buildlib.core.receipt import Attempt, FileRecord, Receipt
from buildlib.core.stages import BY_NAME
from buildlib.core.world import DeviceSeen, SourceSeen, Subject

ONNX = "a" * 64
ARTIFACT = "b" * 64
DIGEST = "c" * 64
TOOLCHAIN = {"tinygrad": "1" * 64, "python": "3.12.3"}
REMOTE_ONNX = "/data/media/0/driving_supercombo_nopp_source.onnx"
REMOTE_PKL = "/data/media/0/models/driving_supercombo_nopp.recompiled.pkl"
ACTIVE = "/data/media/0/models/driving_supercombo_nopp.pkl"
HERE = "artifacts/nopp/driving_supercombo_nopp.pkl"


def make_subject(**changes: Any) -> Subject:
    """The model `nopp` on a device `desk`."""
    device = Device(name="desk", host="desk.lan", profile=None)
    fields: dict[str, Any] = {
        "name": "nopp",
        "display_name": "No PP",
        "folder": "No PP-165",
        "sources": {"supercombo": SampleSource(seed=2)},
        "artifacts": {"supercombo": "driving_supercombo_nopp.pkl"},
        "profile": "qcom",
        "device": "desk",
        "target": "sandbox",
    }
    model = Model(**{**fields, **changes})
    profile = Profile(name="qcom", flags={"DEV": "QCOM", "OPENPILOT_HACKS": "1"}, expected_device="QCOM")
    catalog = Catalog(
        path="models.yaml",
        models={model.name: model},
        profiles={"qcom": profile},
        devices={"desk": device},
        targets={"sandbox": Target(name="sandbox", kind="git", repository="x", sandbox=True)},
    )
    return Subject(catalog, model, device)


RESULTS: dict[str, dict[str, Any]] = {
    "source": {"sources": {"supercombo": {"sha256": ONNX, "size": 5}}},
    "upload": {"remote": {"supercombo": {"path": REMOTE_ONNX, "sha256": ONNX}}},
    "compile": {"artifacts": {"supercombo": {"path": REMOTE_PKL, "sha256": ARTIFACT, "size": 7}}, "seconds": 1.0},
    "pull": {},
    "verify": {"verdict": "good"},
    "install": {"active": {"supercombo": {"path": ACTIVE, "sha256": ARTIFACT}}},
    "validate": {"verdicts": {}},
    "publish": {"entries": [{"file_name": "driving_supercombo_nopp.pkl", "sha256": ARTIFACT}]},
    "confirm": {"confirmed": {}},
}


class DictWorld:
    """Everything is as it should be until a test changes it."""

    def __init__(self) -> None:
        self.content: dict[str, Any] | None = {"sha256": ONNX}
        self.source_assumed = False
        self.seen = DeviceSeen(
            identity=TOOLCHAIN,
            unit="unit-1",
            reachable=True,
            files={REMOTE_ONNX: ONNX, REMOTE_PKL: ARTIFACT, ACTIVE: ARTIFACT},
        )
        self.files = {HERE: ARTIFACT, f"{HERE}.sha256": DIGEST}
        self.blobs = {ONNX, ARTIFACT}
        self.script_id = "builtin-script"
        self.unpublished: str | None = None
        self.receipts: dict[tuple[str, str], Receipt] = {}
        self.latest_keys: dict[str, str] = {}
        self.attempts: dict[str, Attempt] = {}

    def source(self, subject: Subject, role: str) -> SourceSeen:
        return SourceSeen(content=self.content, problem="the share is not mounted", assumed=self.source_assumed)

    def device(self, name: str) -> DeviceSeen:
        return self.seen

    def file(self, path: str) -> str | None:
        return self.files.get(path)

    def blob(self, sha256: str) -> bool:
        return sha256 in self.blobs

    def script(self, subject: Subject) -> str:
        return self.script_id

    def harness(self, subject: Subject) -> str:
        return "harness"

    def published(self, subject: Subject, wanted: Mapping[str, str]) -> str | None:
        return self.unpublished

    def receipt(self, stage: str, key: str) -> Receipt | None:
        return self.receipts.get((stage, key))

    def latest(self, subject: Subject, stage: str) -> Receipt | None:
        key = self.latest_keys.get(stage)
        return self.receipts.get((stage, key)) if key else None

    def attempt(self, subject: Subject, stage: str) -> Attempt | None:
        return self.attempts.get(stage)

    def record(self, stage: str, key: str, parts: dict[str, Any], result: dict[str, Any] | None = None) -> None:
        """What a finished step leaves."""
        targets = ()
        if stage == "pull":
            targets = (
                FileRecord(path=HERE, size=7, sha256=ARTIFACT),
                FileRecord(path=f"{HERE}.sha256", size=1, sha256=DIGEST),
            )
        self.receipts[stage, key] = Receipt(
            stage=stage,
            model="nopp",
            device="desk",
            key=key,
            key_format=KEY_FORMAT,
            version=BY_NAME[stage].version,
            parts=parts,
            result=RESULTS[stage] if result is None else result,
            targets=targets,
            finished="2026-12-01T12:00:00Z",
            seconds=1.0,
        )
        self.latest_keys[stage] = key


def build(subject: Subject, world: DictWorld) -> list[str]:
    """Runs every stage that is not done, as doit would; the names of those that ran."""
    from buildlib.core.freshness import judge_model
    from buildlib.core.stages import STAGES

    ran = []
    for index, stage in enumerate(STAGES):
        judged = judge_model(subject, world, STAGES[: index + 1])[stage.name]
        if judged.done:
            continue
        assert judged.key is not None, judged
        assert judged.parts is not None
        world.record(stage.name, judged.key, judged.parts)
        ran.append(stage.name)
    return ran
