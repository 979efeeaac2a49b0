"""Writes manifests in their real form, habits of their editors included: key order differs between bundles,
`overrides` stands on one line, URLs percent-encode the folder (facts, section 4)."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from urllib.parse import quote

BUNDLES = 60
DIRECTORY = "models/recompiled16"


@dataclass(frozen=True, kw_only=True)
class SandboxModel:
    """A published model. folder: its directory without `model-`. data: the bytes that stand for its artifact."""

    short_name: str
    display_name: str
    folder: str
    file_name: str
    data: bytes

    @property
    def path(self) -> str:
        """Of its artifact in the repository."""
        return f"{DIRECTORY}/model-{self.folder}/{self.file_name}"

    @property
    def sha256(self) -> str:
        """Of its artifact."""
        return hashlib.sha256(self.data).hexdigest()


GUIDE_MODELS = (
    ("TOBYRL", "TobyRL (May 30, 2026)", "TobyRL (May 30, 2026)-158", "driving_supercombo_tobyrl.pkl"),
    ("NOPP", "No PP (June 26, 2026)", "No PP (June 26, 2026)-165", "driving_supercombo_nopp.pkl"),
    ("DRLV3", "DRL V3 (July 9, 2026)", "DRL V3 (July 9, 2026)-171", "driving_supercombo_drl3.pkl"),
)

_FIRST = ("Amber", "Bridge", "Cedar", "Delta", "Ember", "Fjord", "Granite", "Harbor", "Indigo", "Juniper")
_SECOND = ("Fox", "Lake", "Mesa", "North", "Orchid", "Pine")
_MONTHS = ("January", "February", "March", "April", "May", "June", "July")


def models(seed: int = 16) -> tuple[SandboxModel, ...]:
    """60 models, the guide's three among them; the same for a seed."""
    chance = random.Random(seed)  # noqa: S311 - names, no secrets
    names = [f"{first} {second}" for first in _FIRST for second in _SECOND]
    chance.shuffle(names)
    rows = []
    for number, name in enumerate(names[: BUNDLES - len(GUIDE_MODELS)]):
        display = f"{name} ({chance.choice(_MONTHS)} {chance.randint(1, 28)}, {chance.choice((2024, 2025, 2026))})"
        slug = display.lower().replace(" ", "_").replace("(", "").replace(")", "").replace(",", "")
        short = "".join(word[0] for word in name.split()) + str(number)
        rows.append((short, display, f"{display}-{100 + number}", f"driving_{slug}_tinygrad.pkl"))
    for place, row in zip((17, 38, 59), GUIDE_MODELS, strict=True):
        rows.insert(place, row)
    return tuple(
        SandboxModel(
            short_name=short,
            display_name=display,
            folder=folder,
            file_name=file_name,
            data=f"placeholder for {display}\n".encode() * chance.randint(4, 9),
        )
        for short, display, folder, file_name in rows
    )


def manifest(published: tuple[SandboxModel, ...], url: str, *, tinygrad_ref: str | None, seed: int) -> bytes:
    """A manifest that names the models' files below a base URL. seed: of the editors' habits."""
    chance = random.Random(seed)  # noqa: S311
    bundles = [_bundle(model, number, url, chance) for number, model in enumerate(published)]
    root: dict[str, object] = {"tinygrad_ref": tinygrad_ref} if tinygrad_ref else {}
    return (_dumps({**root, "bundles": bundles}, "") + "\n").encode()


def _bundle(model: SandboxModel, number: int, url: str, chance: random.Random) -> dict[str, object]:
    artifact = {
        "file_name": model.file_name,
        "download_uri": {"url": f"{url}/{quote(model.path)}", "sha256": model.sha256},
    }
    order, chance = chance, random.Random(model.short_name)  # noqa: S311 - what it says is the same in every manifest
    build_time = f"2026-{chance.randint(5, 8):02d}-{chance.randint(1, 28):02d}T{chance.randint(0, 23):02d}:01:27Z"
    values: dict[str, object] = {
        "short_name": model.short_name,
        "display_name": model.display_name,
        "is_20hz": chance.random() < 0.8,
        "is_big": False,
        "ref": f"{chance.getrandbits(160):040x}",
        "environment": chance.choice(("development", "release")),
        "runner": "tinygrad",
        "index": number,
        "minimum_selector_version": "19",
        "generation": str(chance.randint(3, 12)),
    }
    overrides = {"folder": chance.choice(("Legacy Models", "Master Models")), "lat": ".0", "long": ".3"}
    models = [{"type": "supercombo", "artifact": artifact}]
    if order.random() < 0.5:
        return {**values, "build_time": build_time, "overrides": overrides, "models": models}
    return {**values, "overrides": overrides, "models": models, "build_time": build_time}


def _dumps(value: object, indent: str) -> str:
    inner = indent + "  "
    if isinstance(value, dict):
        if set(value) == {"folder", "lat", "long"}:
            return "{ " + ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + " }"
        lines = [f"{inner}{json.dumps(key)}: {_dumps(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + _dumps(item, inner) for item in value) + f"\n{indent}]"
    return json.dumps(value)
