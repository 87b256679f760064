"""The small language of `when` and of constraints: comparisons and arithmetic over parameter values.

    max_num_batched_tokens >= max_num_seqs
    speculation in ["ngram", "draft_model"] and num_speculative_tokens <= 8

Parsed with Python's grammar, but only the node types listed here are accepted and nothing is ever
evaluated by Python itself: no calls, no attributes, no subscripts.
"""

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from autotune.errors import ExpressionError

_T = TypeVar("_T")

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_ORDER: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_COMPARISONS = {*_ORDER, ast.Eq, ast.NotEq, ast.In, ast.NotIn}
_ALLOWED = (
    "allowed are parameter names, numbers, text, true/false, + - * / // %, comparisons, `in`, and/or/not"
)
_LITERAL_NAMES = {"true": True, "false": False}

# Far above anything a person writes, and low enough that parsing, checking and evaluating never come near
# Python's recursion limit or a number too long to print.
_MAX_LENGTH = 1000
_MAX_DEPTH = 50


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression; `source` is its text, `names` the parameters it mentions."""

    source: str
    names: frozenset[str] = field(repr=False)
    tree: ast.expr = field(repr=False, compare=False)

    @classmethod
    def parse(cls, source: str) -> "Expression":
        """Read `source`. Raises ExpressionError for anything outside the language."""
        if len(source) > _MAX_LENGTH:
            raise ExpressionError(source[:60] + "...", f"is longer than {_MAX_LENGTH} characters")
        try:
            with warnings.catch_warnings():
                # `"\d"` and `1in [1]` are warnings of Python's parser; here they are mistakes.
                warnings.simplefilter("error")
                tree = ast.parse(source.strip(), mode="eval").body
        except (SyntaxError, ValueError) as error:
            raise ExpressionError(source, f"cannot be read ({error.args[0]}); {_ALLOWED}") from None
        except (RecursionError, MemoryError):
            raise ExpressionError(source, "is nested too deeply") from None
        _check(tree, source, _MAX_DEPTH)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - _LITERAL_NAMES.keys()
        return cls(source, frozenset(names), tree)

    def holds(self, values: Mapping[str, object], *, absent: bool) -> bool:
        """Whether it is true of `values`; `absent` is the answer where it hangs on a name without a value.

        `a == 1 or b == 2` is true for a = 1 whether `b` has a value or not. Raises ExpressionError when the
        values have types that cannot be combined, or on a division by 0.
        """
        true = self._evaluated(values, _truth)
        return absent if true is None else true

    def value(self, values: Mapping[str, object]) -> bool | int | float | str | None:
        """What it comes to for `values`; None where it hangs on a name without a value.

        Raises ExpressionError as `holds` does.
        """
        return self._evaluated(values, _scalar)

    def _evaluated(self, values: Mapping[str, object], of_kind: Callable[[object], _T]) -> _T:
        try:
            return of_kind(_evaluate(self.tree, values))
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            raise ExpressionError(self.source, f"cannot be evaluated for {dict(values)}: {error}") from None


def _check(node: ast.expr, source: str, depth: int) -> None:
    """Raise ExpressionError unless `node` and all below it are in the language."""
    if depth == 0:
        raise ExpressionError(source, "is nested too deeply")
    match node:
        case ast.Constant(value=bool() | int() | float() | str()) | ast.Name():
            children: list[ast.expr] = []
        case ast.BoolOp(values=children):
            pass
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            children = [operand]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            children = [left, right]
        case ast.Compare(left=left, ops=ops, comparators=comparators) if all(
            type(op) in _COMPARISONS for op in ops
        ):
            children = [left, *comparators]
        case ast.List(elts=children) | ast.Tuple(elts=children):
            pass
        case _:
            raise ExpressionError(source, f"`{ast.unparse(node)}` is not allowed; {_ALLOWED}")
    for child in children:
        _check(child, source, depth - 1)


def _evaluate(node: ast.expr, values: Mapping[str, object]) -> object:
    """The value of `node`; None where it hangs on a name without a value."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _LITERAL_NAMES.get(name, values.get(name))
        case ast.BoolOp(op=op, values=parts):
            return _bool_op(parts, values, decisive=isinstance(op, ast.Or))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            true = _truth(_evaluate(operand, values))
            return None if true is None else not true
        case ast.UnaryOp(operand=operand):
            number = _evaluate(operand, values)
            return None if number is None else -_number(number)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _evaluate(left, values), _evaluate(right, values)
            return None if a is None or b is None else _BINARY[type(op)](_number(a), _number(b))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return _compare(_evaluate(left, values), ops, [_evaluate(c, values) for c in comparators])
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            items = [_evaluate(part, values) for part in parts]
            return None if None in items else items
        case _:  # unreachable: `parse` checked every node
            raise TypeError(f"{ast.unparse(node)} has no value")


def _bool_op(parts: list[ast.expr], values: Mapping[str, object], *, decisive: bool) -> bool | None:
    """`or` with `decisive` true, `and` with it false: a part that has this value settles the whole."""
    open_part = False
    for part in parts:
        true = _truth(_evaluate(part, values))
        if true is decisive:
            return decisive
        open_part = open_part or true is None
    return None if open_part else not decisive


def _compare(left: object, ops: list[ast.cmpop], right: list[object]) -> bool | None:
    """A chain `a < b <= c`, as in Python."""
    open_part = False
    for op, other in zip(ops, right, strict=True):
        if left is None or other is None:
            open_part = True
        elif not _compare_two(left, op, other):
            return False
        left = other
    return None if open_part else True


def _compare_two(left: object, op: ast.cmpop, right: object) -> bool:
    match op:
        case ast.Eq():
            return left == right
        case ast.NotEq():
            return left != right
        case ast.In() | ast.NotIn():
            if not isinstance(right, list):
                raise TypeError("`in` needs a list")
            return (left in right) == isinstance(op, ast.In)
        case _:
            return _ORDER[type(op)](_number(left), _number(right))


def _number(value: object) -> float:
    if isinstance(value, int | float):
        return value
    raise TypeError(f"{value!r} is not a number")


def _scalar(value: object) -> bool | int | float | str | None:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{value!r} is a list")


def _truth(value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is neither true nor false")
