"""Expressions as an engine reads them. No value of any field can make one fail.

Claim: where the fields keep their domains, the engine computes NULL or a value that
    `algebra.expression.domain_of` allows, of type BOOLEAN, BIGINT, DOUBLE, VARCHAR, DATE or
    TIMESTAMP, and raises nothing.
Adjacency: none; an expression sees one row.
Why: whole numbers are added only where bounds rule out overflow, divisors that may be zero become
    NULL first, casts are tried unless bounds make them safe, positions and days are kept within
    what the engine takes. Every piece is total by itself, since engines may run any branch.
Rounding: doubles may turn NaN or infinite. They stay so through steps that keep them that way, and
    become NULL before any other step and at the end. Bounds are those of rounded results.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from sqlglot import exp

from noisegate.algebra.expression import (
    Call,
    Expression,
    Field,
    Literal,
    Schema,
    domain_of,
    fields_of,
)
from noisegate.algebra.functions import function_named
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Domain, Kind
from noisegate.sources.writing.dialect import Dialect, Written
from noisegate.sources.writing.words import as_kind, case, write_value

SIZE_MAX: Final = 20_000  # words of one expression: a step may say its arguments twice
_LISTED: Final = 24  # arguments from which a CASE is kept as text: bins that many questions share


def write(
    expression: Expression, schema: Schema, field: Callable[[str], exp.Expr], dialect: Dialect
) -> exp.Expr:
    """The expression in the engine's words, of the type of its kind; ``field`` writes a field."""
    if dialect.verbatim and type(expression) is Call and len(expression.args) >= _LISTED:
        names = sorted(set(fields_of(expression)))
        columns = [field(name) for name in names]
        if expression.function == "case" and all(type(each) is exp.Column for each in columns):
            facts = tuple(
                (name, domain_of(Field(name), schema), dialect.text(column))
                for name, column in zip(names, columns, strict=True)
            )
            return exp.Var(this=_kept(expression, facts, dialect))
    return _clean(_written(expression, schema, field, dialect), dialect).sql


def _written(
    expression: Expression, schema: Schema, field: Callable[[str], exp.Expr], dialect: Dialect
) -> Written:
    if type(expression) is Call:
        args = [_written(arg, schema, field, dialect) for arg in expression.args]
        return _called(expression.function, args, dialect)
    domain = domain_of(expression, schema)
    if type(expression) is Literal:
        return Written(write_value(expression.value, domain.kind), domain, expression.value)
    if type(expression) is Field:
        return Written(field(expression.name), domain)
    raise Unsupported("This is not an expression.", fix="Use Literal, Field and Call.")


@lru_cache(maxsize=128)
def _kept(expression: Call, facts: tuple[tuple[str, Domain, str], ...], dialect: Dialect) -> str:
    """A long CASE as text, which its own END delimits, by what its fields are and their names."""
    schema = {name: domain for name, domain, _ in facts}
    names = {name: text for name, _, text in facts}
    made = _written(expression, schema, lambda name: exp.Var(this=names[name]), dialect)
    return dialect.text(_clean(made, dialect).sql)


def _called(name: str, args: list[Written], dialect: Dialect) -> Written:
    function = function_named(name)
    literals = [arg.literal for arg in args]
    domains = function.taken([arg.domain for arg in args], literals)
    domain, made = function.domain(domains, literals), function.of_values(domains, literals)
    keeps = dialect.keeps_spoilt.get(name, 0) if domain.kind is Kind.NUMBER else 0
    taken = [
        Written(as_kind(arg, kept.kind), kept, None) if arg.literal is None
        else arg if place < keeps else _clean(arg, dialect)
        for place, (arg, kept) in enumerate(zip(args, domains, strict=True))
    ]  # fmt: skip
    sql = dialect.function(name)(taken, made)
    if sum(1 for _ in sql.walk()) > SIZE_MAX:
        raise Unsupported(
            "An expression is too long.",
            fix="Declare bounds of its columns, or shorten it.",
            about="length",
        )
    spoils = any(arg.spoilt for arg in taken) or (name in dialect.spoils and made.nullable)
    spoilt = domain.kind is Kind.NUMBER and spoils
    return Written(sql, domain, spoilt=spoilt)


def _clean(written: Written, dialect: Dialect) -> Written:
    """NULL instead of NaN and infinity."""
    if not written.spoilt:
        return written
    return Written(case((dialect.finite(written.sql), written.sql.copy())), written.domain)
