"""IQPilot's own harness and model process on a test device, small but real: a process that takes the artifact.

Wishes make them go wrong, each a key of `data/stand-in/iqpilot.json`:
  harness  fails_at_once, starts_no_model, ends_at (with status), kill_model_at, leaves_the_dead, ignores_the_end,
           stays_onroad, select_other_at (other: a bundle), reset_at, replace_at (replace: a name; and_back),
           crash_file_at (crash: text), comm_issue_at
  model    runs (another file's name), real (load with tinygrad), keeps_open, sends_nothing, raise_at (error: text),
           freeze_at, stops_pose_at (livePose is sent no more), others_file (another file, mapped beside its own)
Times are seconds after the start of either.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.support.scripts import lay_script

HERE = Path(__file__).parent / "iqpilot_tree"
IQMODELD = "data/openpilot/iqpilot/selfdrive/iqmodeld"


def add_iqpilot(root: Path) -> None:
    """Makes a device's root one that IQPilot's harness lies on."""
    tools = root / IQMODELD / "tools"
    tools.mkdir(parents=True, exist_ok=True)
    (root / "data/community/crashes").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(HERE / "force_onroad_iqmodeld_test.py", tools / "force_onroad_iqmodeld_test.py")
    shutil.copyfile(HERE / "daemon.py", root / IQMODELD / "daemon.py")
    lay_script("validate_supercombo", tools)


def wish(root: Path, **wishes: Any) -> None:
    """Asks harness and model process to go wrong; nothing asked, all goes well."""
    (root / "data/stand-in").mkdir(parents=True, exist_ok=True)
    (root / "data/stand-in/iqpilot.json").write_text(json.dumps(wishes))
