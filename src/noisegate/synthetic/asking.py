"""How a synthesizer asks: tables over some columns, and how far guesses of them are off.

It sees the rows through `TablesAsk` alone, so whatever it computes is private; a mistake in it
costs accuracy, never privacy. Numbers are in grains, as in all releases.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, Protocol, final

import numpy as np

from noisegate.algebra.tally import Marginals, Sums
from noisegate.curator.allowance import Scope
from noisegate.curator.measurement import Measurement
from noisegate.desk.terms.price import Price, require_shares, variance_of
from noisegate.errors import SpecError
from noisegate.frozen import replace
from noisegate.mechanisms.base import NoiseMechanism
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.privacy.distance import L1, L2
from noisegate.releases.ask.asking import Moved, Noisy
from noisegate.releases.cells.grid import on_lists
from noisegate.releases.cells.workload import Floats, Ints
from noisegate.releases.fit.residuals import Axes, Sizes
from noisegate.transforms.distances import GUESS_MAX, WEIGHT_MAX, Distances
from noisegate.transforms.query import Query

FINE: Final = 256  # guesses are rounded to this part of a grain


class TablesAsk(Protocol):
    """What a synthesizer is given. Shares are of its whole price; together they are at most 1.

    A table over the columns ``axes`` has the cells of these columns, the last varying fastest.
    """

    sizes: Sizes  # how many cells each column has
    gaussian: bool

    def tables(self, sets: Sequence[Axes], shares: Sequence[Fraction]) -> list[Noisy]:
        """Noisy tables over sets of columns, flat, in one pass over the rows."""

    def distances(self, guesses: Mapping[Axes, Floats], share: Fraction) -> Noisy:
        """How far each guess is off, Σ|exact - guess| over its cells, all with one noise."""

    def furthest(
        self,
        guesses: Mapping[Axes, Floats],
        share: Fraction,
        *,
        weights: Mapping[Axes, Fraction] | None = None,
        less: Mapping[Axes, float] | None = None,
    ) -> Axes:
        """A set whose weight · (distance - less) is near the largest: the exponential mechanism."""

    def variance(self, share: Fraction) -> float:
        """The variance of each cell of a table that the share buys: free."""

    def distance_variance(self, count: int, share: Fraction) -> float:
        """The variance of each of ``count`` distances that the share buys: free."""

    def done(self, part: float, words: str) -> None:
        """Say how far it has come."""


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
    """The tables of all columns together, of rows that are in a cell of each; of no set yet."""
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
    by = tuple(tally.by[0] for tally in tallies)
    return Marginals(
        relation=on_lists(first.relation, by),
        by=by,
        sets=(),
        term=first.terms[0],
        rows_per_unit=first.rows_per_unit,
    )


def distances_of(
    guesses: Mapping[Axes, Floats],
    *,
    weights: Mapping[Axes, Fraction] | None = None,
    less: Mapping[Axes, float] | None = None,
) -> Distances:
    """The question how far each guess is off; weights keep their ratios to a part in a million.

    >>> scores = distances_of({(0,): np.array([1.5, 2.25])})
    >>> scores.fine, np.frombuffer(scores.guesses[0], "<i8").tolist()
    (256, [384, 576])
    """
    most = max((weights or {}).values(), default=Fraction(1))
    if any(weight <= 0 for weight in (weights or {}).values()):
        raise SpecError(
            "A weight is not above 0.", fix="Leave out sets without weight.", about="weight"
        )
    return Distances.of(
        [_whole(guess) for guess in guesses.values()],
        weights=None if weights is None else [_weight(weights[axes] / most) for axes in guesses],
        less=None if less is None else [int(_whole(np.array([less[axes]]))[0]) for axes in guesses],
        fine=FINE,
    )


def coarse(values: Ints, noise: NoiseMechanism[Any]) -> Noisy:
    """Noisy distances in grains again, rounded."""
    rounded = np.rint(values / FINE).astype(np.int64)
    return Noisy(rounded, variance_of(noise) / FINE**2 + 1 / 12)


def distance_variance(price: Price, count: int, share: Fraction, *, moved: Fraction) -> float:
    """The variance of each of ``count`` distances, where a unit moves a table by ``moved``."""
    reach = moved * FINE
    query = Moved((L1(count * reach),), (L2(squared=count * reach**2),))
    (noise,) = price.noise(query, require_shares([share]))  # type: ignore[arg-type]
    return coarse(np.zeros(count, np.int64), noise).variance


def require_axes(axes: Axes, sizes: Sizes) -> None:
    """Columns that exist, in ascending order."""
    known = list(axes) == sorted(set(axes)) and set(axes) <= set(range(len(sizes)))
    if type(axes) is not tuple or not known:
        raise SpecError("These are not columns.", fix="List their numbers in ascending order.")


def _weight(part: Fraction) -> int:
    return max(1, round(part * WEIGHT_MAX))


def _whole(values: Floats) -> Ints:
    scaled = np.rint(np.ravel(values) * FINE)
    if not np.isfinite(scaled).all():
        raise SpecError("A guess is not finite.", fix="Check the model.", about="finite")
    return np.clip(scaled, -GUESS_MAX, GUESS_MAX).astype(np.int64)
