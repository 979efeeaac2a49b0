"""A model manager for test devices: a process that does what the field's managers do with the selector's parameters.

`start_manager(root, manifest_url)` runs it from the device's own tree. It polls parameter files, fetches the manifest
over HTTP when LastSyncTime is 0, fills ModelsCache, downloads what DownloadIndex or DownloadRef asks for under a
temporary name, deletes what has another sha256 than the manifest says, sets ActiveBundle, and deletes an active file
that is not the active bundle's. `wish(root, ...)` makes it go wrong, also while it runs:

never_refreshes, empty_list, other_bytes (a download's bytes are changed on the way), keeps_anything (no hash is
checked), never_downloads, forgets_to_select, holds_on (its
last download is made active again whatever is selected), slow (seconds
before a download begins), by_ref (DownloadIndex means nothing to it), other_url (in the active bundle).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PLACE = "data/openpilot/iqpilot/models/manager.py"
WISHES = "data/stand-in/manager.json"
PARAMS_CLASS = "data/openpilot/openpilot/common/params.py"
PREFIX = "ModelManager_"
TICK = 0.05


@contextlib.contextmanager
def model_manager(root: Path, manifest: str) -> Iterator[subprocess.Popen[bytes]]:
    """A running manager of the device in `root`, ended with the block."""
    process = start_manager(root, manifest)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def start_manager(root: Path, manifest: str) -> subprocess.Popen[bytes]:
    """Starts it. manifest: URL of the selector's JSON."""
    place = root / PLACE
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(__file__, place)
    (root / "data/media/0/models").mkdir(parents=True, exist_ok=True)
    with (root / "data/manager.log").open("ab") as log:
        return subprocess.Popen([sys.executable, str(place), str(root), manifest], stdout=log, stderr=log)


def add_params_class(root: Path) -> None:
    """Puts a class with the interface of a newer openpilot's Params where Python finds it on the device."""
    place = root / PARAMS_CLASS
    place.parent.mkdir(parents=True, exist_ok=True)
    for package in (place.parent, place.parent.parent):
        (package / "__init__.py").touch()
    shutil.copyfile(Path(__file__).with_name("openpilot_params.py"), place)


def wish(root: Path, **wishes: Any) -> None:
    """Asks the manager to go wrong; nothing asked, all goes well."""
    path = root / WISHES
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(wishes))
    temporary.replace(path)


def log_of(root: Path) -> list[str]:
    """What it has done so far."""
    path = root / "data/manager.log"
    return path.read_text().splitlines() if path.exists() else []


class Manager:
    """The process."""

    def __init__(self, root: Path, manifest: str) -> None:
        self.root = root
        self.manifest = manifest
        self.params = root / "data/params/d"
        self.models = root / "data/media/0/models"
        self.chosen: str | None = None

    def wishes(self) -> dict[str, Any]:
        try:
            value: dict[str, Any] = json.loads((self.root / WISHES).read_text())
        except (OSError, ValueError):
            return {}
        return value

    def get(self, name: str) -> str | None:
        try:
            return (self.params / (PREFIX + name)).read_text()
        except FileNotFoundError:
            return None

    def put(self, name: str, text: str) -> None:
        temporary = self.params / f".manager-{name}"
        temporary.write_text(text)
        temporary.replace(self.params / (PREFIX + name))

    def remove(self, name: str) -> None:
        (self.params / (PREFIX + name)).unlink(missing_ok=True)

    def tick(self) -> None:
        wishes = self.wishes()
        if (self.get("LastSyncTime") or "0") == "0" and not wishes.get("never_refreshes"):
            with contextlib.suppress(OSError):
                self.refresh(wishes)
        key = "DownloadRef" if wishes.get("by_ref") else "DownloadIndex"
        asked = self.get(key)
        if asked is not None and not wishes.get("never_downloads"):
            try:
                self.download(key, asked, wishes)
            except (OSError, ValueError) as error:
                self.say(f"gave up: {error}")
            finally:
                self.remove(key)
        if wishes.get("holds_on") and self.chosen and self.get("ActiveBundle") != self.chosen:
            self.put("ActiveBundle", self.chosen)
        self.check_active(wishes)

    def refresh(self, wishes: dict[str, Any]) -> None:
        text = '{"bundles": []}'
        if not wishes.get("empty_list"):
            with urllib.request.urlopen(self.manifest, timeout=5) as answer:
                text = answer.read().decode()
        self.put("ModelsCache", text)
        self.put("LastSyncTime", str(time.monotonic_ns()))
        self.say("refreshed")

    def download(self, key: str, asked: str, wishes: dict[str, Any]) -> None:
        field = "ref" if key == "DownloadRef" else "index"
        bundles = json.loads(self.get("ModelsCache") or '{"bundles": []}')["bundles"]
        bundle = next(one for one in bundles if str(one[field]) == asked)
        until = time.monotonic() + wishes.get("slow", 0)
        while time.monotonic() < until:
            if self.get(key) is None:
                raise ValueError("cancelled")
            time.sleep(TICK)
        for model in bundle["models"]:
            self.fetch(model["artifact"], wishes)
        if not wishes.get("forgets_to_select"):
            self.chosen = json.dumps(as_active(bundle, wishes.get("other_url")))
            self.put("ActiveBundle", self.chosen)
            self.say(f"selected {bundle['short_name']}")

    def fetch(self, artifact: dict[str, Any], wishes: dict[str, Any]) -> None:
        name, source = artifact["file_name"], artifact["download_uri"]
        path = self.models / name
        if path.exists() and sha256(path.read_bytes()) == source["sha256"]:
            self.say(f"has {name}")
            return
        with urllib.request.urlopen(source["url"], timeout=20) as answer:
            data = answer.read()
        if wishes.get("other_bytes"):
            data = data[:-1] + bytes([data[-1] ^ 1])
        temporary = path.with_name(f"{name}.download")
        temporary.write_bytes(data)
        temporary.replace(path)
        if sha256(data) != source["sha256"] and not wishes.get("keeps_anything"):
            path.unlink()
            raise ValueError(f"{name} has another sha256, deleted")
        self.say(f"downloaded {name}")

    def check_active(self, wishes: dict[str, Any]) -> None:
        try:
            models = json.loads(self.get("ActiveBundle") or "{}").get("models", [])
        except ValueError:
            return
        for model in models:
            artifact = model["artifact"]
            # A bundle may be in the manifest's spelling or in the device's.
            path = self.models / (artifact.get("fileName") or artifact["file_name"])
            source = artifact.get("downloadUri") or artifact["download_uri"]
            if wishes.get("keeps_anything") or not path.exists():
                continue
            with contextlib.suppress(FileNotFoundError):
                if sha256(path.read_bytes()) != source["sha256"]:
                    path.unlink()
                    self.say(f"deleted {path.name}: not the active bundle's")

    def say(self, text: str) -> None:
        print(text, flush=True)


def as_active(bundle: dict[str, Any], other_url: str | None = None) -> dict[str, Any]:
    """A manifest's bundle as a device spells the active one."""
    return {
        "index": bundle["index"],
        "ref": bundle["ref"],
        "internalName": bundle["short_name"],
        "displayName": bundle["display_name"],
        "models": [
            {
                "type": model["type"],
                "artifact": {
                    "fileName": model["artifact"]["file_name"],
                    "downloadUri": {
                        "uri": other_url or model["artifact"]["download_uri"]["url"],
                        "sha256": model["artifact"]["download_uri"]["sha256"],
                    },
                },
            }
            for model in bundle["models"]
        ],
    }


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main() -> None:
    manager = Manager(Path(sys.argv[1]), sys.argv[2])
    # Ends with the test that forgot it: its device is gone then.
    while os.path.isdir(manager.params):
        manager.tick()
        time.sleep(TICK)


if __name__ == "__main__":
    main()
