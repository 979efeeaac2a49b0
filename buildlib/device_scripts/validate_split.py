#!/usr/bin/env python3
"""Drives an installed artifact of a split model, and says whether it is good enough to drive with.

    validate_split.py ARTIFACT (--seconds N | --frames N) [--rate 20] --report PATH [--require-realtime]
                      [--sha256 HEX] [--role ROLE]

The watchdog, the report and the exit statuses are those of `validate_supercombo.py`; both lie in one directory under
these names. An artifact of all parts (a dict of jits by role, with metadata) is driven as a runtime does: the vision
sees two pictures that move, its hidden state goes into the features that the policies remember. One part alone (a bare
jit; --role says which) is fed with inputs of its own that change with every frame. Warps are not part of these.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from buildlib.device_scripts import validate_supercombo as shared
    from buildlib.device_scripts.validate_supercombo import Failure, Message, Tell, found, said
else:
    import validate_supercombo as shared
    from validate_supercombo import Failure, Message, Tell, found, said

ROLES = ("vision", "policy", "on_policy", "off_policy")
ROLE_SETS = (("vision", "policy"), ("vision", "on_policy", "off_policy"))
VISION_INPUTS = ("img", "big_img")
POLICY_INPUTS = ("desire_pulse", "features_buffer", "traffic_convention")
NUMPY = {"uchar": "uint8", "uint8": "uint8", "float": "float32", "float32": "float32"}


class Part:
    """One captured jit and what it is called with: inputs {name: (shape, numpy dtype, device)}."""

    def __init__(self, role: str, jit: Any, slices: dict[str, slice], tell: Tell) -> None:
        self.role, self.jit, self.slices, self.tell = role, jit, slices, tell
        self.phase = "load"
        try:
            captured = jit.captured
            self.inputs = {
                str(name): (
                    tuple(int(size) for size in view.shape),
                    NUMPY[str(kind).removeprefix("dtypes.")],
                    str(device),
                )
                for name, (view, _, kind, device) in zip(
                    captured.expected_names, captured.expected_input_info, strict=True
                )
            }
        except Exception as error:
            raise Failure("contract", f"{role} is no captured jit of named inputs", "one", said(error)) from error
        wanted = VISION_INPUTS if role == "vision" else POLICY_INPUTS
        if missing := [name for name in wanted if name not in self.inputs]:
            got = f"no {', '.join(missing)} among {', '.join(self.inputs)}"
            raise Failure("contract", f"{role} is called with other inputs", ", ".join(wanted), got)

    def call(self, values: Message) -> Any:
        """The flat output, float32. values: arrays by input; what is not the part's own is not passed."""
        import numpy as np
        from tinygrad import Tensor

        self.tell({"doing": self.role, "phase": self.phase})
        try:
            tensors = {
                name: Tensor(np.ascontiguousarray(values[name], dtype=kind), device=device).realize()
                for name, (_, kind, device) in self.inputs.items()
            }
            return np.array(self.jit(**tensors).numpy()).reshape(-1)
        except Exception as error:
            raise Failure("policy_failed", f"{self.role} fails", "an output for each frame", said(error)) from error

    def made(self, seed: int, changed: str | None = None) -> Message:
        """Inputs made from a seed; `changed` from another one."""
        import numpy as np

        values = {}
        for name, (shape, kind, _) in self.inputs.items():
            random = np.random.default_rng([seed, int(name == changed), *name.encode()])
            values[name] = random.integers(0, 256, shape) if kind == "uint8" else random.standard_normal(shape)
        return values


def parts_of(root: Any, options: argparse.Namespace, tell: Tell) -> list[Part]:
    """The parts of an artifact, or a Failure that says what the runtime misses."""
    if not isinstance(root, dict):
        if options.role is None:
            raise Failure("contract", "one part alone", "--role to say which", type(root).__name__)
        return [Part(options.role, root, {}, tell)]
    roles = [role for role in ROLES if role in root]
    metadata = root.get("metadata")
    if tuple(roles) not in ROLE_SETS:
        sets = " or ".join(", ".join(one) for one in ROLE_SETS)
        raise Failure("contract", "parts are missing", sets, ", ".join(map(str, root)) or "none")
    if not isinstance(metadata, dict) or any("output_slices" not in (metadata.get(role) or {}) for role in roles):
        raise Failure("contract", "metadata is incomplete", "output_slices of each role", str(metadata)[:200])
    if "hidden_state" not in metadata["vision"]["output_slices"]:
        raise Failure("contract", "metadata lacks what the runtime reads", "hidden_state of the vision", "none")
    return [Part(role, root[role], metadata[role]["output_slices"], tell) for role in roles]


def check_part(part: Part) -> Iterator[Message]:
    """Same in same out, and every input counts."""
    import numpy as np

    plain, again = part.call(part.made(1)), part.call(part.made(1))
    if not np.array_equal(plain, again, equal_nan=True):
        yield found("not_repeatable", f"{part.role}: same in, other out", "the same bits", shared.gap(plain, again))
        return
    for name in part.inputs:
        if np.array_equal(plain, part.call(part.made(1, name)), equal_nan=True):
            yield shared.indifferent(f"{part.role}: another {name}")


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
        tell(shared.frame_message(number, name, started))
        for part, out in zip(parts, outputs, strict=True):
            for finding in shared.check_output(out, part.slices):
                tell({"finding": {**finding, "what": f"{part.role}: {finding['what']}", "frame": number}})
        same = last is not None and all(map(np.array_equal, outputs, last))
        still = still + 1 if same else 0
        if still == 2:
            tell({"finding": shared.indifferent("the outputs stand still: another frame") | {"frame": number}})
        last = outputs


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
            what, got = f"{part.role} answers otherwise after the run", shared.gap(before[part.role], after)
            tell({"finding": found("not_repeatable", what, "the same bits", got)})


if __name__ == "__main__":
    sys.exit(shared.main(sys.argv[1:], shared.parse(sys.argv[1:], __doc__, ROLES), use, __file__))
