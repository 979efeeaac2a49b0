"""Removes what writers that were killed left beside the state files that they wrote: nobody else ever would."""

from __future__ import annotations

import contextlib
import os
import re

from . import jobs
from .places import Places, unlink
from .processes import start_time

_TORN = re.compile(r".+\.([1-9][0-9]{0,9})\.tmp")
"""`places.write_atomic`: the name, the writer's pid."""


def sweep(places: Places) -> None:
    """Removes the temporary files of dead writers from the state directory, its journals and its jobs.

    One whose pid a later process has stays until that one is gone too. What cannot be removed stays: it harms nothing.
    """
    own = (job.dir for job in jobs.every(places))
    for folder in (places.state, os.path.join(places.state, "journal"), *own):
        for name in _names(folder):
            torn = _TORN.fullmatch(name)
            if torn and start_time(int(torn[1])) is None:
                with contextlib.suppress(OSError):
                    unlink(os.path.join(folder, name))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
