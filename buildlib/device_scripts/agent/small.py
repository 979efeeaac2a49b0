"""Small texts onto the device, all of them in one request: a round trip for each would cost more than their bytes."""

from __future__ import annotations

import contextlib
import hashlib
import os

from . import ledger
from .guard import require_offroad
from .jobs import require_unused
from .main import Request
from .places import hidden, make_dirs, own_like_folder, require_space, sync_dir, unlink, write_flushed
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def do_receive_small(request: Request) -> dict[str, Any]:
    """Writes `files`, [{path, sha256, text}], and renames them when all are whole. {written: how many}.

    Raises Refusal: transfer (other bytes than were said), rail, device, busy (a running job reads one of them).
    """
    require_offroad(request.places)
    whole = [_checked(request, file) for file in request.args["files"]]
    for path, real, content in whole:
        require_unused(request.places, path, request.owner)
        make_dirs(os.path.dirname(real))
        require_space(os.path.dirname(real), len(content))
    with contextlib.ExitStack() as stack:
        parts = {real: _part(real, content) for _, real, content in whole}
        for _, real, content in whole:
            stack.callback(unlink, parts[real])
            write_flushed(parts[real], content, 0o644)
            os.chmod(parts[real], 0o644)
            own_like_folder(parts[real])
        require_offroad(request.places)
        for real, part in parts.items():
            os.replace(part, real)
    for folder in sorted({os.path.dirname(real) for _, real, _ in whole}):
        sync_dir(folder)
    ledger.add(
        request.places,
        {path: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()} for path, _, content in whole},
    )
    return {"written": len(whole)}


def _checked(request: Request, file: dict[str, Any]) -> tuple[str, str, bytes]:
    """(device path, real path, content)."""
    path, content = str(file["path"]), str(file["text"]).encode()
    digest = hashlib.sha256(content).hexdigest()
    if digest != file["sha256"]:
        expected = f"sha256 {file['sha256']}"
        raise Refusal("transfer", "the file arrived changed", where=path, expected=expected, got=f"sha256 {digest}")
    return path, request.places.owned(path), content


def _part(real: str, content: bytes) -> str:
    """Two that send the same at once do not share it."""
    folder, name = os.path.split(real)
    return os.path.join(folder, hidden(name, f"{hashlib.sha256(content).hexdigest()[:16]}.{os.getpid()}.part"))
