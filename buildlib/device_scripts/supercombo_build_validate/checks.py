"""Checks of warp and policy: still moments, and what one change to them changes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from .findings import Message, found, gap, indifferent
from .pictures import Camera, projected
from .runtime import Runtime

MOST_GREY = 2


def look(runtime: Runtime, camera: Camera, **change: Any) -> Any:
    """What the model sees of one moment, (2, 6, H/2, W/2). change: one thing that differs from the plain moment."""
    import numpy as np

    turns = change.get("turns", (0, 0))
    scene, padding = change.get("scene", "grain"), change.get("padding", Camera.ROOM)
    frames = runtime.on_device([camera.picture(view, turns[view], padding, scene) for view in (0, 1)])
    matrices = [camera.matrix(view, change.get("sway", 0)) for view in (0, 1)]
    return np.array(runtime.warp(camera.name, matrices, frames).numpy())


def answer(runtime: Runtime, camera: Camera, turns: tuple[int, int] = (0, 0), **vector: Any) -> Any:
    """The last output of some still frames on empty queues.

    As many frames as it takes until the newest features are among those that the model sees.
    """
    runtime.reset()
    runtime.pack(**{"traffic_convention": (1, 0), "action_t": (0.2, 0.3), **vector})
    frames = runtime.on_device([camera.picture(view, turns[view]) for view in (0, 1)])
    matrices = [camera.matrix(view, 0) for view in (0, 1)]
    for _ in range(runtime.frame_skip + 1):
        out = runtime.policy(runtime.warp(camera.name, matrices, frames))
    return out


def check_warp(runtime: Runtime, camera: Camera) -> Iterator[Message]:
    """The right projection, same in same out, other in other out, each view in its own half, nothing of the padding."""
    import numpy as np

    where = f"the warp of {camera.name}"
    plain, again = look(runtime, camera), look(runtime, camera)
    if not np.array_equal(plain, again):
        yield found("not_repeatable", f"{where}: same in, other out", "the same bits", gap(plain, again))
        return  # what follows compares too
    bare = look(runtime, camera, padding=0)
    if not np.array_equal(plain, bare):
        yield found("reads_padding", f"{where}: the padding shows", "the picture alone", gap(plain, bare))
    for view, name in enumerate(("road", "wide")):
        turned = look(runtime, camera, turns=(9, 0) if view == 0 else (0, 9))
        if not np.array_equal(plain[1 - view], turned[1 - view]):
            got = gap(plain[1 - view], turned[1 - view])
            yield found("wrong_picture", f"{where}: the {name} frame shows in the other view", "only in its own", got)
        elif np.array_equal(plain[view], turned[view]):
            yield indifferent(f"{where}: another {name} frame")
    if np.array_equal(plain, look(runtime, camera, sway=11)):
        yield indifferent(f"{where}: another projection")
    smooth = look(runtime, camera, scene="smooth").astype(int)
    should = np.stack([projected(camera, view) for view in (0, 1)]).astype(int)
    off = float(np.quantile(np.abs(smooth - should), 0.99)) if smooth.shape == should.shape else math.inf
    if off > MOST_GREY:
        got = f"99% of pixels within {off:g}"
        yield found("wrong_picture", f"{where} is another projection", f"99% within {MOST_GREY} grey levels", got)


def check_policy(runtime: Runtime, camera: Camera) -> Iterator[Message]:
    """Same in same out, and whatever the runtime feeds counts."""
    import numpy as np

    plain, again = answer(runtime, camera), answer(runtime, camera)
    if not np.array_equal(plain, again, equal_nan=True):
        yield found("not_repeatable", "run_policy: same in, other out", "the same bits", gap(plain, again))
        return
    changes: dict[str, Message] = {
        "road picture": {"turns": (9, 0)},
        "wide picture": {"turns": (0, 9)},
        "desire": {"desire": np.eye(runtime.layout["desire"])[-1]},
        "prev_feat": {"prev_feat": np.random.default_rng(3).standard_normal(runtime.layout["prev_feat"])},
        "traffic_convention and action_t": {"traffic_convention": (0, 1), "action_t": (0.5, 0.1)},
    }
    for name, change in changes.items():
        if np.array_equal(plain, answer(runtime, camera, **change), equal_nan=True):
            yield indifferent(f"run_policy: another {name}")
