"""Aggregates that do not add up over groups: units, distinct values, quantiles, extremes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, final

from noisegate.algebra.expression import Expression, Schema, domain_of
from noisegate.algebra.tally import Term
from noisegate.privacy.domain import Kind
from noisegate.sql.drafts.recipe import Recipe, shown_scale
from noisegate.sql.drafts.terms import masked, numeric, value_term
from noisegate.sql.question import Aggregate, Function

COUNTED: Final = (Function.COUNT_UNITS, Function.COUNT_DISTINCT)
BRACKETS_MAX: Final = 5  # levels at once that have a ± in values; more are chosen by halving
STRAY: Final = 4.0  # a private rank typically strays by a few times the inverse of its factor


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """One thing drawn for itself. MIN and MAX stand for the levels 0 and 1 too."""

    function: Function
    expression: Expression | None = None
    where: Expression | None = None
    levels: tuple[Fraction, ...] = ()

    def term(self, schema: Schema) -> Term:
        """The values of a quantile or extreme, where the condition holds."""
        assert self.expression is not None  # noqa: S101 - quantiles have an argument
        name = self.function.value
        value, domain = numeric(self.expression, domain_of(self.expression, schema), name)
        return value_term(masked(value, () if self.where is None else (self.where,)), domain)

    @property
    def error(self) -> float:
        """How much of a relative error it makes, compared with a count."""
        if self.function in COUNTED:
            return 1.0
        from noisegate.mechanisms.quantiles.quantile import error_range  # noqa: PLC0415 - quantiles
        from noisegate.mechanisms.quantiles.quantiles import depth  # noqa: PLC0415

        ranges = [error_range(level) for level in self.levels] or [Fraction(2)]
        count = len(self.levels)
        return STRAY * float(max(ranges)) * max(1, count if self.is_bracketed else depth(count))

    @property
    def is_bracketed(self) -> bool:
        """Whether each level is chosen by itself, with how far the exact one may be away."""
        return len(self.levels) <= BRACKETS_MAX


def others_of(aggregates: Sequence[Aggregate]) -> tuple[Other, ...]:
    """What to draw for these aggregates, each thing once; levels of one column go together."""
    found: dict[Other, set[Fraction]] = {}
    for aggregate in aggregates:
        other, level = _other(aggregate)
        found.setdefault(other, set()).update([] if level is None else [level])
    return tuple(replace(other, levels=tuple(sorted(levels))) for other, levels in found.items())


def recipe_of(
    aggregate: Aggregate, others: Sequence[Other], schema: Schema, *, base: int
) -> Recipe:
    """Where among the others an aggregate finds its number."""
    wanted, level = _other(aggregate)
    place = next(i for i, other in enumerate(others) if replace(other, levels=()) == wanted)
    other = others[place]
    kind, scale = Kind.INTEGER, 0
    if aggregate.function not in COUNTED:
        domain = domain_of(aggregate.args[0], schema)
        kind, scale = domain.kind, shown_scale(domain)
    return Recipe(
        aggregate=aggregate,
        kind=kind,
        direct=base + place,
        errors={base + place: other.error},
        level=0 if level is None else other.levels.index(level),
        scale=scale,
    )


def _other(aggregate: Aggregate) -> tuple[Other, Fraction | None]:
    """The thing without its levels, and the level that is wanted of it."""
    function, level = aggregate.function, aggregate.level
    if function is Function.QUANTILE and level in (0, 1):
        function, level = (Function.MIN if level == 0 else Function.MAX), None
    expression = aggregate.args[0] if aggregate.args else None
    return Other(function=function, expression=expression, where=aggregate.where), level
