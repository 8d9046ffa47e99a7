"""Arithmetic written as text, computed without ever running it as code."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from inline_core.errors import InvalidParam

Number = int | float | bool

_LONGEST: Final = 1000
_MOST_BITS: Final = 4096


def _power(base: Number, exponent: Number) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and int(base).bit_length() * abs(exponent) > _MOST_BITS:
        message = "the power is too large"
        raise OverflowError(message)
    return base**exponent


_BINARY: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
        ast.Pow: _power,
        ast.BitAnd: operator.and_,
        ast.BitOr: operator.or_,
        ast.BitXor: operator.xor,
    }
)
_UNARY: Final[Mapping[type[ast.unaryop], Callable[[Any], Any]]] = MappingProxyType(
    {
        ast.UAdd: operator.pos,
        ast.USub: operator.neg,
        ast.Not: operator.not_,
        ast.Invert: operator.invert,
    }
)
_COMPARE: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = MappingProxyType(
    {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
    }
)
FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "abs": abs,
        "bool": bool,
        "ceil": math.ceil,
        "cos": math.cos,
        "exp": math.exp,
        "float": float,
        "floor": math.floor,
        "int": int,
        "log": math.log,
        "log10": math.log10,
        "log2": math.log2,
        "max": max,
        "min": min,
        "pow": _power,
        "round": round,
        "sin": math.sin,
        "sqrt": math.sqrt,
        "tan": math.tan,
        "trunc": math.trunc,
    }
)
_CONSTANTS: Final[Mapping[str, Number]] = MappingProxyType(
    {"pi": math.pi, "e": math.e, "true": True, "false": False}
)


def parsed(expression: str, param: str = "expression") -> ast.expr:
    """The tree of an expression.  Raises: InvalidParam if it is none, or too long."""
    if len(expression) > _LONGEST:
        message = f"the expression has {len(expression)} characters: at most {_LONGEST} are read"
        raise InvalidParam(message, param=param)
    try:
        return ast.parse(" ".join(expression.split()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        message = f"{expression!r} is no expression: write one such as max(a * 2, b // 8)"
        raise InvalidParam(message, param=param) from error


def computed(expression: str, values: Mapping[str, Number], param: str = "expression") -> Number:
    """The value of an expression; `values` are those of its names.

    Known are numbers, + - * / // % **, & | ^ ~, comparisons, and/or/not, `x if c else y`, `pi`,
    `e`, and `FUNCTIONS`.  Raises: InvalidParam for anything else, and for what has no finite value.
    """
    tree = parsed(expression, param)
    try:
        result = _value(tree, values)
        finite = isinstance(result, int | float) and math.isfinite(result)
    except _Unknown as error:
        message = f"{expression!r} cannot be computed: {error}"
        raise InvalidParam(message, param=param) from error
    except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
        message = f"{expression!r} has no value here: {error}"
        raise InvalidParam(message, param=param) from error
    if not finite:
        message = f"{expression!r} has no finite value here: it gives {result!r}"
        raise InvalidParam(message, param=param)
    number: Number = result
    return number


class _Unknown(Exception):
    """A part of an expression that is not among those that are computed."""


def _value(tree: ast.expr, values: Mapping[str, Number]) -> Any:
    known = _SHAPES.get(type(tree))
    if known is None:
        message = f"{ast.unparse(tree)!r} is not among the things that are computed here"
        raise _Unknown(message)
    return known(tree, values)


def _constant(tree: Any, _: Mapping[str, Number]) -> Number:
    if not isinstance(tree.value, int | float):
        message = f"{tree.value!r} is no number"
        raise _Unknown(message)
    return tree.value


def _name(tree: Any, values: Mapping[str, Number]) -> Number:
    if tree.id in values:
        return values[tree.id]
    if tree.id in _CONSTANTS:
        return _CONSTANTS[tree.id]
    known = ", ".join(values) or "none"
    message = f"it names {tree.id!r}, which has no value (those that have one: {known})"
    raise _Unknown(message)


def _binary(tree: Any, values: Mapping[str, Number]) -> Any:
    known = _BINARY.get(type(tree.op))
    if known is None:
        message = f"the operator in {ast.unparse(tree)!r} is not known"
        raise _Unknown(message)
    return known(_value(tree.left, values), _value(tree.right, values))


def _unary(tree: Any, values: Mapping[str, Number]) -> Any:
    return _UNARY[type(tree.op)](_value(tree.operand, values))


def _both(tree: Any, values: Mapping[str, Number]) -> Any:
    """And, or: as in Python, the value that decides."""
    stop = isinstance(tree.op, ast.Or)
    result: Any = None
    for part in tree.values:
        result = _value(part, values)
        if bool(result) is stop:
            break
    return result


def _compared(tree: Any, values: Mapping[str, Number]) -> bool:
    left = _value(tree.left, values)
    for kind, part in zip(tree.ops, tree.comparators, strict=True):
        compare = _COMPARE.get(type(kind))
        if compare is None:
            message = f"the comparison in {ast.unparse(tree)!r} is not known"
            raise _Unknown(message)
        right = _value(part, values)
        if not compare(left, right):
            return False
        left = right
    return True


def _chosen(tree: Any, values: Mapping[str, Number]) -> Any:
    return _value(tree.body if _value(tree.test, values) else tree.orelse, values)


def _called(tree: Any, values: Mapping[str, Number]) -> Any:
    function = FUNCTIONS.get(tree.func.id) if isinstance(tree.func, ast.Name) else None
    if function is None or tree.keywords:
        message = f"{ast.unparse(tree)!r} calls what is not known (known: {', '.join(FUNCTIONS)})"
        raise _Unknown(message)
    return function(*(_value(part, values) for part in tree.args))


_SHAPES: Final[Mapping[type[ast.expr], Callable[[Any, Mapping[str, Number]], Any]]] = (
    MappingProxyType(
        {
            ast.Constant: _constant,
            ast.Name: _name,
            ast.BinOp: _binary,
            ast.UnaryOp: _unary,
            ast.BoolOp: _both,
            ast.Compare: _compared,
            ast.IfExp: _chosen,
            ast.Call: _called,
        }
    )
)
