"""`inspect_artifact`: a file, read statically, as an Inspection. Nothing in it is executed or imported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from buildlib.artifact.buffers import read_buffers
from buildlib.artifact.byte_source import ByteSource
from buildlib.artifact.captured import captured_of, describe_jit, program_targets
from buildlib.artifact.forms import find_pickle
from buildlib.artifact.nodes import (
    BUFFER,
    CAPTURED,
    JITS,
    PARAM_ARG,
    PROGRAM_INFO,
    PROGRAM_SPEC,
    count,
    device_name,
    field,
    made,
    printable,
)
from buildlib.artifact.pickle_machine import DEFAULT_LIMITS, Limits
from buildlib.artifact.pickle_reader import PickleReader
from buildlib.artifact.values import Dict, Made, Value
from buildlib.core.verdicts.inspection import CapturedJit, Form, Inspection, Metadata, camera_name

_MAX_KEYS: Final = 1000
_QUEUES: Final = ("img_q", "big_img_q", "feat_q", "desire_q")


def inspect_artifact(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Inspection:
    """Reads an artifact: a plain file, a chunk or chunk manifest, or the name that chunks were cut from.

    Raises ArtifactError (see `buildlib.artifact.refusals`) when the file is missing, truncated, damaged, no artifact,
    or does what a captured jit never does. A file with strange but readable content is an Inspection with oddities.
    """
    with ByteSource(path) as source:
        found = find_pickle(source)
        reader = PickleReader(source, found.start, found.end, buffers=found.buffers, limits=limits)
        root = reader.read()
        return _inspection(source, reader, root, out_of_band=found.out_of_band, trailing=found.end - reader.position)


def _inspection(
    source: ByteSource, reader: PickleReader, root: Value, *, out_of_band: bool, trailing: int
) -> Inspection:
    top = _Root(root)
    by_name: dict[str, list[Made]] = {}
    for one in reader.made:
        by_name.setdefault(one.maker.name, []).append(one)
    buffers = read_buffers(source, by_name.get(BUFFER, []))
    programs = [one for name in (PROGRAM_INFO, PROGRAM_SPEC) for one in by_name.get(name, [])]
    targets = {target for program in programs for target in program_targets(program)}
    targets.update(target for jit in top.jits for target in jit.targets)
    places = {place for jit in top.jits for place in jit.places}
    parameters = by_name.get(PARAM_ARG, [])
    places.update(place for one in parameters if (place := device_name(field(one, "device"))))
    oddities = [*top.oddities, *buffers.oddities]
    if len(by_name.get(CAPTURED, [])) > len(top.jits):
        oddities.append("holds captured jits where no runtime looks for them")
    return Inspection(
        name=source.name,
        size=source.size,
        chunks=len(source.paths),
        container="out-of-band" if out_of_band else "pickle",
        protocol=reader.protocol,
        form=top.form,
        root_keys=top.keys,
        jits=tuple(top.jits),
        devices=buffers.devices,
        targets=tuple(sorted(targets)),
        places=tuple(sorted(places)),
        kernels=sum(jit.kernels for jit in top.jits),
        programs=len(programs),
        cameras=tuple(sorted({jit.camera for jit in top.jits if jit.camera})),
        frame_bytes=dict(_frames(top.jits)),
        frame_skip=top.frame_skip,
        queue_depths=dict(_queues(top.jits)),
        metadata=top.metadata,
        globals=tuple(sorted(reader.globals)),
        weights=buffers.weights,
        payload=buffers.payload,
        zero_payload=buffers.zero_payload,
        trailing=trailing,
        oddities=tuple(oddities),
        opcodes=reader.opcodes,
    )


class _Root:
    """The root object, taken apart."""

    def __init__(self, root: Value) -> None:
        self.form: Form = "other"
        self.keys: tuple[str, ...] = ()
        self.jits: list[CapturedJit] = []
        self.oddities: list[str] = []
        self.frame_skip: int | None = None
        self.metadata: Metadata | None = None
        if made(root, *JITS):
            self.form = "bare"
            self._add("", None, root)
        elif type(root) is Dict:
            self._take(root)
        if self.form == "other":
            self.oddities.append("the pickle's root is no captured jit and holds none")

    def _take(self, root: Dict) -> None:
        entries = _mapping(root)
        self.keys = tuple(entries)
        if len(root.items) != len(entries):
            self.oddities.append("root keys that are given twice, or are neither names nor camera sizes")
        for key, (camera, value) in entries.items():
            self._add(key, camera, value)
            if type(value) is Dict and key != "metadata":
                for below, (inner, jit) in _mapping(value).items():
                    self._add(f"{key}/{below}", inner, jit)
        self.form = "dict" if self.jits else "other"
        self.frame_skip = count(entries.get("frame_skip", (None, None))[1])
        metadata = entries.get("metadata", (None, None))[1]
        self.metadata = _metadata(metadata) if type(metadata) is Dict else None

    def _add(self, key: str, camera: tuple[int, int] | None, value: Value) -> None:
        jit = made(value, *JITS)
        if jit is None:
            return
        captured = captured_of(jit)
        if captured is None:
            self.oddities.append(f"the jit {key!r} was never captured")
            return
        described, oddities = describe_jit(key, camera, captured)
        self.jits.append(described)
        self.oddities.extend(oddities)


def _mapping(value: Dict) -> dict[str, tuple[tuple[int, int] | None, Value]]:
    """A dict's items by printable key: names, and (width, height) as "1344x760". Later ones win, as in Python."""
    found: dict[str, tuple[tuple[int, int] | None, Value]] = {}
    for key, item in value.items[:_MAX_KEYS]:
        if type(key) is str:
            found[printable(key)] = (None, item)
        elif type(key) is tuple and len(key) == 2 and all(count(one) for one in key):
            found[camera_name(key)] = (key, item)
    return found


def _metadata(value: Dict) -> Metadata:
    nested = value.get("model")
    if value.get("output_slices") is None and type(nested) is Dict:
        value = nested
    checkpoint = value.get("model_checkpoint")
    slices, shapes = value.get("output_slices"), value.get("input_shapes")
    return Metadata(
        keys=tuple(_mapping(value)),
        output_slices=_slices(slices) if type(slices) is Dict else None,
        output_spans=_spans(slices) if type(slices) is Dict else None,
        input_shapes=_shapes(shapes) if type(shapes) is Dict else None,
        model_checkpoint=printable(checkpoint) if type(checkpoint) is str else None,
    )


def _spans(value: Dict) -> dict[str, tuple[int | None, int | None]] | None:
    """All slices as written; None where one is no slice of whole numbers with a step of one."""
    found = {}
    for name, (_, one) in _mapping(value).items():
        made_slice = made(one, "builtins.slice")
        args = made_slice.args if made_slice else ()
        if len(args) != 3 or any(type(edge) not in (int, type(None)) for edge in args) or args[2] not in (None, 1):
            return None
        found[name] = (args[0], args[1])
    return found if len(found) == len(value.items) else None


def _slices(value: Dict) -> dict[str, tuple[int, int]]:
    found = {}
    for name, (_, one) in _mapping(value).items():
        made_slice = made(one, "builtins.slice")
        if made_slice and len(made_slice.args) >= 2 and all(count(edge) is not None for edge in made_slice.args[:2]):
            found[name] = (made_slice.args[0], made_slice.args[1])
    return found


def _shapes(value: Dict) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(shape)
        for name, (_, shape) in _mapping(value).items()
        if type(shape) in (tuple, list) and len(shape) <= 16 and all(count(one) is not None for one in shape)
    }


def _frames(jits: list[CapturedJit]) -> Iterator[tuple[str, int]]:
    for jit in jits:
        frame = jit.input("frame")
        if jit.camera and frame and frame.shape and len(frame.shape) == 1:
            yield camera_name(jit.camera), frame.shape[0]


def _queues(jits: list[CapturedJit]) -> Iterator[tuple[str, int]]:
    for jit in jits:
        for name in _QUEUES:
            queue = jit.input(name)
            if queue and queue.shape:
                yield name, queue.shape[0]
