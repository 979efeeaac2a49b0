"""Buffers of an artifact: devices, sizes, and whether their content is there or only zeros.

A QCOM compile on the NULL device gives a pickle that is right in everything but its weights, which are all zero
(facts, section 2); a preallocated copy that broke off has zeros where content should be. Both show in a sample.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from buildlib.artifact.byte_source import ByteSource
from buildlib.artifact.nodes import count, device_name, dtype_bits, dtype_name, payload, printable
from buildlib.artifact.values import Made
from buildlib.core.verdicts.inspection import Buffers, Weight

_BLOCK: Final = 4096
_FIRST_LOOK: Final = 8
_SECOND_LOOK: Final = 64
_LISTED: Final = 64
_MAX_ODDITIES: Final = 5


class BufferReading(msgspec.Struct, frozen=True, kw_only=True):
    """Over all buffers: the fields of an Inspection that come from them."""

    devices: dict[str, Buffers]
    weights: tuple[Weight, ...]
    payload: int
    zero_payload: int
    oddities: tuple[str, ...]


def device_of(buffer: Made) -> str:
    """Device of a Buffer, "?" if it has none."""
    found = buffer.args[0] if buffer.args else None
    return device_name(found) or ("?" if type(found) is not str else printable(found, 30))


def payload_of(buffer: Made) -> tuple[int, int] | None:
    """(offset, length) of a Buffer's own content; None for a view or one without."""
    return payload(buffer.args[5]) if len(buffer.args) > 5 else None


def sum_devices(buffers: Iterable[Made]) -> dict[str, Buffers]:
    """Count and content bytes by device, sorted by name."""
    counts: dict[str, list[int]] = {}
    for one in buffers:
        entry = counts.setdefault(device_of(one), [0, 0])
        content = payload_of(one)
        entry[0] += 1
        entry[1] += content[1] if content else 0
    return {device: Buffers(count=entry[0], payload=entry[1]) for device, entry in sorted(counts.items())}


def read_buffers(source: ByteSource, buffers: list[Made]) -> BufferReading:
    """Looks at every buffer's content, a few blocks of each."""
    weights: list[Weight] = []
    oddities: list[str] = []
    total = zero = 0
    for one in buffers:
        oddity = _oddity(one)
        if oddity and len(oddities) < _MAX_ODDITIES and oddity not in oddities:
            oddities.append(oddity)
        content = payload_of(one)
        if content is None:
            continue
        offset, length = content
        total += length
        if offset < 0 or length < _BLOCK:
            continue
        zeros = _zero_share(source, offset, length)
        zero += round(zeros * length)
        weights.append(
            Weight(
                device=device_of(one),
                dtype=dtype_name(one.args[2]),
                elements=count(one.args[1]) or 0,
                payload=length,
                zeros=round(zeros, 4),
            )
        )
    weights.sort(key=lambda weight: -weight.payload)
    return BufferReading(
        devices=sum_devices(buffers),
        weights=tuple(weights[:_LISTED]),
        payload=total,
        zero_payload=zero,
        oddities=tuple(oddities),
    )


def _oddity(buffer: Made) -> str | None:
    if len(buffer.args) < 3 or buffer.state is not None or buffer.extra:
        return "a Buffer that tinygrad did not write"
    size, bits = count(buffer.args[1]), dtype_bits(buffer.args[2])
    if size is None:
        return "a Buffer of impossible size"
    content = payload_of(buffer)
    if content and bits and content[1] * 8 != size * bits:
        return f"a Buffer of {size * bits // 8:,} bytes with {content[1]:,} bytes of content"
    return None


def _zero_share(source: ByteSource, offset: int, length: int) -> float:
    share = _sample(source, offset, length, _FIRST_LOOK)
    return _sample(source, offset, length, _SECOND_LOOK) if share >= 0.5 else share


def _sample(source: ByteSource, offset: int, length: int, looks: int) -> float:
    looks = min(looks, length // _BLOCK)
    step = (length - _BLOCK) // max(1, looks - 1)
    zeros = sum(source.read_at(offset + look * step, _BLOCK).count(0) for look in range(looks))
    return zeros / (looks * _BLOCK)
