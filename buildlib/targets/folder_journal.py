"""What a publication into a folder replaces, kept beside a journal until the next one of the same model."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from buildlib.core.manifests.manifest import Entry
from buildlib.core.manifests.manifest_change import Change, is_made, undo
from buildlib.errors import BuildError, TargetError
from buildlib.store import files
from buildlib.targets.folder_files import mode_of
from buildlib.targets.inside import check_inside


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """One publication. paths: what it writes or removes; kept: those that were there before, kept as `NUMBER`.

    number names the directory of the kept files. wrote: sha256 of what it puts at a path, "" where it removes it:
    other bytes than these and the kept ones are somebody else's. manifests: those of the paths that change touches.
    takes_back: number of the publication that this one undoes.
    """

    model: str
    number: int
    paths: tuple[str, ...]
    kept: tuple[str, ...]
    change: Change
    wrote: Mapping[str, str] = field(default_factory=dict)
    manifests: tuple[str, ...] = ()
    takes_back: int | None = None


def begin(
    state: Path,
    root: Path,
    model: str,
    wrote: Mapping[str, str],
    change: Change,
    *,
    manifests: tuple[str, ...] = (),
    takes_back: int | None = None,
) -> Replaced:
    """Keeps what is about to be replaced, by copy, and opens the journal. wrote: in the order of writing."""
    paths = tuple(wrote)
    number = 1 + max((int(path.name) for path in state.glob("[0-9]*") if re.fullmatch("[0-9]+", path.name)), default=0)
    where = state / str(number)
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    kept = tuple(path for path in paths if (root / path).is_file())
    for place, path in enumerate(kept):
        files.copy(root / path, where / str(place), mode=mode_of(root / path))
    replaced = Replaced(
        model=model,
        number=number,
        paths=paths,
        kept=kept,
        change=change,
        wrote=wrote,
        manifests=manifests,
        takes_back=takes_back,
    )
    files.write(state / "journal.json", msgspec.json.encode(replaced))
    return replaced


def commit(state: Path, replaced: Replaced) -> None:
    """The publication stands: it becomes the model's last one, and what the one before kept is dropped."""
    before = last(state, replaced.model)
    files.write(_last(state, replaced.model), msgspec.json.encode(replaced))
    _taken_back(state, replaced.model).unlink(missing_ok=True)
    _close(state)
    if before is not None:
        shutil.rmtree(state / str(before.number), ignore_errors=True)


def forget(state: Path, took: Replaced, last_one: Replaced, entries: tuple[Entry, ...]) -> None:
    """The last publication was taken back: there is none now. entries: what stands again, remembered as our doing."""
    stands = {entry.file_name: entry.sha256 for entry in entries}
    files.write(_taken_back(state, last_one.model), msgspec.json.encode(stands))
    _last(state, last_one.model).unlink(missing_ok=True)
    _close(state)
    for one in (took, last_one):
        shutil.rmtree(state / str(one.number), ignore_errors=True)


def was_taken_back(state: Path, model: str, entry: Entry) -> bool:
    """True where an entry is what `doit unpublish` put back."""
    try:
        stands = msgspec.json.decode(_taken_back(state, model).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return stands.get(entry.file_name) == entry.sha256


def put_back(state: Path, root: Path, replaced: Replaced) -> tuple[str, ...]:
    """Undoes a publication that did not end: files and manifests as they were. Paths left to somebody's newer work."""
    # Manifests come last in paths and go back first, so that none names what is gone.
    left = []
    for path in reversed(replaced.paths):
        if _is_foreign(state, root, replaced, path):
            if not _undo_in_place(state, root, replaced, path):
                left.append(path)
        else:
            restore_files(state, root, replaced, [path])
    _close(state)
    shutil.rmtree(state / str(replaced.number), ignore_errors=True)
    return tuple(left)


def _is_foreign(state: Path, root: Path, replaced: Replaced, path: str) -> bool:
    """True where neither what we wrote nor what we kept lies there: somebody has worked on it meanwhile."""
    if path not in replaced.wrote:
        return False
    here = _sha256(root / path)
    return here not in (replaced.wrote[path], _sha256(_kept(state, replaced, path)) if path in replaced.kept else "")


def _undo_in_place(state: Path, root: Path, replaced: Replaced, path: str) -> bool:
    """Takes our change out of a manifest that holds somebody else's changes too; False where it cannot be."""
    before = kept(state, replaced, path)
    if path not in replaced.manifests or before is None:
        return False
    try:
        here = (root / path).read_bytes()
        if not is_made(replaced.change, here, path):
            return False
        after = undo(replaced.change, before, path).apply(here, path)
    except (OSError, BuildError):
        return False
    if after != here:
        files.write(root / path, after, mode=mode_of(root / path))
    return True


def _sha256(path: Path) -> str:
    return files.hash_file(path) if path.is_file() else ""


def _kept(state: Path, replaced: Replaced, path: str) -> Path:
    return state / str(replaced.number) / str(replaced.kept.index(path))


def restore_files(state: Path, root: Path, replaced: Replaced, paths: list[str]) -> None:
    """Brings some of a publication's paths back to what stood before it."""
    for path in paths:
        if path in replaced.kept:
            files.copy(_kept(state, replaced, path), root / path, mode=mode_of(_kept(state, replaced, path)))
        else:
            (root / path).unlink(missing_ok=True)
        for leftover in (root / path).parent.glob(".*.tmp"):
            if leftover.name.startswith(f".{Path(path).name[:80]}."):
                leftover.unlink(missing_ok=True)


def restoring(state: Path, replaced: Replaced, paths: list[str]) -> dict[str, str]:
    """What `restore_files` will leave: path -> sha256, "" where it removes one."""
    return {path: _sha256(_kept(state, replaced, path)) if path in replaced.kept else "" for path in paths}


def mend(state: Path, root: Path) -> tuple[str, ...]:
    """Undoes what a killed run left half done. Paths left to somebody's newer work."""
    left: tuple[str, ...] = ()
    if (open_one := _read(state / "journal.json")) is not None:
        settled = last(state, open_one.model)
        if settled.number == open_one.number if settled else open_one.takes_back is not None:
            _close(state)  # it had ended but for closing the journal
        else:
            left = put_back(state, root, open_one)
    for torn in state.glob(".*.tmp"):
        torn.unlink(missing_ok=True)
    known = {str(one.number) for path in state.glob("last-*.json") if (one := _read(path)) is not None}
    for orphan in state.glob("[0-9]*"):
        if orphan.name not in known:
            shutil.rmtree(orphan, ignore_errors=True)
    return left


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


def _taken_back(state: Path, model: str) -> Path:
    return state / f"unpublished-{model}.json"


def _close(state: Path) -> None:
    (state / "journal.json").unlink(missing_ok=True)
    files.sync_directory(state)


def _read(path: Path) -> Replaced | None:
    """A journal. Others can write to the share: it may name nothing outside it."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Replaced)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _unreadable(path, str(error)) from error
    if "/" in found.model or set(found.kept) - set(found.paths):
        raise _unreadable(path, "it was not written by this tool")
    check_inside(path.parent.parent, found.paths)
    check_inside(path.parent, [f"{found.number}/{place}" for place in range(len(found.kept))])
    return found


def _unreadable(path: Path, why: str) -> TargetError:
    return TargetError(
        "the folder's journal cannot be read",
        where=str(path),
        got=why,
        remedy="compare manifests and artifacts by hand, then remove the file",
    )
