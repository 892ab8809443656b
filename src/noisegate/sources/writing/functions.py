"""Functions that all engines say in the same words: comparison, logic, choice."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from noisegate.algebra.rules_logic import case_values
from noisegate.privacy.domain import Domain, Kind
from noisegate.sources.writing.dialect import Args, Writer
from noisegate.sources.writing.words import alike, as_kind, binary, call, chain, within


def _comparison(operator: type[exp.Expr]) -> Writer:
    return lambda args, _: binary(operator, *alike(args))


def _between(args: Args, _made: Domain) -> exp.Expr:
    return within(*alike(args))


def _in(args: Args, _made: Domain) -> exp.Expr:
    value, *listed = alike(args)
    return exp.Paren(this=exp.In(this=value, expressions=listed))


def _not(args: Args, _made: Domain) -> exp.Expr:
    return exp.Paren(this=exp.Not(this=exp.Paren(this=args[0].sql)))


def _is(value: exp.Expr) -> Writer:
    return lambda args, _: exp.Paren(
        this=exp.Is(this=exp.Paren(this=args[0].sql), expression=value.copy())
    )


def _choice(name: str) -> Writer:
    return lambda args, _: call(name, *alike(args))


def _nullif(args: Args, made: Domain) -> exp.Expr:
    equal = exp.If(this=binary(exp.EQ, *alike(args)), true=exp.null())
    return exp.Case(ifs=[equal], default=as_kind(args[0], made.kind).copy())


def _case(args: Args, _made: Domain) -> exp.Expr:
    values = alike([args[i] for i in case_values(len(args))])
    conditions = [as_kind(arg, Kind.BOOLEAN) for arg in args[: len(args) // 2 * 2 : 2]]
    default = values.pop() if len(args) % 2 else None
    ifs = [exp.If(this=c, true=v) for c, v in zip(conditions, values, strict=True)]
    return exp.Case(ifs=ifs, default=default)


COMMON: Final[Mapping[str, Writer]] = MappingProxyType({
    "eq": _comparison(exp.EQ),
    "ne": _comparison(exp.NEQ),
    "lt": _comparison(exp.LT),
    "le": _comparison(exp.LTE),
    "gt": _comparison(exp.GT),
    "ge": _comparison(exp.GTE),
    "between": _between,
    "in": _in,
    "and": lambda args, _: chain(exp.And, [arg.sql for arg in args]),
    "or": lambda args, _: chain(exp.Or, [arg.sql for arg in args]),
    "not": _not,
    "is_null": _is(exp.null()),
    "is_true": _is(exp.true()),
    "least": _choice("LEAST"),
    "greatest": _choice("GREATEST"),
    "coalesce": _choice("COALESCE"),
    "nullif": _nullif,
    "case": _case,
})  # fmt: skip
