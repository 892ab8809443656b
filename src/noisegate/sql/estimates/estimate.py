"""From noisy whole numbers to the numbers that were asked for, with error bars at any confidence.

A bar holds the number that the exact sums (clipped and weighted as the caveats say) would give,
with at least the stated confidence, for every cell by itself. Counts and sums have the exact
interval of their noise, quantiles the bracket that was chosen with them (`columns.py`). Of many
levels at once only ranks are known: how far a value lies from the next depends on the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import chain, compress, product
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.expression import Expression
from noisegate.algebra.tally import Sums, Values
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass, field, replace
from noisegate.mechanisms.base import INPUT_MAX, Mechanism
from noisegate.privacy.domain import Key, Kind
from noisegate.sql.drafts.draft import Draft, DraftPart
from noisegate.sql.drafts.groups import Columns, Marginals, grouping_id
from noisegate.sql.drafts.purchase import Purchase, finder_of
from noisegate.sql.drafts.recipe import ADDITIVE, COUNTS, Recipe
from noisegate.sql.estimates.clipped import Clipped
from noisegate.sql.estimates.columns import (
    Ranks,
    ShownQuantiles,
    sampled_bars,
    summed_bars,
    truncated_bars,
    within_range,
)
from noisegate.sql.estimates.formulas import average_of, quotient_of
from noisegate.sql.estimates.losses import Lost, quotient, raised, spread, told
from noisegate.sql.estimates.sums import RowSums
from noisegate.sql.laws.known import (
    Bars,
    Known,
    grains_of,
    is_brackets,
    is_quantiles,
    is_thresholded,
    listed,
    pooled,
    released,
    rounded,
)
from noisegate.sql.laws.laws import Floats, as_noise, combined
from noisegate.sql.laws.sampling import Sampling, sampling_of
from noisegate.sql.question import Function

Numbers: TypeAlias = NDArray[Any]
Released: TypeAlias = NDArray[np.int64] | Sequence[Sequence[Known]]
_SURELY: Final = Fraction(9999, 10_000)
COUNTED: Final = (*COUNTS, Function.COUNT_UNITS)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One column: the numbers, and how far they may be off.

    ``kind`` DATE and TIMESTAMP have datetime64 values; their ends are in days and hours since 1970,
    and their ± in days and hours. ``bars`` and ``ranks`` are those of the grouping sets, one after
    the other; ``rows`` says which of their cells are shown. ``noise`` are the proven part of the
    bars, without what contribution bounds lose. ``sums``: what weighted sums over groups are off.
    ``scale``: digits behind the point of a decimal.
    """

    name: str
    kind: Kind
    values: Numbers
    bars: tuple[Bars, ...] = ()
    noise: tuple[Bars, ...] = ()
    ranks: tuple[Ranks, ...] = ()
    sums: RowSums | None = None
    rows: NDArray[np.bool_] = field(default_factory=lambda: np.ones(0, np.bool_))
    scale: int = 0

    def interval(self, confidence: Number, *, noise: bool = False) -> tuple[Floats, Floats] | None:
        """Lower and upper ends for each row, or None where the error is in ranks only.

        With ``noise``, those of the noise alone.
        """
        if not self.bars:
            return None
        level = fraction(confidence, name="confidence")
        found = [bars(level) for bars in (self.noise if noise else self.bars)]
        low = np.concatenate([each.low for each in found])[self.rows]
        high = np.concatenate([each.high for each in found])[self.rows]
        return low, high

    def margin(self, confidence: Number, *, noise: bool = False) -> Floats | None:
        """The half-width ± of each row: the farther end."""
        ends = self.interval(confidence, noise=noise)
        if ends is None:
            return None
        centre = self.values
        if self.kind is Kind.TIMESTAMP:
            centre = centre.astype("datetime64[h]")
        centre = centre.astype(np.float64)
        return np.maximum(np.maximum(centre - ends[0], ends[1] - centre), 0.0)

    def weights(self, rows: Mapping[int, float]) -> Floats:
        """Those of all its groups, by those of the rows that are shown."""
        found = np.zeros(self.rows.size)
        found[np.flatnonzero(self.rows)[list(rows)]] = list(rows.values())
        return found

    def rank_error(self, confidence: Number) -> int | None:
        """By how many ranks a quantile may be off; None for everything else."""
        level = fraction(confidence, name="confidence")
        return max((ranks(level) for ranks in self.ranks), default=None)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """The released table of a block: one row per group, grouping set after grouping set.

    ``kinds`` are those of the key columns.
    """

    keys: Mapping[str, tuple[Key, ...]]
    kinds: Mapping[str, Kind]
    grouping_id: tuple[int, ...] | None
    columns: Mapping[str, Estimate]
    is_raised: bool = False  # by what a cap loses, so that bars are more than noise
    blind: frozenset[tuple[bool, bool, bool]] = frozenset()  # numbers of which no look saw any unit
    is_clipped: bool = False  # to found bounds, and bars hold what that loses


def estimate(
    bought: Purchase,
    releases: Sequence[Released],
    losses: Sequence[Lost] = (),
    clips: Mapping[Expression, Clipped] = MappingProxyType({}),
) -> Estimates:
    """The table, from what was released for each part of the draft, in its order.

    A release is the whole numbers of the part's mechanisms, or, where sums were released before,
    for each term all that is known of it: several answers become their weighted average.
    ``losses`` are what caps lose, where that was looked at, and ``clips`` what found bounds lose.
    """
    draft = bought.draft
    sets = tuple(dict.fromkeys(draft.block.sets))
    if not all(draft.groups):
        sets = ()  # no group was found, so there is no row, nor a total of them
    keys, ids, rows = _rows(draft, sets)
    measured = _Measured(bought, releases, losses)
    columns = {}
    for recipe in draft.recipes:
        found = [measured.clipped(recipe, columns, clips) for columns in sets]
        if bought.top is not None and recipe.aggregate.function in COUNTED:
            found = [_truncated(each, bought.top, sampled=recipe.sampled) for each in found]
        values = np.concatenate([each.values for each in found]) if found else np.zeros(0)
        columns[recipe.aggregate.name] = Estimate(
            name=recipe.aggregate.name,
            kind=recipe.kind,
            values=_typed(values, recipe)[rows],
            bars=tuple(each.bars for each in found if each.bars is not None),
            noise=tuple(each.noise for each in found if each.noise is not None),
            ranks=tuple(each.ranks for each in found if each.ranks is not None),
            sums=found[0].sums if len(found) == 1 else None,
            rows=rows,
            scale=recipe.scale,
        )
    return Estimates(
        keys=keys,
        kinds={key.name: key.domain.kind for key in draft.block.by},
        grouping_id=ids if len(set(draft.block.sets)) > 1 else None,
        columns=columns,
        is_raised=bool(losses),
        blind=frozenset(lost.kind for lost in losses if lost.blind),
        is_clipped=bool(clips),
    )


def _rows(
    draft: Draft, sets: Sequence[Columns]
) -> tuple[dict[str, tuple[Key, ...]], tuple[int, ...], NDArray[np.bool_]]:
    """Keys and grouping ids of the rows, and which cells are rows: all, or those found."""
    count = len(draft.block.by)
    keys: list[list[Key]] = [[] for _ in range(count)]
    ids: list[int] = []
    kept: list[bool] = []
    for columns in sets:
        cells = list(product(*(draft.groups[j] for j in columns)))
        if draft.shown is not None:
            among, found = [columns.index(j) for j in draft.shown[0]], draft.shown[1]
            shown = [tuple(cell[at] for at in among) in found for cell in cells]
            kept += shown
            cells = list(compress(cells, shown))
        else:
            kept += [True] * len(cells)
        for j in range(count):
            at = columns.index(j) if j in columns else None
            keys[j] += [None if at is None else cell[at] for cell in cells]
        ids += [grouping_id(columns, count)] * len(cells)
    named = {key.name: tuple(keys[j]) for j, key in enumerate(draft.block.by)}
    return named, tuple(ids), np.array(kept, np.bool_)


@final
@dataclass(frozen=True, slots=True)
class _Column:
    """The numbers of one grouping set; ``noise`` are bars without what a cap loses."""

    values: Numbers
    bars: Bars | None
    ranks: Ranks | None = None
    noise: Bars | None = None
    sums: RowSums | None = None


@final
class _Measured:
    """The released numbers, by piece and grouping set; answers to the same question are pooled.

    Without ``consistent`` every grouping set stands for itself.
    """

    tables: dict[int, dict[Columns, list[Known]]]
    choices: dict[int, dict[Columns, ShownQuantiles]]
    marginals: dict[int, Marginals]

    def __init__(
        self,
        bought: Purchase,
        releases: Sequence[Released],
        losses: Sequence[Lost] = (),
        *,
        consistent: bool = True,
    ) -> None:
        self.draft = draft = bought.draft
        self.losses = {(lost.people, lost.apart, lost.own): lost for lost in losses}
        apart = (part.pieces for part in draft.parts if part.apart is not None)
        self.apart = frozenset(chain.from_iterable(apart))
        self.own = frozenset(chain.from_iterable(part.pieces for part in draft.parts if part.own))
        self.consistent = consistent
        self.sizes = [len(keys) for keys in draft.groups]
        self.tables, self.choices, self.marginals = {}, {}, {}
        self.grains = dict(enumerate(draft.grains))
        self.samplings: dict[int, Sampling] = {}
        if draft.decided is not None:
            self.grains[draft.decided] = Fraction(1)
            self.tables[draft.decided] = {draft.block.sets[0]: [_deciding(bought)]}
        bundle = zip(draft.parts, bought.mechanisms, releases, strict=True)
        for part, mechanisms, values in bundle:
            if part.other is not None:
                self.grains[part.pieces[0]] = grains_of(part.query)[0]
            if part.query.sample is not None and isinstance(part.query.tally, Sums):
                facts = zip(part.pieces, part.query.l1s, grains_of(part.query), strict=True)
                for piece, l1, grain in facts:
                    self.samplings[piece] = sampling_of(part.query.sample, int(l1.value), grain)
            if isinstance(values, np.ndarray):
                self._take(part, mechanisms, values)
                continue
            for piece, known in zip(part.pieces, values, strict=True):
                self.tables.setdefault(piece, {})[part.columns] = list(known)

    def _take(
        self, part: DraftPart, mechanisms: Sequence[Mechanism[Any]], values: NDArray[np.int64]
    ) -> None:
        tally, columns = part.query.tally, part.columns
        if isinstance(tally, Values):
            noise = mechanisms[0]
            if is_brackets(noise) or is_quantiles(noise):
                cells = values.reshape(self.draft.cells(columns), -1)
                chosen = ShownQuantiles(cells, noise, tally.term)
                self.choices.setdefault(part.pieces[0], {})[columns] = chosen
            return
        rows = values.reshape(len(mechanisms), -1)
        for place, (piece, grain) in enumerate(
            zip(part.pieces, grains_of(part.query), strict=True)
        ):
            row = rows[place]
            if isinstance(tally, Sums):
                row = listed(row, tally.by) if row.size == tally.cells else row
            known = released(row, as_noise(mechanisms[place]), grain)
            self.tables.setdefault(piece, {}).setdefault(columns, []).append(known)

    def clipped(
        self, recipe: Recipe, columns: Columns, clips: Mapping[Expression, Clipped]
    ) -> _Column:
        """The same with what found bounds lose in the bars of all but quantiles."""
        asked, rows = recipe.aggregate, None
        lost = [clips.get(arg) for arg in asked.args if asked.function in ADDITIVE]
        found = self.column(recipe, columns, lost if len(lost) > 1 else ())
        if not any(lost) or len(lost) > 1:
            return found
        if asked.function is not Function.SUM and recipe.count is not None:
            rows = np.maximum(self.known(recipe.count, columns).values.astype(np.float64), 1.0)
        assert found.bars is not None  # noqa: S101 - sums and averages have some
        bars = clips[asked.args[0]].wider(recipe, found.values, rows, found.bars)
        return replace(found, bars=bars, sums=None)

    def column(
        self, recipe: Recipe, columns: Columns, clips: Sequence[Clipped | None] = ()
    ) -> _Column:
        """The numbers of one grouping set, with bars or ranks; ``clips`` are of two arguments."""
        if recipe.direct in self.choices:
            chosen = self.choices[recipe.direct][columns]
            bars = chosen.bars(recipe)
            return _Column(chosen.values(recipe.level), bars, chosen.ranks(recipe.level), bars)
        if recipe.direct is not None:
            known = self.known(recipe.direct, columns)
            return self._all(recipe, known, *self._shown(recipe, known))
        means = [self.known(mean.piece, columns) for mean in recipe.means]
        assert recipe.count is not None  # noqa: S101 - made of averages
        count = self.known(recipe.count, columns)
        if recipe.aggregate.function is Function.SUM:
            middle = recipe.means[0].middle
            law = combined([(Fraction(1), means[0].law), (middle, count.law)])
            factor = int(middle) if middle.denominator == 1 else float(middle)
            known = Known(means[0].values + factor * count.values, law)
            return self._all(recipe, known, *self._shown(recipe, known, count))
        if recipe.means[0].piece in self.apart:
            return self._quotient(recipe, means[0], count)
        sampling = self.samplings[recipe.count] if recipe.sampled else None
        values, bars = average_of(recipe, means, count, sampling)
        lost = self.lost(recipe)
        if lost is None and not any(clips):
            return _Column(values, bars, noise=bars)
        if lost is not None and sampling is None and not lost.units:
            lost = spread(lost, count.values.astype(np.float64))
        loss = None if lost is None else lost.loss
        return _Column(*average_of(recipe, means, count, sampling, loss, clips), noise=bars)

    def _quotient(self, recipe: Recipe, total: Known, count: Known) -> _Column:
        """An average whose sum and count have caps of their own."""
        sums, rows = (self.losses.get((False, apart, False)) for apart in (True, False))
        if sums is None or rows is None:
            values, bars = average_of(recipe, [total], count, None)
            return _Column(values, bars, noise=bars)
        parts = quotient(recipe, total, count, sums, rows)
        values, noise = quotient_of(recipe, parts, lossless=True)
        return _Column(values, quotient_of(recipe, parts)[1], noise=noise)

    def lost(self, recipe: Recipe) -> Lost | None:
        """What a cap loses of a number, if that is known."""
        is_people = recipe.aggregate.function is Function.COUNT_UNITS
        return self.losses.get((is_people, recipe.direct in self.apart, recipe.count in self.own))

    def _all(self, recipe: Recipe, known: Known, values: Numbers, bars: Bars) -> _Column:
        """A count or a sum of all there is, where it is known what a cap loses of it."""
        found = self.lost(recipe)
        lost = None if found is None else told(found, recipe, values, bars)
        is_rounded = recipe.kind is Kind.INTEGER and (
            known.values.dtype != np.int64 or lost is not None
        )
        step = 10.0**-recipe.scale if is_rounded or recipe.scale else 0.0
        sums = None if recipe.sampled else RowSums(
            law=known.law, values=known.values.astype(np.float64), step=step,
            recipe=recipe, lost=lost, bars=None if known.at_least is None else bars,
        )  # fmt: skip
        if lost is None:
            return _Column(values, bars, noise=bars, sums=sums)
        values, bars, noise = raised(lost, recipe, values, bars)
        return _Column(values, bars, noise=noise, sums=sums)

    def _shown(
        self, recipe: Recipe, known: Known, count: Known | None = None
    ) -> tuple[Numbers, Bars]:
        """A count or a sum, whole where its kind is; those of a sample err by sampling too.

        A sum that is derived has the ``count`` of its rows.
        """
        values: Numbers = known.values
        bars: Bars = known.bars
        if recipe.kind is Kind.INTEGER:
            pieces = (recipe.direct, recipe.count, *(mean.piece for mean in recipe.means))
            grains = [self.grains[piece] for piece in pieces if piece is not None]
            whole = all(grain.denominator == 1 for grain in grains)
            values, bars = rounded(known, exact_is_whole=whole)
        if not recipe.sampled:
            return values, bars
        if recipe.direct is None:
            assert recipe.count is not None  # noqa: S101 - it is derived
            assert count is not None  # noqa: S101
            return values, summed_bars(
                bars, count.bars, self.samplings[recipe.count], recipe.means[0]
            )
        sampling = self.samplings[recipe.direct]
        if any(abs(draws.factor) != self.grains[recipe.direct] for draws in known.law.draws):
            sampling = replace(sampling, ones=False)  # an average of several samples
        return values, sampled_bars(bars, sampling)

    def known(self, piece: int, columns: Columns) -> Known:
        """One piece over one grouping set: as measured, added up, or made consistent."""
        if piece >= len(self.draft.grains) or not self.consistent:
            return pooled(self.tables[piece][columns])
        if piece not in self.marginals:
            tables = {at: pooled(answers) for at, answers in self.tables[piece].items()}
            self.marginals[piece] = Marginals(tables, self.sizes)
        return self.marginals[piece].known(columns)


def _truncated(column: _Column, top: int, *, sampled: bool) -> _Column:
    """Counts of a public range, with bars of their own near its ends."""
    shown = np.clip(column.values, 0, top)
    if column.bars is None or column.noise is not column.bars or sampled:
        kept = None if column.bars is None else within_range(column.bars, top)
        return replace(column, values=shown, bars=kept, sums=None)
    bars = truncated_bars(column.values.astype(np.float64), column.bars, top)
    return replace(column, values=shown, bars=bars, noise=bars, sums=None)


def _deciding(bought: Purchase) -> Known:
    """The units of each group whose noisy counts decided that they are shown.

    Before that, a guess that is far above the threshold, where being shown says nothing.
    """
    finder = finder_of(bought.keys[0])
    assert is_thresholded(finder)  # noqa: S101 - it releases counts
    guess = finder.threshold + 2 * finder.noise.interval(_SURELY)
    values = bought.draft.counted(guess)
    return replace(released(values, finder.noise, Fraction(1)), at_least=finder.threshold)


def _typed(values: Numbers, recipe: Recipe) -> Numbers:
    """The numbers in the recipe's kind; days and hours since 1970 as dates and times."""
    if recipe.kind is Kind.NUMBER:
        made = values.astype(np.float64)
        return np.round(made, recipe.scale) if recipe.scale else made
    if recipe.kind is Kind.INTEGER:
        return values.astype(np.int64)
    if recipe.kind is Kind.DATE:
        return values.astype(np.int64).astype("datetime64[D]")
    if recipe.kind is Kind.TIMESTAMP:
        return values.astype(np.int64).astype("datetime64[h]").astype("datetime64[us]")
    return values


def predicted(
    bought: Purchase,
    confidence: Number,
    *,
    rows: int | None = None,
    known: Callable[[int, NDArray[np.int64]], Released] = lambda _, guessed: guessed,
) -> dict[str, float | None]:
    """The ± to expect of each aggregate before anything is paid: the worst of its grouping sets.

    Counts and sums err by their noise alone. Averages and the like depend on how many rows there
    are: ``rows`` is a released or otherwise known number of rows, spread evenly over the groups. An
    upper bound would promise too much. Without it they are None, and so are those with a FILTER of
    their own, and many quantiles at once, whose error is in ranks. Where groups are still to be
    found, every grouping set is taken by itself: making them consistent errs less.
    """
    level = fraction(confidence, name="confidence")
    if not all(bought.draft.groups):  # nothing will be shown
        return dict.fromkeys(recipe.aggregate.name for recipe in bought.draft.recipes)
    sets = tuple(dict.fromkeys(bought.draft.block.sets))
    parts = range(len(bought.mechanisms))
    guessed = [_pretended(bought, part, rows) for part in parts]
    answers = [known(part, guessed[part]) for part in parts]
    blank = _Measured(bought, answers, consistent=bought.draft.is_found)
    found: dict[str, float | None] = {}
    for recipe in bought.draft.recipes:
        widths: list[float] = []
        for columns in sets:
            shown = blank.column(recipe, columns)
            if shown.bars is None or not recipe.is_foreseen(rows):
                continue
            values, ends = shown.values, shown.bars(level)
            widths.append(float(np.max(np.maximum(values - ends.low, ends.high - values))))
        found[recipe.aggregate.name] = max(widths) if len(widths) == len(sets) else None
    return found


def _pretended(bought: Purchase, place: int, rows: int | None) -> NDArray[np.int64]:
    """What a part would give if rows were spread evenly and values over their bounds."""
    part = bought.draft.parts[place]
    tally, cells = part.query.tally, bought.draft.cells(part.columns)
    each = Fraction(rows or 0) / cells
    if not isinstance(tally, Sums):
        noise = bought.mechanisms[place][0]
        if is_brackets(noise):
            return np.tile(noise.expected(int(each)), (cells, 1))
        width = 1 if part.other is None else max(1, len(part.other.levels))
        return np.zeros((cells, width), np.int64)
    wanted: dict[int | None, Fraction] = {recipe.count: each for recipe in bought.draft.recipes}
    wanted |= {
        recipe.direct: each * Fraction(recipe.typical)
        for recipe in bought.draft.recipes
        if recipe.sampled
    }
    for mean in (mean for recipe in bought.draft.recipes for mean in recipe.means):
        half = max(mean.high - mean.middle, mean.middle - mean.low)
        wanted[mean.piece] = each * half
    table = [
        min(int(wanted.get(piece, Fraction(0)) / grain), INPUT_MAX)
        for piece, grain in zip(part.pieces, grains_of(part.query), strict=True)
    ]
    return np.repeat(np.array(table, np.int64)[:, None], cells, axis=1)
