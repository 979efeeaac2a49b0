"""The file in an artifact's place: looked at, replaced by rename, read back. The car is asked before each rename."""

from __future__ import annotations

import hashlib
import os

from .guard import require_offroad
from .hashes import BLOCK, Signature, signature
from .main import Request
from .places import Places, hidden, sync_dir, unlink
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def model_name(name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise Refusal("request", "not a bare file name", got=repr(name))
    return name


def look_at(request: Request, active: str) -> tuple[str | None, Signature | None]:
    """(sha256, signature) of the file in an artifact's place; (None, None) if there is none."""
    return request.hashes.file(active) if os.path.isfile(active) else (None, None)


def require_same(places: Places, active: str, seen: Signature | None) -> None:
    """Raises Refusal(input_changed) unless the place holds what was `seen` there: right before it is taken."""
    present = signature(os.stat(active)) if os.path.isfile(active) else None
    if present != seen:
        raise Refusal(
            "input_changed",
            "somebody else has put another file in this place meanwhile",
            where=places.device(active),
            remedy="nothing was changed; keep the model selector and other people off it, then run the step again",
        )


def replace_file(places: Places, source: str, active: str, sha256: str, seen: Signature | None) -> None:
    """Makes the active file a copy of `source`, if at the rename that still is `sha256`, the car still is off, and
    what is replaced still is what was `seen` there: anything newer is somebody else's, and nobody has a backup of it.
    """

    def allowed(copied: str) -> None:
        if copied != sha256:
            raise Refusal(
                "input_changed",
                "the file changed while it was copied to its place",
                where=places.device(source),
                expected=f"sha256 {sha256}",
                got=copied,
                remedy="nothing was installed; run the step again",
            )
        require_same(places, active, seen)
        require_offroad(places)

    try:
        like = os.stat(active)
    except FileNotFoundError:
        folder = os.stat(places.models)
        like = os.stat_result((0o644, 0, 0, 0, folder.st_uid, folder.st_gid, 0, 0, 0, 0))
    require_offroad(places)
    copy_file(source, active, like, allowed)


def copy_file(
    source: str, target: str, like: os.stat_result | None, allowed: Callable[[str], None] = lambda sha256: None
) -> None:
    """Copies under a temporary name in the target's folder, flushes, renames. Owner and mode as `like`.

    allowed: gets the sha256 of what was copied, and raises where it must not take its place: the copy may have taken
    seconds, in which the car was switched on or the source was written to.
    """
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, hidden(name, "installing"))
    unlink(temporary)
    digest = hashlib.sha256()
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with open(source, "rb", buffering=0) as file:
                while block := file.read(BLOCK):
                    digest.update(block)
                    view = memoryview(block)
                    while view:
                        view = view[os.write(handle, view) :]
            if like is not None:
                os.fchmod(handle, like.st_mode & 0o7777)
                if os.geteuid() == 0:
                    os.fchown(handle, like.st_uid, like.st_gid)
            os.fsync(handle)
        finally:
            os.close(handle)
        allowed(digest.hexdigest())
        os.replace(temporary, target)
    except BaseException:
        unlink(temporary)
        raise
    sync_dir(folder)


def read_back(request: Request, active: str, sha256: str) -> None:
    digest, _ = request.hashes.file(active)
    if digest != sha256:
        raise Refusal(
            "device",
            "the installed file does not read back as it was written",
            where=request.places.device(active),
            expected=f"sha256 {sha256}",
            got=digest,
            remedy="doit rollback MODEL, then check the device's disk",
        )


def remove_active(places: Places, active: str, seen: Signature | None) -> None:
    require_same(places, active, seen)
    require_offroad(places)
    unlink(active)
    sync_dir(places.models)
