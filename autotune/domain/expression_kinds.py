"""Finds, before anything is evaluated, an expression that compares what cannot be equal or adds up text.

`enforce_eager == "true"` is never true and `max_num_seqs > "8"` fails in the middle of a study, so both are
refused when the file is read.
"""

import ast
from collections.abc import Mapping
from enum import StrEnum

from autotune.domain.expression import Expression
from autotune.domain.space import CategoricalDomain, Domain
from autotune.errors import ExpressionError


class Kind(StrEnum):
    """What sort of value something has."""

    NUMBER = "a number"
    TEXT = "text"
    BOOL = "true or false"


def kind_of(domain: Domain) -> Kind | None:
    """The kind of a parameter's values; None when its choices are of several kinds."""
    if not isinstance(domain, CategoricalDomain):
        return Kind.NUMBER
    kinds = {_kind_of_value(choice) for choice in domain.choices}
    return kinds.pop() if len(kinds) == 1 else None


def check_kinds(
    expression: Expression, kinds: Mapping[str, Kind | None], wanted: Kind | None = Kind.BOOL
) -> None:
    """Raise ExpressionError unless every part of `expression` combines values of the right kinds.

    `kinds` has an entry for every name the expression mentions; None is a kind not known. The whole has to be
    of the kind `wanted`, of any with None.
    """
    _expect(expression, expression.tree, wanted, kinds)


def _kind_of_value(value: object) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOL
    return Kind.TEXT if isinstance(value, str) else Kind.NUMBER


def _expect(
    expression: Expression, node: ast.expr, wanted: Kind | None, kinds: Mapping[str, Kind | None]
) -> None:
    found = _infer(expression, node, kinds)
    if wanted is not None and found is not None and found is not wanted:
        raise ExpressionError(
            expression.source, f"`{ast.unparse(node)}` is {found}, where {wanted} is needed"
        )


def _infer(expression: Expression, node: ast.expr, kinds: Mapping[str, Kind | None]) -> Kind | None:
    """The kind of `node`, after everything below it was checked; None when it cannot be known."""
    match node:
        case ast.Constant(value=value):
            return _kind_of_value(value)
        case ast.Name(id=name):
            return Kind.BOOL if name in ("true", "false") else kinds[name]
        case ast.BoolOp(values=parts):
            for part in parts:
                _expect(expression, part, Kind.BOOL, kinds)
            return Kind.BOOL
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            _expect(expression, operand, Kind.BOOL, kinds)
            return Kind.BOOL
        case ast.UnaryOp(operand=operand):
            _expect(expression, operand, Kind.NUMBER, kinds)
            return Kind.NUMBER
        case ast.BinOp(left=left, right=right):
            _expect(expression, left, Kind.NUMBER, kinds)
            _expect(expression, right, Kind.NUMBER, kinds)
            return Kind.NUMBER
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for a, op, b in zip([left, *comparators], ops, comparators, strict=False):
                _infer_comparison(expression, a, op, b, kinds)
            return Kind.BOOL
    raise ExpressionError(expression.source, f"`{ast.unparse(node)}`: a list can only stand after `in`")


def _infer_comparison(
    expression: Expression, left: ast.expr, op: ast.cmpop, right: ast.expr, kinds: Mapping[str, Kind | None]
) -> None:
    match op, right:
        case ast.In() | ast.NotIn(), ast.List(elts=parts) | ast.Tuple(elts=parts):
            kind = _infer(expression, left, kinds)
            for part in parts:
                _expect(expression, part, kind, kinds)
        case ast.In() | ast.NotIn(), _:
            raise ExpressionError(
                expression.source, f"`{ast.unparse(right)}`: a list in brackets must stand after `in`"
            )
        case ast.Eq() | ast.NotEq(), _:
            _expect(expression, right, _infer(expression, left, kinds), kinds)
        case _:
            _expect(expression, left, Kind.NUMBER, kinds)
            _expect(expression, right, Kind.NUMBER, kinds)
