"""The compile flags that a device's SConscript says, of every function that says some for larch64."""

from __future__ import annotations

import ast
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FLAG = re.compile(r"[A-Z][A-Z0-9_]*=[^\s]+")
ARCH = "larch64"


def larch64_flags(source: str) -> dict[str, list[str]]:
    """{function name: ["DEV=QCOM", ...]}; flags assigned outside functions stand under the variable's name.

    Read from the syntax tree, nothing is run. A text that is no Python gives nothing.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {}
    found: dict[str, list[str]] = {}
    outer = _constants(tree.body, {})
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names = _constants(node.body, outer)
            texts = [text for value in _returned(node.body, True) for text in _texts(value, names)]
            flags = [flag for text in texts for flag in FLAG.findall(text)]
            if flags and _mentions(node):
                found[node.name] = flags
    for statement, asked in _reached(tree.body):
        for name in _assigned(statement):
            flags = [flag for text in _texts(outer[name], outer) for flag in FLAG.findall(text)]
            if flags and (_mentions(statement) or (asked and any(flag.startswith("DEV=") for flag in flags))):
                found[name] = flags
    return found


def _mentions(node: ast.AST) -> bool:
    return any(isinstance(child, ast.Constant) and child.value == ARCH for child in ast.walk(node))


def _reached(body: list[ast.stmt], asked: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    """The statements that run on larch64, in order, and whether one stands in a branch of its own for that.

    Loops and blocks are looked into, functions are not; of a branch that asks for something else nothing is known.
    """
    for statement in body:
        yield statement, asked
        if isinstance(statement, ast.If):
            holds = _holds(statement.test)
            if holds is not None:
                yield from _reached(statement.body if holds else statement.orelse, True)
        elif isinstance(statement, (ast.For, ast.While, ast.With, ast.Try)):
            yield from _reached(statement.body, asked)


def _assigned(statement: ast.stmt) -> list[str]:
    """Names that a statement gives a value, or more of one."""
    if isinstance(statement, ast.AugAssign):
        return [statement.target.id] if isinstance(statement.target, ast.Name) else []
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _constants(body: list[ast.stmt], outer: dict[str, ast.expr]) -> dict[str, ast.expr]:
    names = dict(outer)
    for statement, _ in _reached(body):
        for name in _assigned(statement):
            if isinstance(statement, ast.AugAssign):
                names[name] = ast.BinOp(names.get(name, ast.Constant("")), ast.Add(), statement.value)
            elif isinstance(statement, ast.Assign):
                names[name] = statement.value
    return names


def _holds(test: ast.expr) -> bool | None:
    """What a test says on larch64: True, False, or None if it does not ask for the architecture."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _holds(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        sides = [test.left, test.comparators[0]]
        operator = test.ops[0]
        if isinstance(operator, (ast.Eq, ast.NotEq)):
            values = [side.value for side in sides if isinstance(side, ast.Constant)]
            if values and isinstance(values[0], str) and len(values) == 1 and _asks_arch(sides):
                return (values[0] == ARCH) == isinstance(operator, ast.Eq)
        if isinstance(operator, (ast.In, ast.NotIn)) and isinstance(sides[1], (ast.Tuple, ast.List, ast.Set)):
            values = [item.value for item in sides[1].elts if isinstance(item, ast.Constant)]
            if _asks_arch(sides):
                return (ARCH in values) == isinstance(operator, ast.In)
    return None


def _asks_arch(sides: list[ast.expr]) -> bool:
    return any("arch" in ast.dump(side).lower() for side in sides if not isinstance(side, ast.Constant))


def _returned(body: list[ast.stmt], _top: bool) -> list[ast.expr]:
    """Values that a function's statements can return on larch64; stops at the first that must return."""
    values: list[ast.expr] = []
    for statement in body:
        if isinstance(statement, ast.Return):
            if statement.value is not None:
                values.append(statement.value)
            break
        if isinstance(statement, ast.If):
            holds = _holds(statement.test)
            if holds is not False:
                values += _returned(statement.body, False)
            if holds is True:
                if any(isinstance(inner, ast.Return) for inner in statement.body):
                    break
            else:
                values += _returned(statement.orelse, False)
    return values


def _texts(value: ast.expr, names: dict[str, ast.expr], depth: int = 0) -> list[str]:
    """The texts that an expression stands for on larch64."""
    if depth > 8:
        return []
    if isinstance(value, ast.Constant):
        return [value.value] if isinstance(value.value, str) else []
    if isinstance(value, ast.JoinedStr):
        return ["".join(text for part in value.values for text in _texts(part, names, depth + 1))]
    if isinstance(value, ast.Name):
        inner = {name: known for name, known in names.items() if name != value.id}
        return _texts(names[value.id], inner, depth + 1) if value.id in names else []
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        left, right = _texts(value.left, names, depth + 1), _texts(value.right, names, depth + 1)
        return [a + b for a in left or [""] for b in right or [""]]
    if isinstance(value, (ast.Tuple, ast.List)):
        return [text for item in value.elts for text in _texts(item, names, depth + 1)]
    if isinstance(value, ast.IfExp):
        holds = _holds(value.test)
        chosen = [value.body] if holds is True else [value.orelse] if holds is False else [value.body, value.orelse]
        return [text for item in chosen for text in _texts(item, names, depth + 1)]
    if isinstance(value, ast.Dict):
        return _from_dict(value, names, depth)
    if isinstance(value, ast.Subscript):
        return _texts(value.value, names, depth + 1)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr == "join" and value.args:
            return [" ".join(_texts(value.args[0], names, depth + 1))]
        return _texts(value.func.value, names, depth + 1)
    return []


def _from_dict(value: ast.Dict, names: dict[str, ast.expr], depth: int) -> list[str]:
    keys = [key.value if isinstance(key, ast.Constant) else None for key in value.keys]
    if ARCH in keys:
        return _texts(value.values[keys.index(ARCH)], names, depth + 1)
    pairs = []
    for key, item in zip(keys, value.values):  # noqa: B905  (Python 3.9)
        if isinstance(key, str) and isinstance(item, ast.Constant):
            pairs.append(f"{key}={item.value!s}")
    return [" ".join(pairs)] if pairs else []
