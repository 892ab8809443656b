"""Our own: look at all pairs of columns, measure what matters most, and follow no noise.

    columns   each column by itself, those with many values for more of the price
    look      how far all pairs are from independent columns, in one measurement
    stages    the pairs that say most, first as a tree over the columns; a model after each stage
    look      how far all tables of the workload are from that model
    rest      tables for shares that lower the expected error most
    shrink    what a table says beyond the model before it, as far as it is not noise [EM73]
    fit       the distribution of highest entropy for as many tables as the model can hold
    targets   if some did not fit in: rows drawn from the model are moved towards all tables

A look moves by 1 for each table, so all tables together by the square root of their number: at ε =
1 and 50,000 rows it is right to half a percent of the rows. Steps that would be mostly noise are
left out, by the number of rows and the price alone: then more is left for the others. With few rows
one look, for more of the price, finds a tree of pairs; with fewer, the columns are all there is.
Measuring what is far off is the idea of AIM [MMSM22] and PrivSyn [ZWLHBHCZ21]; one look instead of
many choices saves the time, shrinking halves the error.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import log, prod, sqrt
from typing import Final, final

import numpy as np

from noisegate.releases.cells.estimate import Floats, simplex
from noisegate.releases.fit.residuals import Axes, Parts, Question, Sizes, centred, combine
from noisegate.synthetic.asking import TablesAsk
from noisegate.synthetic.model.model import Evidence, Model, fit
from noisegate.synthetic.recipes import Fit, Known, Planned, TablesWorkload, Total
from noisegate.synthetic.recipes.shared import (
    Modelled,
    columns_shares,
    measured,
    pairs_of,
    singles_of,
    spanning,
)
from noisegate.synthetic.sharing import MEAN, Item, allotted

_SINGLES: Final = Fraction(3, 20)  # shares of the price
_LOOKS: Final = (Fraction(1, 100), Fraction(1, 50), Fraction(1, 20))
_LARGE: Final = Fraction(1, 5)  # of a look with few rows
_STAGES: Final = 2
_STAGE: Final = Fraction(2, 5)  # of what is left then
_TELLS: Final = 0.1  # noise of a look, as a share of the rows: above this it is left out
_AGAIN: Final = 0.02  # the same for further ones
_FINE: Final = 0.003  # noise of a look that is fine enough
_CLEAR: Final = 2.0  # standard deviations of a look from which a table may be in a stage
_POWER: Final = 1.4  # errors of columns and of what pairs say beyond them add up by this power
_SPLITS: Final = 10
_LITTLE: Final = 1e-3  # share of the rows: tables that say less beyond the model are not fitted
_BEYOND_NOISE: Final = 4.0  # squared standard deviations beyond the largest of so many draws
_ROUNDS: Final = 100


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Auto(Modelled):
    """Looks, measures, shrinks and fits. The model has at most ``cells_max`` cells."""

    def planned(  # noqa: D102 - see Synthesizer
        self,
        sizes: Sizes,
        workload: TablesWorkload,
        *,
        gaussian: bool,  # noqa: ARG002 - the same
    ) -> tuple[Planned, ...]:
        first, every = (columns_shares(sizes, workload, part) for part in (_SINGLES, Fraction(1)))
        columns = Planned("a column", min(first.values()), max(every.values()))
        tables = {*pairs_of(workload.sets), *(axes for axes in workload.sets if len(axes) > 1)}
        if not tables:
            return (columns,)
        alike = (1 - _SINGLES - (1 + _STAGES) * _LOOKS[-1]) / len(tables)
        return columns, Planned("a table, if all are measured equally", alike, alike)

    def build(
        self, ask: TablesAsk, workload: TablesWorkload, *, known: Known = (), total: Total = None
    ) -> Fit:
        """Ask in up to five rounds, and fit."""
        return _Steps(ask, workload, known, total, self.cells_max).run()


class _Steps:
    """What is known so far: answers, what is left of the price, and what follows from answers."""

    parts: Parts
    total: float
    singles: list[Floats]

    def __init__(
        self,
        ask: TablesAsk,
        workload: TablesWorkload,
        known: Sequence[Evidence],
        total: float | None,
        cells_max: int,
    ) -> None:
        self.ask, self.sizes = ask, ask.sizes
        self.known = [each for each in known if each.labels is not None]
        whole = ask.variance(Fraction(1))
        self.scaled = [replace(each, variance=each.variance / whole) for each in self.known]
        self.totals = [_total(each) for each in self.known if each.labels.min() >= 0]  # type: ignore[union-attr]
        self.fixed, self.cells_max, self.workload = total, cells_max, workload
        self.pairs = self._small(pairs_of(workload.sets))
        larger = self._small(axes for axes in workload.sets if len(axes) > 2)
        self.wanted = [*self.pairs, *larger]
        self.answers = [each for each in known if each.labels is None]
        out = {each.axes for each in self.answers if len(each.axes) > 1} - set(self.wanted)
        self.wanted += self._small(sorted(out))
        self.weights = {axes: float(workload.weight(axes)) for axes in self.wanted}
        self.left = Fraction(1)
        self.early: dict[Axes, Floats] = {}  # tables of stages, and what was guessed before
        self.model: Model | None = None
        self.words: list[str] = []

    def run(self) -> Fit:
        self.measure(self.columns(_SINGLES))
        if self.pairs and self.noise(_LOOKS[-1], self.pairs) <= _TELLS:
            self.beyond_columns()
        elif self.pairs and self.noise(_LARGE, self.pairs) <= _TELLS:
            self.tree(_LARGE)
        else:
            self.measure(self.columns(self.left))
        self.ask.done(0.6, "fitting")
        model, targets = self.modelled()
        asked = len({each.axes for each in self.answers if len(each.axes) > 1})
        tables = "1 table" if asked == 1 else f"{asked} tables"
        self.words.append(f"measured {len(self.sizes)} columns and {tables} of several")
        if not model.left_out:
            return Fit(model, (*self.answers, *self.known), tuple(self.words))
        self.words.append(f"{len(model.left_out)} tables did not fit into the model")
        towards = tuple(Evidence(axes, values, 1.0) for axes, values in targets.items())
        return Fit(model, (*self.answers, *self.known), tuple(self.words), towards)

    # what to ask

    def beyond_columns(self) -> None:
        """Look at pairs, and measure what they and larger tables say."""
        guesses = {axes: self.even(axes) for axes in self.wanted}
        share = self.glance(self.pairs)
        off = self.look({pair: guesses[pair] for pair in self.pairs}, share)
        spent = self.split({pair: self.item(pair, guesses[pair], off[pair]) for pair in self.pairs})
        if spent > 0:
            self.measure(self.columns(self.left * spent))
        if spent == 1:
            return
        for stage in range(_STAGES):
            again = self.glance(self.wanted)
            if len(self.wanted) <= 2 or self.noise(again, self.wanted) > _AGAIN:
                break
            noise = sqrt(self.ask.distance_variance(len(off), share))
            clear = {axes: far for axes, far in off.items() if far > _CLEAR * noise}
            if stage == 0:
                by_weight = {axes: self.weights[axes] * far for axes, far in clear.items()}
                clear = {axes: clear[axes] for axes in spanning(by_weight)}
            items = {axes: self.item(axes, guesses[axes], far) for axes, far in clear.items()}
            best = sorted(items, key=lambda axes: (-items[axes].gain, axes))[: len(self.sizes)]
            shares, _ = allotted(self.ask, {s: items[s] for s in best}, self.left * _STAGE)
            if not shares:
                break
            self.measure(shares)
            self.early |= {axes: guesses[axes] for axes in shares}
            self.ask.done(0.2 * (stage + 1), "measured the most informative tables")
            model = self.fitted({axes: self.target(axes, g) for axes, g in self.early.items()})
            guesses, share = model.tables(self.wanted), again
            off = self.look(guesses, share)
        items = {axes: self.item(axes, guesses[axes], far) for axes, far in off.items()}
        for axes in self.early:
            beyond = float(np.abs(guesses[axes] - self.even(axes)).sum())
            known = self.parts.precision[axes]
            items[axes] = self.item(axes, self.even(axes), beyond, precision=known)
        self.measure(allotted(self.ask, items, self.left)[0])

    def tree(self, share: Fraction) -> None:
        """Where few rows are seen: a look for much of the price, and a tree of what stands out."""
        guesses = {pair: self.even(pair) for pair in self.pairs}
        off = self.look(guesses, share)
        noise = sqrt(self.ask.distance_variance(len(off), share))
        clear = {s: self.weights[s] * far for s, far in off.items() if far > _CLEAR * noise}
        items = {s: self.item(s, guesses[s], off[s]) for s in spanning(clear)}
        spent = self.split(items) if items else Fraction(1)
        if spent > 0:
            self.measure(self.columns(self.left * spent))
        if spent < 1:
            self.measure(allotted(self.ask, items, self.left)[0])

    def item(self, axes: Axes, guess: Floats, far: float, *, precision: float = 0.0) -> Item:
        """A table that is so far from its guess, by its weight."""
        return Item.of(guess, far, weight=self.weights[axes], precision=precision)

    def glance(self, sets: Sequence[Axes]) -> Fraction:
        """The share of a look: the smallest with little noise, or the largest."""
        return next((s for s in _LOOKS if self.noise(s, sets) <= _FINE), _LOOKS[-1])

    def look(self, guesses: Mapping[Axes, Floats], share: Fraction) -> dict[Axes, float]:
        """How far tables are from guesses, without what the noise of single columns adds."""
        self.left -= share
        noisy = self.ask.distances(guesses, share)
        alone = self.columns_off(np.zeros(len(self.sizes))) ** _POWER
        found = {}
        for axes, far in zip(guesses, noisy.values.tolist(), strict=True):
            beyond = max(far, 0.0) ** _POWER - sum(alone[a] for a in axes)
            found[axes] = max(beyond, 0.0) ** (1 / _POWER)
        return found

    def split(self, items: Mapping[Axes, Item]) -> Fraction:
        """Which part of what is left goes to single columns: that with the least expected error."""
        power, whole = 1 if self.ask.gaussian else 2, self.ask.variance(Fraction(1))
        errors = []
        for step in range(_SPLITS + 1):
            part = Fraction(step, _SPLITS)
            columns = self.columns(self.left * part) if part else {}
            shares = allotted(self.ask, items, self.left * (1 - part))[0] if part < 1 else {}
            known = {s: float(share) ** power / whole for s, share in {**columns, **shares}.items()}
            more = np.zeros(len(self.sizes))
            for axes, precision in known.items():
                for a in axes:
                    more[a] += precision * self.sizes[a] / prod(self.sizes[b] for b in axes)
            alone = self.columns_off(more) ** _POWER
            off = 0.0
            for axes, item in items.items():
                own = float(item.off(np.array([known.get(axes, 0.0)]))[0])
                both = (own**_POWER + sum(alone[a] for a in axes)) ** (1 / _POWER)
                off += item.weight * both
            errors.append(off)
        return Fraction(int(np.argmin(errors)), _SPLITS)

    def measure(self, shares: Mapping[Axes, Fraction]) -> None:
        """Ask for tables, and put what they say about the columns together."""
        if not shares:
            return
        self.left -= sum(shares.values())
        self.answers += measured(self.ask, list(shares), list(shares.values()))
        told = (*self.answers, *self.totals)
        self.parts = combine(self.sizes, [(Question(e.axes), e) for e in told])  # type: ignore[misc]
        self.total = max(1.0, float(self.parts.values[()])) if self.fixed is None else self.fixed
        self.singles = [simplex(self.parts.table(a), self.total) for a in singles_of(self.sizes)]

    def columns(self, budget: Fraction) -> dict[Axes, Fraction]:
        """Shares for single columns, as `Independent` has them."""
        return columns_shares(self.sizes, self.workload, budget)

    def columns_off(self, more: Floats) -> Floats:
        """Σ|error| of each single column, after measurements of so much more precision."""
        found = []
        for (axis,), cells in zip(singles_of(self.sizes), self.singles, strict=True):
            variance = 1 / (1 / self.parts.cell_variance((axis,)) + more[axis])
            found.append(MEAN * np.sqrt(variance * cells**2 / (variance + cells**2)).sum())
        return np.array(found)

    def noise(self, share: Fraction, sets: Sequence[Axes]) -> float:
        """Of a look at tables, as a share of the rows, like a total variation distance."""
        return sqrt(self.ask.distance_variance(len(sets), share)) / (2 * self.total)

    # what follows from the answers

    def modelled(self) -> tuple[Model, dict[Axes, Floats]]:
        """The model, and the best guess of each table of the workload.

        Each table is shrunk towards a model that does not know it: those of a stage towards the
        stage before or independent columns, larger ones towards all pairs.
        """
        targets = {axes: self.target(axes, guess) for axes, guess in self.early.items()}
        used, asked = dict(targets), {each.axes for each in self.answers}
        late = [axes for axes in self.wanted if axes not in self.early]
        model = self.model or self.fitted(used)
        for size in sorted({len(axes) for axes in late}):
            new = [axes for axes in late if len(axes) == size]
            guesses = model.tables(new)
            for axes in new:
                known = axes in asked
                targets[axes] = self.target(axes, guesses[axes]) if known else guesses[axes]
            gains = {s: float(np.abs(targets[s] - guesses[s]).sum()) for s in new}
            told = [s for s in new if gains[s] > _LITTLE * self.total]
            first = sorted(told, key=lambda s: (-self.weights[s] * gains[s], s))
            used |= {axes: targets[axes] for axes in first}
            model = self.fitted(used)
        return model, targets

    def fitted(self, targets: Mapping[Axes, Floats]) -> Model:
        """Fitted to single columns and targets, which all count the same."""
        singles = zip(singles_of(self.sizes), self.singles, strict=True)
        evidence = [Evidence(axes, values, 1.0) for axes, values in (*singles, *targets.items())]
        self.model = fit(
            self.sizes,
            [*evidence, *self.scaled],
            total=self.total,
            start=self.model,
            cells_max=self.cells_max,
            rounds=_ROUNDS,
        )
        return self.model

    def target(self, axes: Axes, guess: Floats) -> Floats:
        """The guess, and what was measured beyond it as far as it is not noise.

        A cell is off by a variance in proportion to the guess, with the factor that the table as a
        whole shows [EM73]; one that is off by more than noise makes any cell speaks for itself.
        """
        shape = [self.sizes[a] for a in axes]
        table, noise = guess.reshape(shape), 1 / self.parts.precision[axes]
        beyond = self.parts.values[axes].reshape(shape) - centred(table)
        freedom = prod(1 - 1 / size for size in shape)
        excess = max(0.0, float((beyond**2).sum()) - noise * freedom * beyond.size)
        signal = np.maximum(table, 0) * excess / max(float(table.sum()), 1.0)
        clear = beyond**2 > (2 * log(beyond.size) + _BEYOND_NOISE) * noise
        signal[clear] = np.maximum(signal[clear], beyond[clear] ** 2)
        found: Floats = table + beyond * signal / (signal + noise)
        return found.ravel()

    def even(self, axes: Axes) -> Floats:
        """The table if columns were independent."""
        found = np.array(self.total)
        for a in axes:
            found = np.multiply.outer(found, self.singles[a] / self.total)
        return found.ravel()

    def _small(self, sets: Iterable[Axes]) -> list[Axes]:
        return [axes for axes in sets if prod(self.sizes[a] for a in axes) <= self.cells_max]


def _total(whole: Evidence) -> Evidence:
    """What sums over all cells say about the number of rows."""
    return Evidence((), np.array([whole.values.sum()]), whole.variance * len(whole.values))
