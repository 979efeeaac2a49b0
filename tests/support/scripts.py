"""The scripts that run on devices, laid out in a directory as a device gets them."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from buildlib.steps.scripts import FOLDER, Script, compile_script, harness_script, iqpilot_script, selector_script

SCRIPTS: dict[str, Script] = {
    script[0].path.stem: script
    for script in (
        compile_script("supercombo"),
        compile_script("vision_policy"),
        harness_script("supercombo"),
        harness_script("vision_policy"),
        iqpilot_script(),
        selector_script(),
    )
}
"""By the name of what is started."""


def lay_script(name: str, folder: Path) -> Path:
    """Copies all files of a script into a folder; where that lies which is started."""
    for file in SCRIPTS[name]:
        (folder / file.name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.path, folder / file.name)
    return folder / SCRIPTS[name][0].name


def content_of(*names: str) -> bytes:
    """What all files of scripts hold, for the keys of what they made."""
    return b"".join(hashlib.sha256(file.path.read_bytes()).digest() for name in names for file in SCRIPTS[name])


def in_checkout(name: str) -> Path:
    """A script as it is run by hand from the checkout."""
    return FOLDER / f"{name}.py"
