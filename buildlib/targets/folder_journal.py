"""What a publication into a folder replaces, kept beside a journal until the next one of the same model."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from buildlib.core.manifests.manifest_change import Change
from buildlib.errors import TargetError
from buildlib.store import files


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """One publication. paths: what it writes or removes; kept: those that were there before, kept as `NUMBER`.

    number names the directory of the kept files.
    """

    model: str
    number: int
    paths: tuple[str, ...]
    kept: tuple[str, ...]
    change: Change


def begin(state: Path, root: Path, model: str, paths: tuple[str, ...], change: Change) -> Replaced:
    """Keeps what is about to be replaced, by copy, and opens the journal."""
    number = 1 + max((int(path.name) for path in state.glob("[0-9]*") if path.name.isdigit()), default=0)
    where = state / str(number)
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    kept = tuple(path for path in paths if (root / path).is_file())
    for place, path in enumerate(kept):
        files.copy(root / path, where / str(place))
    replaced = Replaced(model=model, number=number, paths=paths, kept=kept, change=change)
    files.write(state / "journal.json", msgspec.json.encode(replaced))
    return replaced


def commit(state: Path, replaced: Replaced) -> None:
    """The publication stands: it becomes the model's last one, and what the one before kept is dropped."""
    before = last(state, replaced.model)
    files.write(_last(state, replaced.model), msgspec.json.encode(replaced))
    _close(state)
    if before is not None:
        shutil.rmtree(state / str(before.number), ignore_errors=True)


def forget(state: Path, undo: Replaced, taken_back: Replaced) -> None:
    """The last publication was taken back: there is none now."""
    _last(state, taken_back.model).unlink(missing_ok=True)
    _close(state)
    for one in (undo, taken_back):
        shutil.rmtree(state / str(one.number), ignore_errors=True)


def put_back(state: Path, root: Path, replaced: Replaced) -> None:
    """Undoes a publication that did not end: files and manifests as they were."""
    # Manifests come last in paths and go back first, so that none names what is gone.
    restore_files(state, root, replaced, list(reversed(replaced.paths)))
    _close(state)
    shutil.rmtree(state / str(replaced.number), ignore_errors=True)


def restore_files(state: Path, root: Path, replaced: Replaced, paths: list[str]) -> None:
    """Brings some of a publication's paths back to what stood before it."""
    for path in paths:
        if path in replaced.kept:
            files.copy(state / str(replaced.number) / str(replaced.kept.index(path)), root / path)
        else:
            (root / path).unlink(missing_ok=True)
        for leftover in (root / path).parent.glob(".*.tmp"):
            if leftover.name.startswith(f".{Path(path).name[:80]}."):
                leftover.unlink(missing_ok=True)


def mend(state: Path, root: Path) -> None:
    """Undoes what a killed run left half done."""
    if (open_one := _read(state / "journal.json")) is not None:
        settled = last(state, open_one.model)
        if settled is not None and settled.number == open_one.number:
            _close(state)  # it had ended but for closing the journal
        else:
            put_back(state, root, open_one)
    known = {str(one.number) for path in state.glob("last-*.json") if (one := _read(path)) is not None}
    for orphan in state.glob("[0-9]*"):
        if orphan.name not in known:
            shutil.rmtree(orphan, ignore_errors=True)


def last(state: Path, model: str) -> Replaced | None:
    """The model's last publication, as far as this folder remembers."""
    return _read(_last(state, model))


def kept(state: Path, replaced: Replaced, path: str) -> bytes | None:
    """A small file as it was before a publication."""
    if path not in replaced.kept:
        return None
    with contextlib.suppress(OSError):
        return (state / str(replaced.number) / str(replaced.kept.index(path))).read_bytes()
    return None


def _last(state: Path, model: str) -> Path:
    return state / f"last-{model}.json"


def _close(state: Path) -> None:
    (state / "journal.json").unlink(missing_ok=True)
    files.sync_directory(state)


def _read(path: Path) -> Replaced | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Replaced)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise TargetError(
            "the folder's journal cannot be read",
            where=str(path),
            got=str(error),
            remedy="compare manifests and artifacts by hand, then remove the file",
        ) from error
