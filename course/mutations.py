"""The changes that mutation makes to a node of a syntax tree: what could stand in its place."""

import ast
import copy
from collections.abc import Iterator

Change = tuple[str, ast.AST]  # (kind, what stands in the node's place)

OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPPOSITES = {
    "min": "max",
    "any": "all",
    "amin": "amax",
    "argmin": "argmax",
    "floor": "ceil",
    "cos": "sin",
    "append": "appendleft",
    "popleft": "pop",
    "startswith": "endswith",
}
OPPOSITES |= {new: old for old, new in OPPOSITES.items()}
# Calls without which the value often has the right look, and not always the right content.
REMOVABLE = {"float", "double", "clone", "contiguous", "copy", "strip", "lower", "sorted", "abs"}
REMOVABLE |= {"to", "list", "reversed", "deepcopy", "rstrip", "lstrip", "detach", "int"}
SYMMETRIC = ("min", "max", "minimum", "maximum", "equal", "transpose")
SIMPLE = (ast.Expr, ast.AugAssign, ast.Raise, ast.Delete, ast.Assert)


def changes(node: ast.AST, parent: ast.AST, field: str, known: set[str]) -> Iterator[Change]:
    """What could stand in the node's place, each with the kind of change.

    Args:
        node: within a function's body; it is not changed, the new nodes may share parts with it.
        parent, field: where it stands.
        known: names to which the function assigns more than once, arguments counted.
    """
    if isinstance(node, ast.stmt):
        yield from _of_statement(node, known)
    elif isinstance(node, ast.Constant):
        yield from _of_constant(node, parent)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.Slice):
        yield from _of_slice(node)
    elif isinstance(node, ast.expr):
        yield from _of_operation(node)
    is_test = field == "test" or (field == "ifs" and isinstance(parent, ast.comprehension))
    if is_test and not isinstance(node, ast.Compare | ast.BoolOp | ast.UnaryOp):
        yield "condition negated", ast.UnaryOp(ast.Not(), node)


def fields_of(node: ast.AST) -> list[str]:
    """The fields of a node in which changes are looked for: not types, nor formats."""
    if isinstance(node, ast.FormattedValue):
        return ["value"]
    return [name for name in node._fields if name not in ("annotation", "returns", "ctx")]


def assigned_names(function: ast.AST) -> set[str]:
    """Names that have a value before some assignment to them: without it the code still runs."""
    arguments = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    stored = [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and _is_store(n)]
    return {name for name in stored if name in arguments or stored.count(name) > 1}


def _is_store(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _of_statement(node: ast.stmt, known: set[str]) -> Iterator[Change]:
    if isinstance(node, ast.Break):
        yield "break", ast.Continue()
    elif isinstance(node, ast.Continue):
        yield "continue", ast.Break()
    elif isinstance(node, ast.Return) and node.value is None:
        yield "return dropped", ast.Pass()
    elif isinstance(node, ast.Return) and not _is_none(node.value):
        yield "return value", ast.Return(ast.Constant(None))
    elif isinstance(node, SIMPLE) or (isinstance(node, ast.Assign) and _needless(node, known)):
        yield "statement dropped", ast.Pass()
    if isinstance(node, ast.AugAssign) and (new := OPERATORS.get(type(node.op))):
        yield "operator", ast.AugAssign(node.target, new(), node.value)


def _needless(node: ast.Assign, known: set[str]) -> bool:
    """Whether the code would still run without the assignment."""
    names = [n.id for target in node.targets for n in ast.walk(target) if _stores(n)]
    return all(name in known for name in names)


def _stores(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and _is_store(node)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _of_constant(node: ast.Constant, parent: ast.AST) -> Iterator[Change]:
    value = node.value
    if isinstance(parent, ast.JoinedStr):
        return
    if isinstance(value, bool):
        yield "constant", ast.Constant(not value)
    elif isinstance(value, int | float):
        yield "constant", ast.Constant(value + 1)
        yield "constant", ast.Constant(value - 1)
    elif isinstance(value, str | bytes):
        other = b"x" if isinstance(value, bytes) else "x"
        yield "constant", ast.Constant(type(value)() if value else other)
    elif value is None and not isinstance(parent, ast.Compare | ast.Return):
        yield "constant", ast.Constant(0)


def _of_operation(node: ast.expr) -> Iterator[Change]:
    if isinstance(node, ast.BinOp) and (new := OPERATORS.get(type(node.op))):
        yield "operator", ast.BinOp(node.left, new(), node.right)
    elif isinstance(node, ast.BoolOp):
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield "and/or", ast.BoolOp(other, node.values)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd):
        yield "sign or not dropped", node.operand
    elif isinstance(node, ast.Compare):
        for at, old in enumerate(node.ops):
            ops = [*node.ops]
            ops[at] = COMPARISONS[type(old)]()
            yield "comparison", ast.Compare(node.left, ops, node.comparators)


def _of_call(node: ast.Call) -> Iterator[Change]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in OPPOSITES:
        yield "opposite", _copied(node, func=_renamed(node.func, OPPOSITES[name]))
    if name in REMOVABLE and isinstance(node.func, ast.Attribute) and len(node.args) < 2:
        yield "call removed", node.func.value
    elif name in REMOVABLE and len(node.args) == 1:
        yield "call removed", node.args[0]
    if name in ("range", "arange") and node.args and not isinstance(node.args[-1], ast.Constant):
        for kind, new in _shifted(node.args[-1]):
            yield kind, _copied(node, args=[*node.args[:-1], new])
    for at in range(len(node.args) - 1):
        pair = node.args[at : at + 2]
        if name not in SYMMETRIC and not any(isinstance(arg, ast.Starred) for arg in pair):
            args = [*node.args[:at], *reversed(pair), *node.args[at + 2 :]]
            yield "arguments swapped", _copied(node, args=args)
    for at, keyword in enumerate(node.keywords):
        if keyword.arg == "device":  # the cases have a CPU only
            continue
        rest = node.keywords[:at] + node.keywords[at + 1 :]
        yield "keyword removed", _copied(node, keywords=rest)


def _of_slice(node: ast.Slice) -> Iterator[Change]:
    for end in ("lower", "upper", "step"):
        bound = getattr(node, end)
        if bound is not None:
            yield "slice", _copied(node, **{end: None})
            if not isinstance(bound, ast.Constant) and end != "step":
                for kind, new in _shifted(bound):
                    yield kind, _copied(node, **{end: new})


def _shifted(node: ast.expr) -> Iterator[Change]:
    yield "off by one", ast.BinOp(node, ast.Add(), ast.Constant(1))
    yield "off by one", ast.BinOp(node, ast.Sub(), ast.Constant(1))


def _renamed(function: ast.expr, name: str) -> ast.expr:
    if isinstance(function, ast.Attribute):
        return _copied(function, attr=name)
    return _copied(function, id=name)


def _copied(node: ast.AST, **fields) -> ast.AST:
    """A shallow copy with other fields."""
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new
