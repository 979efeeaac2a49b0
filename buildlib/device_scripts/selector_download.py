"""Has the device's own model selector download a bundle, as its user would, and says what came of it.

Runs on the device as a job that holds its lock. What it changes (the selection, the files) was written down by the
agent before and is put back by the agent after: this script only asks. It speaks through openpilot's own Params class;
where that cannot be used, through the parameters' files, replaced by rename under the parameters' lock.

The report is one JSON object, format 1: outcome ("downloaded" or why not, see `OUTCOMES`), through ("Params" or why the
files were used), refreshed (bool), listed (file name -> sha256 that the device's list has), asked (the parameter and
value that start the download), files (file name -> sha256 or null on the disk), active (file name -> {sha256, url} of
the active bundle), active_name (its short name), seconds (visible, downloaded). Exit status 0 for "downloaded" only.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


class Files:
    """Parameters as files: the fallback."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        status = directory.stat()
        self.owner = (status.st_uid, status.st_gid)

    def read(self, key: str) -> str | None:
        try:
            return (self.directory / key).read_bytes().decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    def knows(self, key: str) -> bool:
        # Files tell nothing about the keys that a manager reads.
        return True

    def write(self, key: str, text: str | None) -> None:
        path = self.directory / key
        lock = os.open(self.directory.parent / ".lock", os.O_RDWR | os.O_CREAT, 0o777)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if text is None:
                path.unlink(missing_ok=True)
                return
            temporary = path.with_name(f".tmp_{key}_{os.getpid()}")
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            try:
                os.write(handle, text.encode())
                os.fsync(handle)
            finally:
                os.close(handle)
            if os.geteuid() == 0:
                os.chown(temporary, *self.owner)
            temporary.replace(path)
        finally:
            os.close(lock)


class Params:
    """Parameters through openpilot's class, as the owner of their directory: the manager must be able to read them."""

    def __init__(self, directory: Path) -> None:
        from openpilot.common.params import Params as Own  # type: ignore[import-not-found]

        if directory.name != "d":
            raise RuntimeError("the parameters are not in a directory named d")
        self.files = Files(directory)
        self.own = Own(str(directory.parent))
        # Another prefix or another root would show parameters that nobody reads.
        if self.read("IsOnroad") not in (self.files.read("IsOnroad"), "false"):
            raise RuntimeError("the Params class reads another directory")

    def read(self, key: str) -> str | None:
        try:
            value = self.own.get(key)
        except Exception:  # noqa: BLE001 - UnknownKeyName is a class of this openpilot's own
            return self.files.read(key)
        if value is None:
            return None
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        return value if isinstance(value, str) else json.dumps(value)

    def knows(self, key: str) -> bool:
        try:
            self.own.check_key(key)
        except Exception:  # noqa: BLE001 - as above
            return False
        return True

    def write(self, key: str, text: str | None) -> None:
        with as_user(*self.files.owner):
            if text is None:
                self.own.remove(key)
                return
            # Newer openpilots give each parameter a type and take nothing else.
            for value in (text, *([int(text)] if text.isdigit() else [])):
                try:
                    self.own.put(key, value)
                except TypeError:
                    continue
                return
        raise TypeError(f"{key} does not take {text!r}")


@contextlib.contextmanager
def as_user(user: int, group: int) -> Iterator[None]:
    """The owner's rights for a while, where this runs as root."""
    if os.geteuid() != 0 or user == 0:
        yield
        return
    old = os.getegid()
    os.setegid(group)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(old)


def folded(key: str) -> str:
    """One spelling for `file_name` and `fileName`."""
    return "".join(letter for letter in key.lower() if letter.isalnum())


def named(node: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """(file name, {sha256, url}) of each artifact under a JSON value; chunks are not artifacts."""
    if isinstance(node, dict):
        fields = {folded(key): value for key, value in node.items()}
        download = fields.get("downloaduri") or fields.get("download")
        holder = {folded(key): value for key, value in download.items()} if isinstance(download, dict) else fields
        if isinstance(fields.get("filename"), str) and isinstance(holder.get("sha256"), str):
            url = holder.get("url") or holder.get("uri") or ""
            yield fields["filename"], {"sha256": holder["sha256"].lower(), "url": str(url)}
        for key, value in node.items():
            if folded(key) != "chunks":
                yield from named(value)
    elif isinstance(node, list):
        for item in node:
            yield from named(item)


def parsed(text: str | None) -> Any:
    """The value of a JSON parameter; None for one that is unset or damaged."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def bundles_of(text: str | None) -> list[dict[str, Any]]:
    """The bundles of the device's list: an object with `bundles`, or the array itself."""
    value = parsed(text)
    listed = value.get("bundles") if isinstance(value, dict) else value
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def short_name(bundle: dict[str, Any]) -> str | None:
    fields = {folded(key): value for key, value in bundle.items()}
    name = fields.get("shortname") or fields.get("internalname")
    return name if isinstance(name, str) else None


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
    """One download. wanted: file name -> sha256 as published. grace: seconds, see `arguments`."""

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


def open_store(directory: Path) -> tuple[Files | Params, str]:
    """Openpilot's own Params, or the files; and which it is."""
    try:
        return Params(directory), "Params"
    except Exception as error:  # noqa: BLE001 - whatever a device's Params class raises, the files are there
        return Files(directory), f"files ({type(error).__name__}: {error})"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--params", type=Path, required=True, help="directory of the parameters")
    parser.add_argument("--models", type=Path, required=True, help="directory of the model files")
    parser.add_argument("--artifact", nargs=2, action="append", required=True, metavar=("NAME", "SHA256"))
    parser.add_argument("--bundle", help="short name of the bundle")
    parser.add_argument("--visible", type=float, default=600, help="seconds until the list must have it")
    parser.add_argument("--download", type=float, default=600, help="seconds for the download")
    parser.add_argument("--grace", type=float, default=3, help="seconds from a manager's last word to what it leaves")
    parser.add_argument("--report", type=Path, required=True)
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    store, through = open_store(asked.params)
    print(f"parameters through {through}", flush=True)
    download = Download(store, asked.models, dict(asked.artifact), asked.bundle, asked.grace)
    download.report["through"] = through
    outcome = download.run(asked.visible, asked.download)
    download.report["outcome"] = outcome
    print(outcome, flush=True)
    temporary = asked.report.with_suffix(".tmp")
    temporary.write_text(json.dumps(download.report))
    temporary.replace(asked.report)
    return 0 if outcome == "downloaded" else 1


if __name__ == "__main__":
    sys.exit(main())
