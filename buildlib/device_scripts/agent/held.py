"""Installs for a test: the device takes each back by its journal, unless it is told in time that it passed."""

from __future__ import annotations

from . import journal
from .main import Request
from .places import Places, as_record
from .processes import boot_id
from .recovery import alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _all(places: Places) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(journal, its step) of all installs that wait for their test."""
    found = []
    for entry in journal.everything(places):
        steps = [as_record(step, undo=str, name=str, sha256=str) for step in entry["steps"]]
        found += [(entry, step) for step in steps if step is not None and step["undo"] == "install"]
    return found


def names(places: Places) -> list[str]:
    """The files that are there for a test, and taken back without its verdict."""
    return sorted({step["name"] for _, step in _all(places)})


def holds(places: Places, name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(journal, its step) of the installs under this name that wait for their test."""
    return [(entry, step) for entry, step in _all(places) if step["name"] == name]


def begin(places: Places, name: str, sha256: str, former: str | None, seconds: float) -> str:
    """Before `name` is replaced: the journal by which `former` comes back after some seconds of this boot. Its id."""
    entry = journal.begin(places, f"install of {name}", hold=seconds)
    journal.add(places, entry, {"undo": "install", "name": name, "sha256": sha256, "former": former})
    return str(entry["id"])


def settle(places: Places, name: str, sha256: str, seconds: float | None) -> str | None:
    """These bytes are there already: what holds them is prolonged, or with no seconds let go. Its id if it holds."""
    for entry, step in holds(places, name):
        if step["sha256"] == sha256:
            if seconds is None:
                journal.finish(places, entry)
            else:
                journal.keep_open(places, {**entry, "boot": boot_id(places)}, seconds)
                return str(entry["id"])
    return None


def take_back(places: Places, name: str, sha256: str | None = None, *, other_than: str | None = None) -> None:
    """Ends the tests of these bytes under this name, or of all but some: what was there before comes back."""
    if not holds(places, name):
        return
    with alone(places):
        for entry, step in reversed(holds(places, name)):
            if step["sha256"] != other_than and sha256 in (None, step["sha256"]):
                journal.undo(places, entry)


def forget(places: Places, name: str) -> None:
    """Somebody has decided what stands under this name: no test is left that would."""
    for entry, _ in holds(places, name):
        journal.finish(places, entry)


def do_install_prolong(request: Request) -> dict[str, Any]:
    """A test of `artifacts` {name: sha256} begins: what holds them is prolonged by `seconds`. {journals: [ids]}."""
    artifacts, seconds = request.args["artifacts"], float(request.args["seconds"])
    found = [settle(request.places, str(name), str(sha256), seconds) for name, sha256 in sorted(artifacts.items())]
    return {"journals": [one for one in found if one is not None]}


def do_install_keep(request: Request) -> dict[str, Any]:
    """The test of `artifacts` {name: sha256} was passed, or somebody wants them all the same: they stay.

    What is held of other bytes under these names is another's test. {kept: [names]}.
    """
    kept = []
    for name, sha256 in sorted(request.args["artifacts"].items()):
        if any(step["sha256"] == sha256 for _, step in holds(request.places, name)):
            settle(request.places, name, sha256, None)
            kept.append(name)
    return {"kept": kept}
