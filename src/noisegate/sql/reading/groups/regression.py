"""REGR_SLOPE and its like: of averages, variances and covariances of the rows that have both."""

from collections.abc import Callable
from typing import Final

from sqlglot import exp

from noisegate.sql.reading.words import Node, require_only


def _call(kind: type[exp.Expr], *args: Node) -> Node:
    names = ("this", "expression")
    return kind(**{name: arg.copy() for name, arg in zip(names, args, strict=False)})


def _slope(y: Node, x: Node) -> Node:
    spread = exp.Nullif(this=_call(exp.VariancePop, x), expression=exp.Literal.number(0))
    return exp.Div(this=_call(exp.CovarPop, y, x), expression=spread)


def _intercept(y: Node, x: Node) -> Node:
    moved = exp.Mul(this=exp.Paren(this=_slope(y, x)), expression=_call(exp.Avg, x))
    return exp.Sub(this=_call(exp.Avg, y), expression=moved)


def _squared(y: Node, x: Node) -> Node:
    return exp.Mul(this=_call(exp.Corr, y, x), expression=_call(exp.Corr, y, x))


def _summed(kind: type[exp.Expr], *args: Node) -> Node:
    return exp.Mul(this=exp.Count(this=exp.Star()), expression=_call(kind, *args))


_MADE_OF: Final[dict[type[exp.Expr], Callable[[Node, Node], Node]]] = {
    exp.RegrSlope: _slope,
    exp.RegrIntercept: _intercept,
    exp.RegrR2: _squared,
    exp.RegrCount: lambda _y, _x: exp.Count(this=exp.Star()),
    exp.RegrAvgx: lambda _y, x: _call(exp.Avg, x),
    exp.RegrAvgy: lambda y, _x: _call(exp.Avg, y),
    exp.RegrSxx: lambda _y, x: _summed(exp.VariancePop, x),
    exp.RegrSyy: lambda y, _x: _summed(exp.VariancePop, y),
    exp.RegrSxy: lambda y, x: _summed(exp.CovarPop, y, x),
}


def made_of(node: Node) -> Node | None:
    """A regression aggregate as arithmetic on others; None of any other call.

    They are about rows where neither argument is NULL, so that is the FILTER of each.
    """
    call = node.this if isinstance(node, exp.Filter) else node
    if type(call) not in _MADE_OF:
        return None
    require_only(call, "this", "expression")
    y, x = call.this, call.args["expression"]
    held: list[Node] = [
        exp.Not(this=exp.Is(this=exp.Paren(this=each.copy()), expression=exp.null()))
        for each in (y, x)
    ]
    if isinstance(node, exp.Filter):
        held.append(exp.Paren(this=node.expression.this.copy()))
    made = exp.Paren(this=_MADE_OF[type(call)](y, x))
    for each in list(made.find_all(exp.AggFunc)):
        where = exp.Where(this=exp.and_(*(part.copy() for part in held)))
        each.replace(exp.Filter(this=each.copy(), expression=where))
    return made
