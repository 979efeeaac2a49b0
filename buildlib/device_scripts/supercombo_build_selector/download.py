"""One download by the device's selector, watched until the files and the active bundle are there."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

from .bundles import bundles_of, folded, named, parsed, short_name
from .parameters import Files, Params

ACTIVE = "ModelManager_ActiveBundle"
CACHE = "ModelManager_ModelsCache"
INDEX = "ModelManager_DownloadIndex"
REF = "ModelManager_DownloadRef"
SYNC = "ModelManager_LastSyncTime"
WRITABLE = (INDEX, REF, SYNC)
"""Never another one; never ModelManager_ClearCache, which deletes files that the active bundle does not name."""
OUTCOMES = ("downloaded", "silent", "not_visible", "no_index", "gave_up", "other_bytes", "not_selected", "too_slow")
ASK_AGAIN = 0.25
REFRESH_AGAIN = 10.0


def sha256_of(path: Path) -> str | None:
    """A file's sha256; None where there is none."""
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except FileNotFoundError:
        return None
    return digest.hexdigest()


class Download:
    """One download. wanted: file name -> sha256 as published. grace: seconds, see `command.parse`."""

    def __init__(
        self, store: Files | Params, models: Path, wanted: dict[str, str], bundle: str | None, grace: float
    ) -> None:
        self.store = store
        self.models = models
        self.wanted = wanted
        self.bundle = bundle
        self.grace = grace
        self.report: dict[str, Any] = {"format": 1, "listed": {}, "files": {}, "active": {}, "seconds": {}, "asked": {}}
        self.hashed: dict[str, tuple[tuple[int, int, int], str]] = {}

    def say(self, text: str) -> None:
        print(text, flush=True)

    def refresh(self, seconds: float) -> dict[str, Any] | None:
        """The published bundle, once the device's list has it.

        Only a list that came after the question counts: in an older one the bundle may have another index.
        """
        started = asked = time.monotonic()
        self.report["refreshed"] = False
        self.store.write(SYNC, "0")
        self.say("asked the model manager to refresh its list")
        while (now := time.monotonic()) - started <= seconds:
            if (self.store.read(SYNC) or "0").strip() != "0":
                self.report["refreshed"] = True
                bundle = self.listed()
                if bundle is not None:
                    self.report["seconds"]["visible"] = round(now - started, 2)
                    return bundle
                if now - asked > REFRESH_AGAIN:
                    asked = now
                    self.store.write(SYNC, "0")
                    self.say("not visible yet, asked for the list again")
            time.sleep(ASK_AGAIN)
        return None

    def listed(self) -> dict[str, Any] | None:
        """The bundle of the device's list that names all wanted files with their sha256."""
        self.report["listed"], found = {}, []
        for bundle in bundles_of(self.store.read(CACHE)):
            files = dict(named(bundle))
            if self.bundle is not None and short_name(bundle) not in (None, self.bundle):
                continue
            for name in self.wanted.keys() & files.keys():
                self.report["listed"].setdefault(name, files[name]["sha256"])
            if all(name in files and files[name]["sha256"] == sha for name, sha in self.wanted.items()):
                found.append(bundle)
        return found[0] if found else None

    def ask(self, bundle: dict[str, Any]) -> tuple[str, str] | None:
        """Writes the parameter that starts the download: the bundle's index, or its ref where that is what counts."""
        fields = {folded(key): value for key, value in bundle.items()}
        if fields.get("index") is not None and self.store.knows(INDEX):
            asked = (INDEX, str(fields["index"]))
        elif isinstance(fields.get("ref"), str) and self.store.knows(REF):
            asked = (REF, fields["ref"])
        else:
            return None
        self.report["asked"] = dict([asked])
        self.store.write(*asked)
        self.say(f"asked for {asked[0]} = {asked[1]}")
        return asked

    def on_disk(self, name: str) -> str | None:
        """A model file's sha256, read again only when it has changed; None while it is not there."""
        path = self.models / name
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        mark = (status.st_ino, status.st_size, status.st_mtime_ns)
        if name not in self.hashed or self.hashed[name][0] != mark:
            digest = sha256_of(path)
            if digest is None:
                return None
            self.hashed[name] = (mark, digest)
        return self.hashed[name][1]

    def look(self) -> tuple[bool, bool]:
        """(all files are there with their bytes, the active bundle is the published one)."""
        self.report["files"] = {name: self.on_disk(name) for name in self.wanted}
        bundle = parsed(self.store.read(ACTIVE))
        self.report["active"] = dict(named(bundle))
        self.report["active_name"] = short_name(bundle) if isinstance(bundle, dict) else None
        active = self.report["active"]
        right = all(self.report["files"][name] == sha for name, sha in self.wanted.items())
        return right, all(active.get(name, {}).get("sha256") == sha for name, sha in self.wanted.items())

    def wait(self, asked: tuple[str, str], seconds: float) -> str:
        """How the download ended."""
        started = time.monotonic()
        taken: float | None = None
        while True:
            right, selected = self.look()
            now = time.monotonic()
            if right and selected:
                self.report["seconds"]["downloaded"] = round(now - started, 2)
                return "downloaded"
            if self.store.read(asked[0]) is None:
                taken = now if taken is None else taken
                if now - taken > self.grace:
                    return self.judge(right)
            else:
                taken = None
            if now - started > seconds:
                return "not_selected" if right else "too_slow"
            time.sleep(ASK_AGAIN)

    def judge(self, right: bool) -> str:
        """Why a download that the manager calls over is not good."""
        if right:
            return "not_selected"
        return "other_bytes" if any(self.report["files"].values()) else "gave_up"

    def settle(self, asked: tuple[str, str], outcome: str) -> None:
        """Nothing of ours is under way when the agent puts things back."""
        deadline = time.monotonic() + self.grace
        while outcome == "downloaded" and self.store.read(asked[0]) is not None and time.monotonic() < deadline:
            time.sleep(ASK_AGAIN)
        if self.store.read(asked[0]) == asked[1]:
            self.store.write(asked[0], None)
            time.sleep(self.grace if outcome != "downloaded" else ASK_AGAIN)

    def run(self, visible: float, download: float) -> str:
        """The outcome, one of OUTCOMES."""
        bundle = self.refresh(visible)
        if bundle is None:
            return "not_visible" if self.report["refreshed"] else "silent"
        self.say(f"the list has {short_name(bundle) or 'the bundle'}")
        asked = self.ask(bundle)
        if asked is None:
            return "no_index"
        outcome = self.wait(asked, download)
        self.settle(asked, outcome)
        return outcome
