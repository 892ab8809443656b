"""Which sums an aggregate needs, and how it is made of them.

An average is taken around a public middle m: AVG = m + Σ(x - m) / n. The centred sum reaches half
as far as the bounds are apart. Variances and covariances are averages of bounded products of
centred values, so they are made the same way. Equal terms are measured once, whoever asks for them.

How much an aggregate's relative error owes to each term is guessed from public facts alone, as if
values were spread evenly over their bounds [low, high], half-width h, and their average lay h/√12
off the middle. An average's error is compared with 2h/√3, the root mean square distance from the
lower bound, so that its share does not depend on where zero is: years share like ages. `split.py`
uses these weights.

A unit has one weight in the sum and the count of an average. So averages are those of weighed rows,
none is clipped, and a ratio of two terms keeps its meaning.

What does not add up over groups (units, distinct values, quantiles, extremes) is drawn for itself:
an `Other`.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from itertools import compress
from math import ceil, sqrt
from typing import Final, final

from noisegate.algebra.expression import Call, Expression, Schema, domain_of
from noisegate.algebra.tally import Term
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, field, replace
from noisegate.privacy.domain import Domain, Kind
from noisegate.sql.drafts.terms import (
    WHOLE_MAX,
    count_term,
    literal,
    masked,
    middle,
    numeric,
    present,
    require_bounds,
    sum_term,
    value_term,
)
from noisegate.sql.question import Aggregate, Function

OFF_CENTRE: Final = 1 / sqrt(12)  # of the half-width: how far off its middle an average may lie
COUNTED: Final = 1 / 8  # of the weight of a sum of a sample: that of its count, at least
DECIMAL_MAX: Final = 10**9  # of one value: 38 digits hold sums of more rows than there are
_FEW: Final = 16  # whole numbers: of more, the nearest whole middle is about as good
CHOSEN: Final = (Function.QUANTILE, Function.MIN, Function.MAX)
COUNTS: Final = (Function.COUNT, Function.COUNT_VALUES)
VARIANCES: Final = (
    Function.VAR_SAMP,
    Function.VAR_POP,
    Function.STDDEV_SAMP,
    Function.STDDEV_POP,
)
SPREAD: Final = (Function.STDDEV_SAMP, Function.STDDEV_POP, Function.CORR)
ADDITIVE: Final = (
    *COUNTS, Function.SUM, Function.AVG, *VARIANCES,
    Function.COVAR_SAMP, Function.COVAR_POP, Function.CORR,
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """An average in [low, high]: ``middle`` + the sum of piece ``piece`` / the count."""

    piece: int
    middle: Fraction
    low: Fraction
    high: Fraction


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How an aggregate is made of measured pieces.

    Counts, direct sums and whatever is drawn for itself have only ``direct``. The others are made
    of ``means`` and the ``count`` of their rows. ``errors`` are the weights of the pieces in the
    relative error. ``typical`` is its value, or for counts and sums that of one row, as
    the guess has it. ``level`` is the place among the levels of a quantile's piece.
    """

    aggregate: Aggregate
    kind: Kind
    direct: int | None = None
    count: int | None = None
    means: tuple[Mean, ...] = ()
    errors: Mapping[int, float] = field(default_factory=dict)
    typical: float = 1.0
    level: int = 0
    sampled: bool = False  # of a sample: its error depends on how many there are
    scale: int = 0  # digits behind the point, of a sum or a value of decimals

    def of_sample(self) -> "Recipe":
        """The same of a sample: a derived sum needs its count to tell what sampling adds."""
        errors = dict(self.errors)
        if self.aggregate.function is Function.SUM and self.count is not None:
            (mean,) = self.means
            errors[self.count] = max(errors[self.count], errors[mean.piece] * COUNTED)
        return replace(self, errors=errors, sampled=True)

    def is_foreseen(self, rows: int | None) -> bool:
        """Whether its error is known beforehand: averages need the number of their rows.

        So do quantiles, and counts and sums of a sample. What divides by how far values lie apart,
        or is the root of it, errs by that, which nobody knows.
        """
        function = self.aggregate.function
        if function in SPREAD:
            return False
        needs = self.sampled or function in CHOSEN
        if not needs and (self.count is None or function is Function.SUM):
            return True
        return rows is not None and self.aggregate.where is None


class Weight(Enum):
    """What scales a unit down: one weight for rows, others for direct sums and for averages."""

    ROWS = "rows"
    SUMS = "sums"
    OWN = "own"


@final
class Book:
    """The terms needed so far, each once.

    ``schema`` gives the columns of rows for which a condition holds. ``cap`` is how many rows'
    worth of a unit count where units have weights; ``apart``, in direct sums, and ``own``, in
    averages and the like, if these are weighed for themselves.
    """

    def __init__(
        self,
        schema: Callable[[Expression | None], Schema],
        *,
        cap: int | None,
        apart: Fraction | None = None,
        own: int | None = None,
        weight: Weight = Weight.ROWS,
        found: dict[tuple[Term, Weight], int] | None = None,
    ) -> None:
        self.schema = schema
        self._cap, self._apart, self._own = cap, apart, own
        self._weight, self._found = weight, {} if found is None else found

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms over rows."""
        return tuple(term for term, _ in self._found)

    def weighed(self, by: Weight) -> frozenset[int]:
        """The pieces that a weight scales."""
        return frozenset(piece for (_, weight), piece in self._found.items() if weight is by)

    @property
    def of_averages(self) -> "Book":
        """The same book, for sums and counts of averages."""
        if self._own is None:
            return self
        return Book(self.schema, cap=self._own, weight=Weight.OWN, found=self._found)

    def counted(self, conditions: tuple[Expression, ...]) -> int:
        """The number of rows where all conditions hold."""
        return self._piece(count_term(conditions, cap=self._cap))

    def added(self, expression: Expression, domain: Domain) -> int:
        """The sum of an expression."""
        return self._piece(sum_term(expression, domain, cap=self._cap))

    def total(self, expression: Expression, domain: Domain) -> int:
        """The sum of an expression as it was asked for.

        Under a cap of less than a row's worth no row counts more than the cap: a unit within it has
        no such row, and one that has is at the cap with it alone.
        """
        if self._apart is None:
            return self.added(expression, domain)
        low, high = require_bounds(domain, "A sum")
        most = max(abs(low), abs(high)) * min(self._apart, Fraction(1))
        held = Domain(
            kind=Kind.NUMBER, low=max(min(low, most), -most), high=min(max(high, -most), most)
        )
        return self._piece(sum_term(expression, held, cap=ceil(self._apart)), Weight.SUMS)

    def mean(
        self, value: Expression, domain: Domain, conditions: tuple[Expression, ...]
    ) -> tuple[Mean, Expression, Domain]:
        """An average, and the centred expression with its bounds."""
        low, high = require_bounds(domain, "An average")
        kind = domain.kind
        if kind is Kind.INTEGER and (low + high) % 2 and high - low < _FEW:
            kind = Kind.NUMBER  # from a whole middle, 0 and 1 would reach twice as far
        centre = middle(low, high, kind)
        around = value
        if centre:
            around = Call("subtract", (value, literal(centre, kind)))
        inner = replace(domain, kind=kind, low=low - centre, high=high - centre, keys=None)
        piece = self.added(masked(around, conditions), inner)
        return Mean(piece=piece, middle=centre, low=low, high=high), around, inner

    def _piece(self, term: Term, weight: Weight | None = None) -> int:
        return self._found.setdefault((term, weight or self._weight), len(self._found))


def recipe(aggregate: Aggregate, book: Book, *, derived: bool, divided: bool = False) -> Recipe:
    """What an additive aggregate needs. ``derived``: SUM comes from a centred sum and a count.

    ``divided``: AVG comes from a direct sum and a count.
    """
    function = aggregate.function
    schema = book.schema(aggregate.where)
    domains = [domain_of(arg, schema) for arg in aggregate.args]
    conditions = conditions_of(aggregate, schema)
    if function in COUNTS:
        piece = book.counted(conditions)
        return Recipe(aggregate=aggregate, kind=Kind.INTEGER, direct=piece, errors={piece: 1.0})
    for domain in domains:
        if not domain.kind.is_numeric:
            raise Unsupported(
                f"{function.value} of {domain.kind.value} has no meaning.",
                fix="Cast to a number.",
                about="type",
            )
        require_bounds(domain, function.value)
    if function is Function.SUM:
        return _sum(aggregate, book, domains[0], conditions, derived=derived)
    if function is Function.AVG and divided:
        return _quotient(aggregate, book, domains[0], conditions)
    return _averages(aggregate, book.of_averages, domains, conditions)


def conditions_of(aggregate: Aggregate, schema: Schema) -> tuple[Expression, ...]:
    """Which rows it is about: where its own condition holds, and there is a value."""
    missing = [domain_of(arg, schema).may_lack for arg in aggregate.args]
    return (*_where(aggregate), *compress(map(present, aggregate.args), missing))


def _where(aggregate: Aggregate) -> tuple[Expression, ...]:
    return () if aggregate.where is None else (aggregate.where,)


def _sum(
    aggregate: Aggregate,
    book: Book,
    domain: Domain,
    conditions: tuple[Expression, ...],
    *,
    derived: bool,
) -> Recipe:
    value, where, typical = aggregate.args[0], _where(aggregate), _typical(domain)
    kind = domain.kind if (domain.magnitude or 0) < WHOLE_MAX else Kind.NUMBER
    made = Recipe(aggregate=aggregate, kind=kind, typical=typical, scale=shown_scale(domain))
    if not derived:
        piece = book.total(masked(value, where), domain)
        size = float(domain.magnitude or 0)
        return replace(made, direct=piece, errors={piece: size / typical})
    mean, _, inner = book.mean(value, domain, where)
    count = book.counted(conditions)
    errors = {
        mean.piece: float(inner.magnitude or 0) / typical,
        count: abs(float(mean.middle)) / typical,
    }
    return replace(made, count=count, means=(mean,), errors=errors)


def _quotient(
    aggregate: Aggregate, book: Book, domain: Domain, conditions: tuple[Expression, ...]
) -> Recipe:
    """AVG as a direct sum over a count: an average around 0, whose parts have other weights."""
    low, high = require_bounds(domain, "An average")
    piece = book.total(masked(aggregate.args[0], _where(aggregate)), domain)
    count = book.counted(conditions)
    return Recipe(
        aggregate=aggregate,
        kind=Kind.NUMBER,
        count=count,
        means=(Mean(piece=piece, middle=Fraction(0), low=low, high=high),),
        errors={piece: 1.0, count: 1.0},
        typical=_typical(domain),
    )


def _averages(
    aggregate: Aggregate,
    book: Book,
    domains: list[Domain],
    conditions: tuple[Expression, ...],
) -> Recipe:
    """AVG, variances, covariances, correlation: functions of averages and a count.

    A missing value adds nothing by itself, so a sum asks only for the other arguments' values.
    """
    function, where = aggregate.function, _where(aggregate)
    centred = []
    for arg, domain in zip(aggregate.args, domains, strict=True):
        others = [condition for condition in conditions if condition != present(arg)]
        centred.append(book.mean(arg, domain, tuple(others)))
    means = [mean for mean, _, _ in centred]
    count = book.counted(conditions)

    def needs(one: int, other: int) -> tuple[Expression, ...]:
        return where if len(centred) == 1 or one != other else conditions

    def product(one: int, other: int) -> Mean:
        (_, left, near), (_, right, far) = centred[one], centred[other]
        value = Call("multiply", (left, right))
        return book.mean(value, _product(near, far, same=one == other), needs(one, other))[0]

    halves = [float(inner.magnitude or 0) for _, _, inner in centred]
    if function is Function.AVG:
        typical = _typical(domains[0])
        weights = [sqrt(3) / 2, sqrt(3) / 2 * OFF_CENTRE]
    elif function in VARIANCES:
        means = [product(0, 0), *means]
        root = 0.5 if function in (Function.STDDEV_POP, Function.STDDEV_SAMP) else 1.0
        weights = [1.5 * root, 6 * OFF_CENTRE * root, 0.5 * root]
        typical = (halves[0] ** 2 / 3) ** root
    else:
        means = [product(0, 1), *means]
        weights = [3.0, 3 * OFF_CENTRE, 3 * OFF_CENTRE, 0.5]
        typical = halves[0] * halves[1] / 3
        if function is Function.CORR:
            means = [*means, product(0, 0), product(1, 1)]
            weights, typical = [*weights[:3], 0.75, 0.75, 0.5], 1.0
    errors: dict[int, float] = {}
    for piece, weight in zip([*(mean.piece for mean in means), count], weights, strict=True):
        errors[piece] = errors.get(piece, 0.0) + weight
    return Recipe(
        aggregate=aggregate,
        kind=Kind.NUMBER,
        count=count,
        means=tuple(means),
        errors=errors,
        typical=typical,
    )


def _product(near: Domain, far: Domain, *, same: bool) -> Domain:
    """The bounds of a product of centred values; a square is not negative."""
    ends = [a * b for a in (near.low, near.high) for b in (far.low, far.high) if None not in (a, b)]  # type: ignore[operator]
    whole = near.kind is Kind.INTEGER and far.kind is Kind.INTEGER and max(ends) < 1 << 31
    return Domain(
        kind=Kind.INTEGER if whole else Kind.NUMBER,
        low=Fraction(0) if same else min(ends),
        high=max(ends),
    )


def shown_scale(domain: Domain) -> int:
    """The digits behind the point that sums and quantiles of a column are shown with, as in SQL.

    0: they are doubles, since the column is, or too large for decimals of 38 digits.
    """
    fits = domain.magnitude is not None and domain.magnitude < DECIMAL_MAX
    return (domain.scale or 0) if domain.kind is Kind.NUMBER and fits else 0


def _typical(domain: Domain) -> float:
    """The root mean square of values spread evenly over their bounds."""
    low, high = float(domain.low or 0), float(domain.high or 0)
    return sqrt((low * low + low * high + high * high) / 3) or 1.0


_DRAWN: Final = (Function.COUNT_UNITS, Function.COUNT_DISTINCT)
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
        if self.function in _DRAWN:
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
    if aggregate.function not in _DRAWN:
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
