"""Baskets of items, asked through the door: which sets are frequent, and how many hold a set.

A basket is a row, or all rows of a unit together: an item is in it where any of its rows has it. So
pairs of person and item, and rows of yes and no, are asked alike; and one person, however many
items it has, moves the support of any set by one.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any, Final, Protocol, TypeAlias, final

import numpy as np

from noisegate.algebra.expression import Call, Expression, Field, Literal
from noisegate.algebra.relation import Fold, Folded, PerUnit, Relation
from noisegate.algebra.tally import Grouping, Marginals, Rows
from noisegate.curator.allowance import Scope
from noisegate.curator.measurement import Measurement
from noisegate.desk.terms.price import Price
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.learners.asking import Floats, noises
from noisegate.learners.expectations import BOTH, SUMS, Noise, count_share, interval
from noisegate.learners.fitting import REACH
from noisegate.learners.matrix import Coordinate, Matrix
from noisegate.mechanisms.base import failure_of
from noisegate.mechanisms.selection.noisy_max import NoisyMax
from noisegate.mechanisms.selection.top_k import TopK
from noisegate.sql.drafts.terms import count_term
from noisegate.sql.laws.sampling import Sampling, sampling_of
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of
from noisegate.transforms.statistics.numbers import Shape

Itemset: TypeAlias = tuple[int, ...]  # places of items, rising
AT_ONCE: Final = 2_000  # sets in one question


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Baskets:
    """The baskets of a matrix: a relation, and an expression for each item, 1 where it is held."""

    names: tuple[str, ...]
    items: tuple[Expression, ...]
    relation: Relation
    rows_per_unit: int | None


def baskets_of(matrix: Matrix, basket: str) -> Baskets:
    """Baskets by "row" or by "unit"; "auto" is by unit where a unit may have several rows."""
    if basket not in ("auto", "row", "unit"):
        raise SpecError(f"{basket!r} is not a kind of basket.", fix="Use auto, row or unit.")
    held = tuple(_held(each.expression) for each in matrix.marks)
    names = tuple(each.name for each in matrix.marks)
    if basket == "row" or stability_of(matrix.relation).is_row_level:
        return Baskets(
            names=names, items=held, relation=matrix.relation, rows_per_unit=matrix.rows_per_unit
        )
    fields = tuple(f"item_{place}" for place in range(len(held)))
    folded = tuple(
        Folded(name=field, fold=Fold.MAX, expression=item)
        for field, item in zip(fields, held, strict=True)
    )
    return Baskets(
        names=names,
        items=tuple(_held(Field(field)) for field in fields),
        relation=PerUnit(of=matrix.relation, keys=(), folded=folded),
        rows_per_unit=None,
    )


def _held(number: Expression) -> Expression:
    return Call("case", (Call("ge", (number, Literal(1))), Literal(1), Literal(0)))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Supports:
    """About how many baskets hold each of some sets, and how many baskets there are."""

    sets: tuple[Itemset, ...]
    counts: Floats
    rows: float
    noise: Noise
    count_noise: Noise
    reach: int
    whole: float
    sampling: Sampling | None = None

    def within(self, confidence: Number) -> float:
        """How far each count may be off, each by itself.

        Why: a count is half of a sum of ±1 and of the number of rows; each half passes its bound
            with at most half of what may fail. Of a sample, half of it is for sampling.
        """
        failure = self._failure(confidence)
        half = 1 - failure / 2
        both = interval(self.noise, half) / self.reach + interval(self.count_noise, half)
        return self._widened(self.counts, both / (2 * self.whole), failure)

    def rows_within(self, confidence: Number) -> float:
        """The error bar of the number of baskets."""
        failure = self._failure(confidence)
        off = interval(self.count_noise, 1 - failure) / self.whole
        return self._widened(np.array([self.rows]), off, failure)

    def _failure(self, confidence: Number) -> Fraction:
        return failure_of(confidence) / (1 if self.sampling is None else 2)

    def _widened(self, numbers: Floats, off: float, failure: Fraction) -> float:
        """With what sampling adds to the one that it adds most to."""
        if self.sampling is None:
            return off
        wide = self.sampling.widened(numbers, np.full(numbers.size, off), float(failure))
        return float(wide.max())


class BasketsAsk(Protocol):
    """What a search for frequent sets sees. Shares are of its price, together at most 1."""

    items: int

    def choose(self, sets: Sequence[Itemset], k: int, share: Fraction) -> list[Itemset]:
        """About the k most frequent of the sets."""

    def supports(self, sets: Sequence[Itemset], share: Fraction) -> Supports:
        """How many baskets hold each set."""


@final
class DoorBaskets:
    """Asks through the door, within an allowance."""

    def __init__(self, scope: Scope, baskets: Baskets, price: Price) -> None:
        self._scope, self._baskets, self._price = scope, baskets, price
        self.items = len(baskets.items)
        self._rows: tuple[float, Noise] | None = None

    def choose(self, sets: Sequence[Itemset], k: int, share: Fraction) -> list[Itemset]:  # noqa: D102 - see BasketsAsk
        query = choice_query(self._baskets, sets)
        reach: dict[str, Any] = {"k": k, "score_sensitivity": query.single, "monotone": True}
        choice: NoisyMax | TopK
        if self._price.gaussian:
            each = self._price.exponential_epsilon(share / k)
            choice = TopK.for_epsilon(each * k, **reach)
        else:
            choice = NoisyMax.for_epsilon(self._price.epsilon(share), **reach)
        found = self._scope.measure(Measurement(query=query, mechanisms=(choice,)))
        return [sets[place] for place in found.values[0][:k].tolist()]

    def supports(self, sets: Sequence[Itemset], share: Fraction) -> Supports:  # noqa: D102 - see BasketsAsk
        reach = _reach(len(sets), share * self._price.amount)
        tally = _rows(self._baskets, sets, reach)
        query = Query(tally, SUMS if self._rows else BOTH)
        part = count_share(len(sets), gaussian=self._price.gaussian, weight=1)
        shares = [share] if self._rows else [share * part, share * (1 - part)]
        chosen = noises(query.statistic_blocks, shares, self._price, query.weight)
        found = self._scope.measure(Measurement(query=query, mechanisms=chosen)).values[0]
        chance = self._price.sample
        whole = tally.whole * float(chance or 1)  # of a sample: as of all rows
        if self._rows is None:
            self._rows = float(found[0] / whole), chosen[0]
        sums = found[-len(sets) :] / (whole * reach)
        rows, count_noise = self._rows
        return Supports(
            sets=tuple(sets),
            counts=(sums + rows) / 2,
            rows=rows,
            noise=chosen[-1],
            count_noise=count_noise,
            reach=reach,
            whole=whole,
            sampling=None if chance is None else sampling_of(chance, query.per_unit, 1 / chance),
        )


def choice_query(baskets: Baskets, sets: Sequence[Itemset]) -> Query:
    """How many baskets hold each set, as tables of one cell each: rows without an item are out."""
    by = tuple(
        Grouping(name=f"item_{place}", expression=item, keys=(1,))
        for place, item in enumerate(baskets.items)
    )
    term = count_term((), cap=baskets.rows_per_unit)
    return Query(
        Marginals(
            relation=baskets.relation, by=by, sets=tuple(sets), term=term,
            rows_per_unit=baskets.rows_per_unit,
        )
    )  # fmt: skip


def require_room(baskets: Baskets, price: Price, share: Fraction) -> None:
    """Refuse a price at which the noise of some round would be too wide."""
    weight = Query(_rows(baskets, [(0,)], 1), BOTH).weight
    for width in (1, AT_ONCE):
        shape = Shape(width, _reach(width, share * price.amount), 0)
        part = count_share(width, gaussian=price.gaussian, weight=1)
        noises(BOTH.blocks(shape), [share * part, share * (1 - part)], price, weight)


def _reach(width: int, amount: Fraction) -> int:
    """Steps of 1: so many that noise for this many numbers at once is not too coarse."""
    return min(REACH, 1 << max(0, ceil(width * amount / 4)).bit_length())


def _rows(baskets: Baskets, sets: Sequence[Itemset], reach: int) -> Rows:
    """Each set as a coordinate: 1 where a basket holds it, else -1."""
    if len(sets) > AT_ONCE:
        raise SpecError(f"There are {len(sets):,} sets.", fix=f"Ask for at most {AT_ONCE:,}.")
    terms = []
    for each in sets:
        held = baskets.items[each[0]]
        for place in each[1:]:
            held = Call("multiply", (held, baskets.items[place]))
        terms.append(Coordinate("", held, Fraction(0), Fraction(1), "").term(reach))
    return Rows(relation=baskets.relation, terms=tuple(terms), rows_per_unit=baskets.rows_per_unit)
