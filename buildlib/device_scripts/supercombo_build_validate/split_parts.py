"""The parts of a split model's artifact, as a runtime calls them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from .findings import Failure, Message, Tell, found, gap, indifferent, said

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
        yield found("not_repeatable", f"{part.role}: same in, other out", "the same bits", gap(plain, again))
        return
    for name in part.inputs:
        if np.array_equal(plain, part.call(part.made(1, name)), equal_nan=True):
            yield indifferent(f"{part.role}: another {name}")
