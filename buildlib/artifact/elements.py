"""How many elements the buffer behind each input of a captured jit has.

An input that is a whole one-dimensional buffer (a camera frame) is captured without a shape of its own from 0.13 on;
its size stands at the parameters that the captured calls take.
"""

from __future__ import annotations

from buildlib.artifact.nodes import (
    EXEC_ITEM,
    PARAM_ARG,
    UOP,
    argument,
    children,
    count,
    device_leaf,
    dimensions,
    dtype_name,
    field,
    made,
    operation,
    sources,
)
from buildlib.artifact.values import Dict, Made, Value


def input_elements(captured: Made) -> dict[int, int]:
    """Input position -> elements, as far as the capture tells."""
    linear = captured.args[1] if len(captured.args) > 1 else None
    uop = made(linear, UOP)
    if uop:
        return _from_calls(uop)
    if type(linear) is list and len(captured.args) > 2 and type(captured.args[2]) is Dict:
        return _from_items(linear, captured.args[2])
    return {}


def _from_calls(linear: Made) -> dict[int, int]:
    """From 0.13: the parameters among the arguments of the captured calls."""
    found: list[tuple[Value, int, int]] = []
    buffers: set[Value] = set()
    seen: set[int] = set()
    todo: list[Value] = [one for call in sources(linear) if made(call, UOP) for one in sources(call)[1:]]
    while todo:
        uop = todo.pop()
        if made(uop, UOP) is None or id(uop) in seen:
            continue
        seen.add(id(uop))
        if len(uop.args) > 6:
            # In 0.14 a buffer's number looks like a parameter's; only a buffer can have a Buffer tied to it.
            buffers.add(operation(uop))
            continue
        parameter = _parameter(uop)
        if parameter:
            found.append((operation(uop), *parameter))
        else:
            todo.extend(sources(uop))
    return {slot: size for kind, slot, size in found if kind not in buffers}


def _parameter(uop: Made) -> tuple[int, int] | None:
    """(slot, elements) of a parameter."""
    arg, below = argument(uop), sources(uop)
    if made(arg, PARAM_ARG):
        slot = count(field(arg, "slot"))
    elif (
        len(below) == 2 and device_leaf(below[1]) and type(below[0]) is Made and dtype_name(below[0].args[1]) != "void"
    ):
        slot = count(arg)
    else:
        return None
    shape = dimensions(below[0]) if below else None
    if slot is None or shape is None:
        return None
    elements = 1
    for one in shape:
        elements = min(elements * one, 2**63)
    return slot, elements


def _from_items(items: list[Value], replaced: Dict) -> dict[int, int]:
    """0.12: (item, buffer number) -> input position; the item's syntax tree has a pointer for each buffer number."""
    wanted: dict[int, list[tuple[int, int]]] = {}
    for key, position in replaced.items:
        if type(key) is tuple and len(key) == 2 and all(count(one) is not None for one in (*key, position)):
            wanted.setdefault(key[0], []).append((key[1], position))
    found: dict[int, int] = {}
    for number, pairs in wanted.items():
        item = made(items[number], EXEC_ITEM) if number < len(items) else None
        if item is None or all(position in found for _, position in pairs):
            continue
        sizes = _pointers(field(item, "ast"))
        found.update({position: sizes[buffer] for buffer, position in pairs if buffer in sizes})
    return found


def _pointers(tree: Value) -> dict[int, int]:
    """Buffer number -> elements, from the pointer types of a kernel's leaves."""
    sizes: dict[int, int] = {}
    seen: set[int] = set()
    todo = [tree]
    while todo:
        uop = todo.pop()
        if made(uop, UOP) is None or id(uop) in seen:
            continue
        seen.add(id(uop))
        below = sources(uop)
        pointer = made(uop.args[1], "tinygrad.dtype.PtrDType")
        number = count(argument(uop))
        if pointer and not below and number is not None and len(pointer.args) > 9:
            size = count(pointer.args[9])
            if size is not None:
                sizes[number] = size
        todo.extend(children(below))
    return sizes
