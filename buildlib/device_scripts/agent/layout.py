"""Makes a directory look like a device's root: for the embedded device `local` and for tests."""

from __future__ import annotations

import os

from .main import Request
from .places import make_dirs, write_atomic
from .wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def do_layout(request: Request) -> dict[str, Any]:
    """Makes what is missing under paths.root, and nothing else. A device without a root prefix is a real one: refused.

    Raises Refusal(rail).
    """
    places = request.places
    if not places.root:
        raise Refusal("rail", "a real device is not laid out by the build", expected="a device with paths.root")
    made = []
    for path in (places.models, places.sources, places.params, *places.caches):
        if not os.path.isdir(path):
            make_dirs(path)
            made.append(places.device(path))
    places.state_dir()
    onroad = os.path.join(places.params, "IsOnroad")
    if not os.path.exists(onroad):
        write_atomic(onroad, b"0", 0o644)
        made.append(places.device(onroad))
    return {"made": made}
