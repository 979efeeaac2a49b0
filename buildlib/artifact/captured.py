"""Captured jits, as values of `core.verdicts.inspection`, out of what the pickle reader made."""

from __future__ import annotations

from typing import Final

from buildlib.artifact.buffers import sum_devices
from buildlib.artifact.elements import input_elements
from buildlib.artifact.nodes import (
    BUFFER,
    BUFFER_COPY,
    CALL_INFO,
    CAPTURED,
    EXEC_ITEM,
    PARAM_ARG,
    PROGRAM_INFO,
    PROGRAM_SPEC,
    RUNNER,
    UOP,
    argument,
    children,
    device_leaf,
    device_name,
    dtype_name,
    field,
    made,
    printable,
    sources,
    view_shape,
)
from buildlib.artifact.values import Dict, Made, Value
from buildlib.core.verdicts.inspection import CapturedJit, JitInput

_MAX_INPUTS: Final = 100


def captured_of(jit: Made) -> Made | None:
    """The CapturedJit inside a pickled TinyJit."""
    return made(jit.args[1], CAPTURED) if len(jit.args) > 1 else None


def describe_jit(key: str, camera: tuple[int, int] | None, captured: Made) -> tuple[CapturedJit, tuple[str, ...]]:
    """A captured jit and what is odd about it.

    captured: made of (ret, linear, names, info) since 0.13, (ret, cache, replaced inputs, views, names, info) before.
    """
    oddities: list[str] = []
    names = captured.args[-2] if len(captured.args) >= 4 else None
    info = captured.args[-1] if len(captured.args) >= 4 else None
    if type(names) is not list or type(info) is not list or len(info) > _MAX_INPUTS or len(names) > len(info):
        oddities.append(f"the captured jit {key!r} does not say what it expects")
        names, info = [], []
    elif any(type(name) not in (str, int) for name in names):
        oddities.append(f"the captured jit {key!r} expects arguments without names")
        names, info = [], []
    if captured.state is not None or captured.extra:
        oddities.append(f"the captured jit {key!r} was not written by tinygrad")
    shown = tuple(printable(name) if type(name) is str else name for name in names)
    elements = input_elements(captured)
    inputs = []
    for index, one in enumerate(info):
        if type(one) is not tuple or len(one) != 4:
            oddities.append(f"the captured jit {key!r} describes an input in an unknown way")
            continue
        inputs.append(
            JitInput(
                name=shown[index] if index < len(shown) else f"#{index}",
                shape=view_shape(one[0], elements.get(index)),
                dtype=dtype_name(one[2]),
                device=device_name(one[3]) or "?",
            )
        )
    walk = _Walk(captured)
    described = CapturedJit(
        key=key,
        camera=camera,
        names=shown,
        inputs=tuple(inputs),
        devices=sum_devices(walk.buffers),
        targets=tuple(sorted(walk.targets)),
        places=tuple(sorted(walk.places)),
        kernels=walk.kernels,
        programs=len(walk.programs),
    )
    return described, tuple(oddities)


def program_targets(program: Made) -> set[str]:
    """Target of a ProgramInfo (0.14) or ProgramSpec (0.12): "QCOM:IR3:a630", "CPU"."""
    target = field(program, "target")
    parts = [field(target, part) for part in ("device", "renderer", "arch")]
    if device_name(parts[0]):
        return {":".join(printable(part, 40) for part in parts if type(part) is str and part)}
    named = device_name(field(program, "device"))
    return {named} if named else set()


class _Walk:
    """What one captured jit reaches, without going into its kernels."""

    def __init__(self, captured: Made) -> None:
        self.buffers: list[Made] = []
        self.programs: set[int] = set()
        self.targets: set[str] = set()
        self.places: set[str] = set()
        self.kernels = 0
        seen: set[int] = set()
        todo: list[Value] = list(captured.args[:2])
        while todo:
            value = todo.pop()
            if type(value) not in (Made, tuple, list, Dict) or id(value) in seen:
                continue
            seen.add(id(value))
            todo.extend(self._visit(value) if type(value) is Made else children(value))

    def _visit(self, value: Made) -> list[Value]:
        """Counts one object; what to look at below it."""
        name = value.maker.name
        if name == UOP:
            return self._visit_uop(value)
        if name == BUFFER:
            self.buffers.append(value)
        elif name == EXEC_ITEM:
            program = field(value, "prg")
            self.kernels += made(program, RUNNER) is not None
            return [field(value, "bufs"), program]
        elif name == PROGRAM_SPEC:
            self.programs.add(id(value))
            self.targets |= program_targets(value)
            return []
        elif name == BUFFER_COPY:
            place = device_name(field(value, "device"))
            self.places |= {place} if place else set()
        return list(children(value))

    def _visit_uop(self, uop: Made) -> list[Value]:
        arg, below = argument(uop), sources(uop)
        program = made(arg, PROGRAM_INFO)
        if program:
            self.programs.add(id(program))
            self.targets |= program_targets(program) or {leaf for one in below if (leaf := device_leaf(one))}
            return []
        place = device_name(field(arg, "device")) if made(arg, PARAM_ARG) else device_name(arg)
        if place:
            self.places.add(place)
        if made(arg, CALL_INFO) and below and made(argument(below[0]), PROGRAM_INFO):
            self.kernels += 1
        return [*below, arg, *uop.args[6:]]
