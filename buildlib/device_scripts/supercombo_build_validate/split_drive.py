"""The drive of a split model: rehearsal, frames at the rate, rehearsal."""

from __future__ import annotations

import argparse
import time
from typing import Any

from .findings import Tell, found, gap, indifferent
from .frame import check_output, frame_message
from .split_parts import Part, check_part, parts_of


def use(root: Any, options: argparse.Namespace, tell: Tell) -> None:
    """Rehearsal, drive, rehearsal: the answers after the drive must be those from before it."""
    import numpy as np

    parts = parts_of(root, options, tell)
    started = time.monotonic()
    before = {}
    for part in parts:
        for finding in check_part(part):
            tell({"finding": finding})
        before[part.role] = part.call(part.made(1))
    tell({"facts": {"rehearsal_s": round(time.monotonic() - started, 3)}})
    for part in parts:
        part.phase = "run"
    print(f"rehearsed {', '.join(before)}; {options.frames} frames to go", flush=True)
    drive(parts, options, tell)
    for part in parts:
        after = part.call(part.made(1))
        if not np.array_equal(before[part.role], after, equal_nan=True):
            what, got = f"{part.role} answers otherwise after the run", gap(before[part.role], after)
            tell({"finding": found("not_repeatable", what, "the same bits", got)})


def drive(parts: list[Part], options: argparse.Namespace, tell: Tell) -> None:
    """Feeds the frames at the rate; a frame is one call of every part."""
    import numpy as np

    name = "+".join(part.role for part in parts)
    scenes = {one: value for part in parts for one, value in part.made(2).items()}
    images = [one for one, value in scenes.items() if value.ndim == 4]
    vision = parts[0] if parts[0].slices and parts[0].role == "vision" else None
    if vision:
        scenes["features_buffer"] = np.zeros(next(part for part in parts[1:]).inputs["features_buffer"][0])
    period, last, still = 1 / options.rate, None, 0
    due = time.perf_counter()
    for number in range(options.frames):
        values = dict(scenes)
        for image in images:
            values[image] = np.roll(scenes[image], (2 * number, 6 * number), axis=(2, 3))
        if vision is None and not images:
            values = parts[0].made(number + 3)
        time.sleep(max(0.0, due - time.perf_counter()))
        started = time.perf_counter()
        due = max(due, started) + period
        outputs = []
        for part in parts:
            outputs.append(part.call(values))
            if part is vision:
                state = outputs[0][part.slices["hidden_state"]]
                values["features_buffer"] = np.concatenate(
                    [values["features_buffer"][:, 1:], state.reshape(1, 1, -1)], axis=1
                )
                scenes["features_buffer"] = values["features_buffer"]
        tell(frame_message(number, name, started))
        for part, out in zip(parts, outputs, strict=True):
            for finding in check_output(out, part.slices):
                tell({"finding": {**finding, "what": f"{part.role}: {finding['what']}", "frame": number}})
        same = last is not None and all(map(np.array_equal, outputs, last))
        still = still + 1 if same else 0
        if still == 2:
            tell({"finding": indifferent("the outputs stand still: another frame") | {"frame": number}})
        last = outputs
