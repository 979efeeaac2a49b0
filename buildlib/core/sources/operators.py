"""Which ONNX operators a tinygrad can run, read from its source without importing it.

tinygrad 0.11 to 0.14 build the table in one function, `get_onnx_ops`: capitalised functions inside it, dicts by opset
for operators with several versions, and names that are methods of Tensor. What cannot be read says nothing: then the
compile finds out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from buildlib.core.sources.model_form import Problem
from buildlib.core.sources.onnx_inspection import OnnxInspection

_ONNX_DOMAINS = {"": "ONNX", "ai.onnx": "ONNX"}


class SupportedOperators(msgspec.Struct, frozen=True, kw_only=True):
    """names: every operator. versions: of those that differ by opset, (domain's name in tinygrad, first opset).
    domains: domain -> its name in tinygrad; empty where the source has no such table. dtypes: of tensors; ditto."""

    names: frozenset[str]
    versions: Mapping[str, tuple[tuple[str, int], ...]] = {}
    domains: Mapping[str, str] = {}
    dtypes: frozenset[str] = frozenset()


def read_operators(source: str) -> SupportedOperators | None:
    """The operators in the text of tinygrad's `nn/onnx.py` (or `frontend/onnx.py`). None where they are not found."""
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    table = next((node for node in module.body if _is_function(node, "get_onnx_ops")), None)
    if not isinstance(table, ast.FunctionDef):
        return None
    names: set[str] = set()
    versions: dict[str, tuple[tuple[str, int], ...]] = {}
    for node in table.body:
        if isinstance(node, ast.FunctionDef) and node.name[0].isupper():
            names.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    names.add(target.id)
                    versions[target.id] = tuple(_opsets(node.value))
        elif isinstance(node, ast.Return) and node.value is not None:
            names.update(_method_names(node.value))
    if not names:
        return None
    enums = {node.name: dict(_members(node)) for node in module.body if isinstance(node, ast.ClassDef)}
    domains = {str(value): name for name, value in enums.get("Domain", {}).items() if isinstance(value, str)}
    dtypes = frozenset(name.lower() for name in enums.get("OnnxDataType", {}))
    return SupportedOperators(names=frozenset(names), versions=versions, domains=domains, dtypes=dtypes)


def missing_operators(inspection: OnnxInspection, supported: SupportedOperators) -> list[Problem]:
    """What of an ONNX that tinygrad cannot run, one problem for all operators and one for all dtypes."""
    lacking = [
        f"{operator} ({count} time{'s' if count > 1 else ''})"
        for operator, count in inspection.operators.items()
        if not _runs(operator, inspection.opsets, supported)
    ]
    problems = []
    if lacking:
        problems.append(
            Problem(
                severity="error",
                what=f"the target's tinygrad lacks the operator{'s' if len(lacking) > 1 else ''} {', '.join(lacking)}",
                remedy="export the model without, or compile with a newer tinygrad",
            )
        )
    dtypes = {*inspection.weight_dtypes, *(spec.dtype for spec in (*inspection.inputs, *inspection.outputs))}
    strange = sorted(dtype for dtype in dtypes if not _knows_dtype(dtype, supported))
    if strange:
        problems.append(
            Problem(
                severity="error",
                what=f"the target's tinygrad does not know the dtype{'s' if len(strange) > 1 else ''} "
                + ", ".join(strange),
                remedy="export the model as float16",
            )
        )
    return problems


def _runs(operator: str, opsets: Mapping[str, int], supported: SupportedOperators) -> bool:
    domain, _, name = operator.rpartition(":")
    if name not in supported.names:
        return False
    known = {**_ONNX_DOMAINS, **supported.domains}
    if supported.domains and domain not in known:
        return False
    asked = opsets.get(domain, 1)
    eligible = supported.versions.get(name)
    return eligible is None or any(where == known.get(domain) and first <= asked for where, first in eligible)


def _knows_dtype(dtype: str, supported: SupportedOperators) -> bool:
    name = {"float32": "float", "float64": "double"}.get(dtype, dtype)
    # Sequences and optionals have no dtype of their own.
    return not supported.dtypes or name in supported.dtypes or dtype in ("sequence", "optional", "undefined")


def _is_function(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _opsets(table: ast.Dict) -> Iterator[tuple[str, int]]:
    """`{OpSetId(Domain.ONNX, 13): ...}` -> ("ONNX", 13)."""
    for key in table.keys:
        if isinstance(key, ast.Call) and len(key.args) == 2:
            domain, version = key.args
            if isinstance(domain, ast.Attribute) and isinstance(version, ast.Constant):
                yield domain.attr, int(version.value) if isinstance(version.value, int) else 1


def _method_names(value: ast.expr) -> Iterator[str]:
    """`{op: getattr(Tensor, op.lower()) for op in ("Neg", ...)}` within the returned table -> "Neg", ..."""
    for node in ast.walk(value):
        if isinstance(node, ast.comprehension) and isinstance(node.iter, ast.Tuple | ast.List | ast.Set):
            for item in node.iter.elts:
                if isinstance(item, ast.Constant) and isinstance(item.value, str):
                    yield item.value
        elif isinstance(node, ast.Dict):
            for key in node.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value


def _members(enum: ast.ClassDef) -> Iterator[tuple[str, object]]:
    for node in enum.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value.value
