"""openpilot's Params class as newer versions have it: keys are declared, each has a type, other types are refused.

Copied to a test device as `openpilot/common/params.py`. Each write is noted in `PARAMS/../class-writes`.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from typing import Any

KEYS: dict[str, Any] = {
    "IsOnroad": bool,
    "ModelManager_ActiveBundle": dict,
    "ModelManager_ClearCache": bool,
    "ModelManager_DownloadIndex": int,
    "ModelManager_LastSyncTime": int,
    "ModelManager_ModelsCache": dict,
}


class UnknownKeyName(Exception):
    pass


class Params:
    def __init__(self, d: str = "") -> None:
        self.root = d or os.environ.get("PARAMS_ROOT", "/data/params")

    def check_key(self, key: str) -> bytes:
        if key not in KEYS:
            raise UnknownKeyName(key)
        return key.encode()

    def get(self, key: str) -> Any:
        self.check_key(key)
        try:
            with open(os.path.join(self.root, "d", key)) as file:
                text = file.read()
        except FileNotFoundError:
            return None
        kind = KEYS[key]
        if kind is bool:
            return text == "1"
        return int(text) if kind is int else json.loads(text)

    def put(self, key: str, value: Any) -> None:
        self.check_key(key)
        if type(value) is not KEYS[key]:
            raise TypeError(f"{key} takes {KEYS[key].__name__}, not {type(value).__name__}")
        self._locked(key, json.dumps(value) if isinstance(value, dict) else str(int(value)))

    def remove(self, key: str) -> None:
        self.check_key(key)
        self._locked(key, None)

    def _locked(self, key: str, text: str | None) -> None:
        with open(os.path.join(self.root, ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = os.path.join(self.root, "d", key)
            if text is None:
                if os.path.exists(path):
                    os.unlink(path)
            else:
                handle, temporary = tempfile.mkstemp(dir=os.path.join(self.root, "d"), prefix=".tmp_value_")
                os.write(handle, text.encode())
                os.close(handle)
                os.replace(temporary, path)
            with open(os.path.join(self.root, "class-writes"), "a") as notes:
                notes.write(f"{key}={text}\n")
