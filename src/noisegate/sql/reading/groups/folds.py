"""Aggregates of one unit's rows: folds of the algebra, and what is computed of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias, final

from noisegate.algebra.expression import Call, Expression, Literal, Schema, domain_of
from noisegate.algebra.relation import Fold, Relation
from noisegate.algebra.schema import schema_of
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Domain
from noisegate.sql.question import Function
from noisegate.sql.reading.groups.aggregates import Asked
from noisegate.sql.reading.values.decimals import exact, of_units, scale_of, units

Add: TypeAlias = Callable[[Fold, Expression], Expression]  # the column of a fold
_FOLDS: Final = {
    Function.COUNT_VALUES: Fold.COUNT,
    Function.COUNT_DISTINCT: Fold.COUNT_DISTINCT,
    Function.MIN: Fold.MIN,
    Function.MAX: Fold.MAX,
}


def folded(ask: Asked, schema: Schema, add: Add, *, may_lack: bool = False) -> Expression:
    """The aggregate of rows with ``schema``, of which there may be none where they ``may_lack``."""
    one: Expression = Literal(1)
    value = exact(ask.args[0], schema) if ask.args else one
    if ask.where is not None:
        value = Call("case", (ask.where, value))
    may_lack = may_lack or domain_of(value, schema).may_lack
    if ask.function in (Function.COUNT, Function.COUNT_UNITS):
        count = add(Fold.COUNT, value)
        if ask.function is Function.COUNT:
            return count
        return Call("case", (Call("gt", (count, Literal(0))), one, Literal(0)))
    if ask.function in _FOLDS:
        return add(_FOLDS[ask.function], value)
    if ask.function is Function.AVG:
        return _average(value, schema, add)
    if ask.function is Function.SUM:
        total = _total(value, schema, add)
        if not may_lack:
            return total
        return Call("case", (Call("gt", (add(Fold.COUNT, value), Literal(0))), total))
    raise Unsupported(
        f"{ask.function.value} per unit is not supported.",
        fix="Use COUNT, SUM, AVG, MIN or MAX in the inner query.",
        about="fold",
    )


def _average(value: Expression, schema: Schema, add: Add) -> Expression:
    """The average, which is within the bounds of its values, whatever doubles make of it."""
    count, scale, domain = add(Fold.COUNT, value), scale_of(value, schema), domain_of(value, schema)
    mean = Call("divide", (add(Fold.SUM, value if scale is None else units(value, scale)), count))
    if scale:  # one division of whole numbers, as DuckDB has it: rounded once
        mean = Call("divide", (mean.args[0], Call("multiply", (count, Literal(10**scale)))))
    if domain.low is None or domain.high is None:
        return mean
    low, high = (Literal(Fraction(end)) for end in (domain.low, domain.high))
    inside = Call("greatest", (low, Call("least", (high, mean))))
    return Call("case", (Call("gt", (count, Literal(0))), inside))


def _total(value: Expression, schema: Schema, add: Add) -> Expression:
    """The sum; of decimals in whole numbers of their last digits, so that it is exact."""
    scale = scale_of(value, schema)
    if scale is None:
        return add(Fold.SUM, value)
    return of_units(add(Fold.SUM, units(value, scale)), scale)


@final
@dataclass(frozen=True, slots=True)
class Growing(Mapping[str, Domain]):
    """The columns of a relation that gets more while expressions over it are read."""

    relation: Callable[[], Relation]

    def __getitem__(self, name: str) -> Domain:
        return schema_of(self.relation())[name]

    def __iter__(self) -> Iterator[str]:
        return iter(schema_of(self.relation()))

    def __len__(self) -> int:
        return len(schema_of(self.relation()))
