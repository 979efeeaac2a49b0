"""One git process: its environment, and its end when the run is cancelled or its time is over."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping

from buildlib.core.sources.git_reference import PROTOCOLS
from buildlib.ports.source import SourceContext

CONFIG = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.askPass": "",
    "protocol.ext.allow": "never",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "fetch.recurseSubmodules": "false",
    # Asking for one object by its name needs the second protocol.
    "protocol.version": "2",
    "http.lowSpeedLimit": "1",
    "http.lowSpeedTime": "60",
}


def environment(config: Mapping[str, str], **more: str) -> dict[str, str]:
    """The process's environment without a surrounding git's variables, and with ours and this configuration."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _KEPT}
    env.update(
        GIT_TERMINAL_PROMPT="0",
        GIT_ALLOW_PROTOCOL=":".join(PROTOCOLS),
        GIT_NO_REPLACE_OBJECTS="1",
        GIT_OPTIONAL_LOCKS="0",
        GIT_LFS_SKIP_SMUDGE="1",
        SSH_ASKPASS_REQUIRE="never",
        LC_ALL="C",
        GIT_CONFIG_COUNT=str(len(config)),
    )
    env.update(more)
    for index, (name, value) in enumerate(config.items()):
        env[f"GIT_CONFIG_KEY_{index}"], env[f"GIT_CONFIG_VALUE_{index}"] = name, value
    return env


_KEPT = {"GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_NO_VERIFY", "GIT_EXEC_PATH"}
_KEPT |= {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_PROXY_COMMAND"}


class Watch:
    """Ends a process group when the run is cancelled or its time is over."""

    def __init__(self, process: subprocess.Popen[bytes], context: SourceContext, limit: float) -> None:
        self.process = process
        self.context = context
        self.limit = limit
        self.expired = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self.process.poll() is None:
            self._end()

    def _watch(self) -> None:
        left = self.limit
        while not self._done.wait(0.2):
            left -= 0.2
            if left <= 0:
                self.expired = True
            if self.expired or (self.context.cancel is not None and self.context.cancel.is_set()):
                self._end()
                return

    def _end(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self.process.kill()
        self.process.wait()
