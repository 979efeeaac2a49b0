"""What a static reading of an artifact found: values that `artifact` fills in and `verdict` judges.

Nothing here says whether the artifact is good. Everything converts to JSON with `msgspec.to_builtins`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Form = Literal["dict", "bare", "other"]
"""dict: a dict root with captured jits in it; bare: one captured jit (`compile3`); other: no artifact that we know."""

Container = Literal["pickle", "out-of-band"]


class JitInput(msgspec.Struct, frozen=True, kw_only=True):
    """One argument of a captured jit, as tinygrad will compare it at every call.

    name: the keyword, or the position of a positional argument.
    shape: None where the capture does not tell (a view that is no reshape).
    dtype: numpy's name ("uint8", "float32"), or tinygrad's own where numpy has none.
    device: "QCOM", "CPU", or "NPY" for an array that stays in the host's memory.
    """

    name: str | int
    shape: tuple[int, ...] | None
    dtype: str
    device: str


class Buffers(msgspec.Struct, frozen=True, kw_only=True):
    """Buffers of one device: how many, and the bytes of content that the file carries for them."""

    count: int
    payload: int


class CapturedJit(msgspec.Struct, frozen=True, kw_only=True):
    """One captured jit.

    key: where it lies in the root: "run_policy", "1344x760", "run_model/1344x760"; "" for a bare one.
    camera: (width, height) in pixels when the key is one.
    names: `expected_names`, in the file's order; a bare list of what `inputs` are called.
    devices: by device of its buffers. targets: of its compiled programs ("QCOM", "CPU:x86_64,native").
    places: devices that its copies and parameters name ("QCOM", "NPY").
    kernels: calls of a program in one run. programs: different ones among them.
    """

    key: str
    camera: tuple[int, int] | None
    names: tuple[str | int, ...]
    inputs: tuple[JitInput, ...]
    devices: Mapping[str, Buffers]
    targets: tuple[str, ...]
    places: tuple[str, ...] = ()
    kernels: int
    programs: int

    def input(self, name: str) -> JitInput | None:
        """The input of that name, or None."""
        return next((one for one in self.inputs if one.name == name), None)


class Weight(msgspec.Struct, frozen=True, kw_only=True):
    """A buffer with content. zeros: share of zero bytes, 0.0 to 1.0, in the sample that was read."""

    device: str
    dtype: str
    elements: int
    payload: int
    zeros: float


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """The safe part of `metadata`; keys are all of its keys.

    output_slices: name -> (start, stop), of those that are plain. output_spans: all of them as written, where a
    negative bound counts from the end and None is the end. input_shapes: name -> shape.
    """

    keys: tuple[str, ...] = ()
    output_slices: Mapping[str, tuple[int, int]] | None = None
    output_spans: Mapping[str, tuple[int | None, int | None]] | None = None
    input_shapes: Mapping[str, tuple[int, ...]] | None = None
    model_checkpoint: str | None = None


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """All that could be read without running anything.

    size: bytes of the whole file (all chunks together). chunks: number of files, 1 if it is not chunked.
    root_keys: keys of a dict root, cameras as "1344x760".
    queue_depths: first dimension of each queue ("img_q": 5).
    places: devices that copies and parameters name, those inside kernels too.
    frame_bytes: bytes of the frame that a camera's jit expects, by "1344x760".
    weights: buffers with at least 4 KiB of content, the largest first, 64 at most.
    payload: bytes of content of all buffers. zero_payload: estimate of how many of them are zero.
    trailing: bytes behind the end of the pickle.
    oddities: what a genuine capture never has, in words.
    """

    name: str
    size: int
    chunks: int
    container: Container
    protocol: int
    form: Form
    root_keys: tuple[str, ...]
    jits: tuple[CapturedJit, ...]
    devices: Mapping[str, Buffers]
    targets: tuple[str, ...]
    places: tuple[str, ...] = ()
    kernels: int
    programs: int
    cameras: tuple[tuple[int, int], ...]
    frame_bytes: Mapping[str, int]
    frame_skip: int | None
    queue_depths: Mapping[str, int]
    metadata: Metadata | None
    globals: tuple[str, ...]
    weights: tuple[Weight, ...]
    payload: int
    zero_payload: int
    trailing: int
    oddities: tuple[str, ...]
    opcodes: int

    def jit(self, key: str) -> CapturedJit | None:
        """The captured jit under that key, or None."""
        return next((one for one in self.jits if one.key == key), None)


def camera_name(camera: tuple[int, int]) -> str:
    """(1344, 760) -> "1344x760"."""
    return f"{camera[0]}x{camera[1]}"
