"""Which bundle a device must call active so that its runtime takes the artifact under test. Pure."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

from buildlib.core.catalog import Model

ACTIVE = "ModelManager_ActiveBundle"
KNOWN = "ModelManager_ModelsCache"


def selection_for(model: Model, artifacts: Mapping[str, str], texts: Iterable[str | None]) -> str:
    """The text of ACTIVE for a model's artifacts (file name -> sha256).

    texts: JSON that the device has of bundles (the active one, its list, a manifest's), the best first. A bundle there
    that names the same files is taken as it is, in its own spelling, with these bytes' sha256: a manager drops a bundle
    whose file has another. Where none does, a bundle is made from what models.yaml says.
    """
    for text in texts:
        for bundle in _bundles(text):
            if _is_models(bundle, model, artifacts):
                return _compact(_with_digests(copy.deepcopy(bundle), artifacts))
    return _compact(_made(model, artifacts))


def _bundles(text: str | None) -> list[dict[str, Any]]:
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return []
    if isinstance(value, dict) and isinstance(value.get("bundles"), list):
        value = value["bundles"]
    found = value if isinstance(value, list) else [value]
    return [one for one in found if isinstance(one, dict)]


def _is_models(bundle: dict[str, Any], model: Model, artifacts: Mapping[str, str]) -> bool:
    """Files alike are not enough where bundles may share a name: then the bundle's own name decides."""
    if not set(artifacts) <= set(_file_names(bundle)):
        return False
    name = bundle.get("short_name") or bundle.get("internalName")
    return model.bundle is None or name is None or name == model.bundle.short_name


def _file_names(node: Any) -> list[str]:
    if isinstance(node, dict):
        here = [node[key] for key in ("file_name", "fileName") if isinstance(node.get(key), str)]
        return here + [name for inner in node.values() for name in _file_names(inner)]
    return [name for inner in node for name in _file_names(inner)] if isinstance(node, list) else []


def _with_digests(node: Any, artifacts: Mapping[str, str]) -> Any:
    if isinstance(node, dict):
        name = str(node.get("file_name") or node.get("fileName"))
        for key in ("download_uri", "downloadUri"):
            if name in artifacts and isinstance(node.get(key), dict):
                node[key]["sha256"] = artifacts[name]
        if name in artifacts:
            node.pop("chunks", None)
        for inner in node.values():
            _with_digests(inner, artifacts)
    elif isinstance(node, list):
        for inner in node:
            _with_digests(inner, artifacts)
    return node


def _made(model: Model, artifacts: Mapping[str, str]) -> dict[str, Any]:
    short = model.bundle.short_name if model.bundle else model.name.upper()
    return {
        "index": 0,
        "internalName": short,
        "displayName": model.display_name,
        "runner": "tinygrad",
        "is20hz": True,
        "ref": model.bundle.ref if model.bundle and model.bundle.ref else short,
        "environment": model.bundle.environment if model.bundle and model.bundle.environment else "development",
        "generation": int(model.bundle.generation) if model.bundle and model.bundle.generation else 0,
        "minimumSelectorVersion": int(model.bundle.minimum_selector_version)
        if model.bundle and model.bundle.minimum_selector_version
        else 0,
        "overrides": [],
        "models": [
            {
                "type": role,
                "artifact": {"fileName": name, "downloadUri": {"uri": "", "sha256": artifacts[name]}},
            }
            for role, name in model.artifacts.items()
        ],
    }


def file_names(text: str | None) -> list[str] | None:
    """The files that a bundle's JSON names; None where no bundle is active or its text cannot be read."""
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return _file_names(value) if isinstance(value, dict) else None


def _compact(bundle: dict[str, Any]) -> str:
    return json.dumps(bundle, ensure_ascii=False)
