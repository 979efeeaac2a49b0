"""Parameters as the selector's script writes them where openpilot's own class is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from buildlib.device_scripts.supercombo_build_selector.parameters import Files

KEY = "ModelManager_DownloadRef"
# A limit on the size of files stands for a disk that fills up: the first write takes a part, the next one fails.
WRITE = """
import resource, sys
from pathlib import Path
from buildlib.device_scripts.supercombo_build_selector.parameters import Files
store = Files(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (2, 2))
try:
    store.write(sys.argv[2], "a value")
except OSError as error:
    print(error.strerror)
"""


def test_a_value_is_written_read_and_taken_away(tmp_path: Path) -> None:
    store = Files(folder(tmp_path))
    store.write(KEY, "a longer value")
    assert store.read(KEY) == "a longer value"
    store.write(KEY, None)
    assert store.read(KEY) is None


def test_it_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    params = folder(tmp_path)
    (params / KEY).write_text("before")
    done = subprocess.run((sys.executable, "-c", WRITE, str(params), KEY), capture_output=True, text=True, check=True)
    assert done.stdout == "File too large\n"
    assert (params / KEY).read_text() == "before"
    assert [path.name for path in params.iterdir()] == [KEY]


def folder(root: Path) -> Path:
    params = root / "params" / "d"
    params.mkdir(parents=True)
    return params
