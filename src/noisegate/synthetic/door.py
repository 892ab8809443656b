"""Tables over the columns of one relation, asked through the door within an allowance."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import final

import numpy as np

from noisegate.algebra.tally import Marginals, Sums
from noisegate.curator.allowance import Scope
from noisegate.curator.measurement import Measurement
from noisegate.desk.price import Price, require_shares, variance_of
from noisegate.errors import SpecError
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.releases.ask.asking import Noisy
from noisegate.releases.cells.estimate import Floats
from noisegate.releases.fit.residuals import Axes, Sizes
from noisegate.synthetic.scoring import coarse, distance_variance, distances_of, require_axes
from noisegate.transforms.query import Query


@final
class DoorTables:
    """What a synthesizer asks, as `TablesAsk`: each column is given by the question about it alone.

    ``columns`` are the queries of one-column grids (`grid_of`), in the order of the columns:

        grids = [grid_of(read(sql, tables), sql, terms) for each column]
        DoorTables(allowance.whole, [grid.query for grid in grids], price)

    They must be about the same rows and the same sum: same WHERE, ``rows_per_unit`` and grain. All
    that is asked is priced by the door, from the question itself. A table that was read is kept
    behind the door until the allowance closes, so that later rounds read no row.
    """

    def __init__(
        self,
        scope: Scope,
        columns: Sequence[Query],
        price: Price,
        *,
        progress: Callable[[float, str], None] | None = None,
    ) -> None:
        self._scope, self._price, self._progress = scope, price, progress
        self._tally = marginals_of(columns)
        self.gaussian = price.gaussian
        self.sizes: Sizes = tuple(grouping.size for grouping in self._tally.by)

    def tables(self, sets: Sequence[Axes], shares: Sequence[Fraction]) -> list[Noisy]:  # noqa: D102 - see TablesAsk
        if len(sets) != len(shares):
            raise SpecError(
                "There must be one share per table.", fix="Give one for each.", about="shares"
            )
        query = Query(self._over(sets))
        noises = self._price.noise(query, require_shares(shares))
        release = self._scope.measure(Measurement(query=query, mechanisms=noises))
        ends = np.cumsum([int(np.prod([self.sizes[a] for a in axes])) for axes in sets])[:-1]
        parts = np.split(release.values[0], ends)
        return [Noisy(part, variance_of(noise)) for part, noise in zip(parts, noises, strict=True)]

    def distances(self, guesses: Mapping[Axes, Floats], share: Fraction) -> Noisy:  # noqa: D102 - see TablesAsk
        query = Query(self._over(tuple(guesses)), distances_of(guesses))
        (noise,) = self._price.noise(query, require_shares([share]))
        release = self._scope.measure(Measurement(query=query, mechanisms=(noise,)))
        return coarse(release.values[0], noise)

    def furthest(  # noqa: D102 - see TablesAsk
        self,
        guesses: Mapping[Axes, Floats],
        share: Fraction,
        *,
        weights: Mapping[Axes, Fraction] | None = None,
        less: Mapping[Axes, float] | None = None,
    ) -> Axes:
        scores = distances_of(guesses, weights=weights, less=less)
        query = Query(self._over(tuple(guesses)), scores)
        (exact,) = require_shares([share])
        choice = Exponential.for_epsilon(
            self._price.exponential_epsilon(exact), score_sensitivity=query.moved * scores.reach
        )
        release = self._scope.measure(Measurement(query=query, mechanisms=(choice,)))
        return tuple(guesses)[int(release.values[0][0])]

    def variance(self, share: Fraction) -> float:  # noqa: D102 - see TablesAsk
        (noise,) = self._price.noise(Query(self._over([()])), require_shares([share]))
        return variance_of(noise)

    def distance_variance(self, count: int, share: Fraction) -> float:  # noqa: D102 - see TablesAsk
        moved = Query(self._over([()])).moved
        return distance_variance(self._price, count, share, moved=moved)

    def done(self, part: float, words: str) -> None:  # noqa: D102 - see TablesAsk
        if self._progress is not None:
            self._progress(part, words)

    def _over(self, sets: Sequence[Axes]) -> Marginals:
        for axes in sets:
            require_axes(axes, self.sizes)
        return replace(self._tally, sets=tuple(sets))


def marginals_of(columns: Sequence[Query]) -> Marginals:
    """The tables of all columns together; of no set yet."""
    tallies = [query.tally for query in columns if isinstance(query.tally, Sums)]
    if not tallies or len(tallies) < len(columns) or len(tallies[0].terms) != 1:
        raise SpecError("A column's query is not a single sum.", fix="Count its rows.", about="sum")
    first = tallies[0]
    if any(replace(tally, by=()) != replace(first, by=()) for tally in tallies):
        raise SpecError(
            "The columns are not about the same rows.",
            fix="Use the same WHERE and rows_per_unit for all.",
            about="rows",
        )
    if any(len(tally.by) != 1 for tally in tallies):
        raise SpecError(
            "A column's query does not have exactly one grouping.",
            fix="Give one query for each column.",
            about="grouping",
        )
    return Marginals(
        relation=first.relation,
        by=tuple(tally.by[0] for tally in tallies),
        sets=(),
        term=first.terms[0],
        rows_per_unit=first.rows_per_unit,
    )
