"""Our own: look at all pairs of columns, measure what matters most, and follow no noise.

    count     at pure ε: where so few rows hide all pairs, columns have all of the price
    columns   each by itself, those with many values for more of the price; at pure ε a few small
              ones together, whose table says more about each; less uneven than noise makes them
    look      how far all pairs are from independent columns, in one measurement
    stages    the pairs that say most, first as a tree over the columns; a model after each stage
    look      how far all tables of the workload are from that model
    rest      tables for shares that lower the expected error most
    shrink    what a table says beyond the model before it, as far as it is not noise [EM73]
    fit       the distribution of highest entropy for as many tables as the model can hold
    targets   if some did not fit in: rows drawn from the model are moved towards all tables

A look moves by 1 for each table, so all tables together by the square root of their number: at ε =
1 and 50,000 rows it is right to half a percent of the rows. Steps that would be mostly noise are
left out, by the number of rows and the price alone: then more is left for the others.

Where few rows or many columns leave a look mostly noise, the pairs of a tree are picked one at a
time by the exponential mechanism, as in MST [MMS21], whose noise does not grow with the number of
pairs. No pair is picked unless it passes what noise alone would make of the largest, and a first
pick is looked at before more is spent where pairs are dear: of independent columns little is lost.

Measuring what is far off is the idea of AIM [MMSM22] and PrivSyn [ZWLHBHCZ21]; one look instead of
many choices saves the time, shrinking halves the error.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import log, prod, sqrt
from typing import Final, final

import numpy as np

from noisegate.frozen import dataclass, replace
from noisegate.releases.cells.workload import Floats
from noisegate.releases.fit.residuals import Axes, Parts, Question, Sizes, centred, combine
from noisegate.synthetic.asking import TablesAsk
from noisegate.synthetic.model.model import Evidence, Model, fit
from noisegate.synthetic.recipes import Fit, Known, Planned, TablesWorkload, Total
from noisegate.synthetic.recipes.shared import (
    Modelled,
    columns_shares,
    evened,
    groups_shares,
    measured,
    pairs_of,
    shrunk,
    singles_of,
    spanning,
    trees_joined,
    trees_of,
)
from noisegate.synthetic.sharing import MEAN, Item, allotted

_COUNT: Final = Fraction(1, 100)  # shares of the price
_SINGLES: Final = Fraction(3, 20)
_ONCE: Final = Fraction(1, 4)  # of columns, where two shares say less than one for both
_LOOKS: Final = (Fraction(1, 100), Fraction(1, 50), Fraction(1, 20))
_LARGE: Final = (Fraction(1, 20), Fraction(1, 10), Fraction(1, 5))  # of the only one
_STAGES: Final = 2
_STAGE: Final = Fraction(2, 5)  # of what is left then
_TELLS: Final = 0.1  # noise of a look, as a share of the rows: above this it is left out
_AGAIN: Final = 0.02  # the same for further ones
_TOGETHER: Final = 3.01  # times the noise of as many picks, for the same: the most of a look
_FINE: Final = 0.003  # noise of a look that is fine enough
_CLEAR: Final = 2.0  # standard deviations of a look from which a table may be in a stage
_POWER: Final = 1.4  # errors of columns and of what pairs say beyond them add up by this power
_SPLITS: Final = 10
_LITTLE: Final = 1e-3  # share of the rows: tables that say less beyond the model are not fitted
_EXPLAINS: Final = 1.5  # times the variance of noise: distances that vary less say the same
_ROUNDS: Final = 100
# where pairs are picked one by one
_FIRST: Final = Fraction(1, 30)  # the share of a first pair at most, and of how far it is
_MORE: Final = Fraction(3, 20)  # then for columns, where shares add up
_PICKS: Final = Fraction(1, 4)  # for all picks
_PICK: Final = 0.03  # noise of a pick that is fine enough, as a share of the rows
_PICK_OF: Final = 0.3  # the same of further ones, beside that of pairs
_PICK_MOST: Final = 0.05  # and at most
_PAIRS_LOOK: Final = Fraction(1, 10)  # the share of a look at them, at most
_FINE_PAIRS: Final = 0.02  # noise of it that is fine enough
_CHEAP: Final = 0.04  # noise of pairs, as a share of the rows, that needs no evidence first
_STANDS: Final = 5.0  # standard deviations of evidence for pairs that would be noise alone
_DEAR: Final = 0.5  # of that, at most
_HIDES: Final = 0.25  # noise of picks, as a share of the rows, that hides all pairs
_FEW: Final = 12  # columns that leave enough for each step, where shares count by their squares


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Auto(Modelled):
    """Looks, measures, shrinks and fits. The model has at most ``cells_max`` cells."""

    def planned(  # noqa: D102 - see Synthesizer
        self,
        sizes: Sizes,
        workload: TablesWorkload,
        *,
        gaussian: bool,
    ) -> tuple[Planned, ...]:
        shares = columns_shares if gaussian else groups_shares
        every = shares(sizes, workload, Fraction(1))
        alone = max(map(len, every)) == 1
        first = shares(sizes, workload, _SINGLES if alone or len(every) > 1 else 1 - _COUNT)
        what = "a column" if alone else "a column, or of a few small ones together"
        columns = Planned(what, min(first.values()), max(every.values()))
        if len(every) == 1:
            return (columns,)
        tables = {*pairs_of(workload.sets), *(axes for axes in workload.sets if len(axes) > 1)}
        if not tables:
            return (columns,)
        alike = (1 - _SINGLES - (1 + _STAGES) * _LOOKS[-1]) / len(tables)
        return columns, Planned("a table, if all are measured equally", alike, alike)

    def build(
        self, ask: TablesAsk, workload: TablesWorkload, *, known: Known = (), total: Total = None
    ) -> Fit:
        """Ask in a few rounds, and fit."""
        return _Steps(ask, workload, known, total, self.cells_max).run()


class _Steps:
    """What is known so far: answers, what is left of the price, and what follows from answers."""

    parts: Parts
    total: float
    singles: list[Floats]
    alone: Floats  # how far off single columns are, to the power

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
        shares = columns_shares if ask.gaussian else groups_shares
        self.columns = partial(shares, self.sizes, workload)
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
        if self.hidden():
            self.measure(self.columns(self.left))
        else:
            once = not (self.ask.gaussian or self.tells())
            self.measure(self.columns(_ONCE if once else _SINGLES))
            if self.tells():
                self.beyond_columns()
            else:
                self.tree()
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

    def hidden(self) -> bool:
        """Whether noise hides all pairs: then columns are measured at once.

        In a pure account two tables for halves of a price have twice the variance of one for all.
        """
        if not self.pairs or self.ask.gaussian:
            return not self.pairs
        if self.fixed is None:
            smallest = self.sizes.index(min(self.sizes))
            self.answers += measured(self.ask, [(smallest,)], [_COUNT])
            self.left -= _COUNT
            self.total = max(1.0, float(self.answers[-1].values.sum()))
        else:
            self.total = self.fixed
        return len(self.columns(self.left)) == 1 or (not self.tells() and self.unseen())

    def tells(self) -> bool:
        """Whether a look at all pairs has little noise, or tells as much as picks for its price."""
        singly = self.noise(_LOOKS[-1] / trees_joined(self.pairs), self.pairs[:1])
        fair = min(_TELLS, _TOGETHER * singly)
        return self.noise(_LOOKS[-1], self.pairs) <= max(_AGAIN, fair)

    def unseen(self) -> bool:
        """Whether no pick would be more than noise."""
        hides = _HIDES * (1.0 if self.ask.gaussian else min(1.0, _FEW / len(self.sizes)))
        if self.by_noise(self.each(), len(self.sizes)) > hides * self.total:
            return True
        first = self.least(_PICK, _FIRST)
        return self.pairs_off() > _CHEAP and self.noise(first, self.pairs[:1]) > _TELLS

    def each(self) -> Fraction:
        """The share of each pick of a tree."""
        return self.least(min(self.pairs_off() * _PICK_OF, _PICK_MOST), _PICKS / len(self.sizes))

    def beyond_columns(self) -> None:
        """Look at pairs, and measure what they and larger tables say."""
        guesses = {axes: self.even(axes) for axes in self.wanted}
        share = self.glance(self.pairs)
        if self.noise(share, self.pairs) > _AGAIN:  # the only look: it is to be as fine as pairs
            wanted = self.pairs_off() / 2
            share = next((s for s in _LARGE if self.noise(s, self.pairs) <= wanted), _LARGE[-1])
        off = self.drawn({pair: guesses[pair] for pair in self.pairs}, share)
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

    def tree(self) -> None:
        """Where a look would be mostly noise: pairs of a tree, as far as they stand out."""
        guesses = {pair: self.even(pair) for pair in self.pairs}
        off = self.picked(guesses)
        items = {s: self.item(s, self.even(s), far) for s, far in off.items()}
        spent = self.split(items) if items else Fraction(1)
        if spent > 0:
            self.measure(self.columns(self.left * spent))
        if spent < 1:
            self.measure(allotted(self.ask, items, self.left)[0])

    def drawn(self, guesses: Mapping[Axes, Floats], share: Fraction) -> dict[Axes, float]:
        """A look at pairs, all as far as their mean where noise explains how they differ."""
        self.left -= share
        usual = np.array(list(self.usuals(guesses).values()))
        seen = self.ask.distances(guesses, share).values - usual
        if seen.var() < _EXPLAINS * self.ask.distance_variance(len(guesses), share):
            seen = np.full(len(seen), seen.mean())
        return self.beyond(dict(zip(guesses, (usual + seen).tolist(), strict=True)))

    def picked(self, guesses: Mapping[Axes, Floats]) -> dict[Axes, float]:
        """Where a look at all pairs would be noise: pairs that are picked, and how far they are.

        Pairs that are dear to measure are picked only if one of them stands out.
        """
        if self.unseen():
            return {}
        far, pairs, each = self.total / 2, self.pairs_off(), self.each()
        if pairs > _CHEAP:
            share = self.least(_PICK, _FIRST)
            first = self.pick(guesses, self.usuals(guesses), share)
            self.left -= share
            seen = float(self.ask.distances({first: guesses[first]}, share).values[0])
            unsure = self.ask.distance_variance(1, share) + self.columns_unsure(first)
            beyond = seen - self.usuals({first: guesses[first]})[first]
            far = self.beyond({first: seen})[first]
            if beyond < min(_DEAR, sqrt(pairs)) * _STANDS * sqrt(unsure):
                return {}
        if self.ask.gaussian:
            self.measure(self.columns(_MORE))
            guesses = {pair: self.even(pair) for pair in self.pairs}
        edges = self.picks(guesses, each)
        if not self.ask.gaussian or not edges:
            return dict.fromkeys(edges, far)
        share = self.least(_FINE_PAIRS, _PAIRS_LOOK, len(edges))
        return self.drawn({pair: guesses[pair] for pair in edges}, share)

    def picks(self, guesses: Mapping[Axes, Floats], share: Fraction) -> list[Axes]:
        """A tree over columns that stand out, one pair after the other, or none of them.

        Each column in turn is joined by the furthest pair between its tree and all others, which is
        in the heaviest tree [Boruvka]. Of many noisy scores the largest is large by noise alone: no
        pair is picked unless it passes that.
        """
        count, less = len(self.sizes), self.usuals(guesses)
        found: list[Axes] = []
        for axis in range(count):
            tree = trees_of(count, found)
            own = [each == tree[axis] for each in tree]
            near = {s: guesses[s] for s in self.pairs if own[s[0]] != own[s[1]]}
            if near:
                chosen = self.pick(near, less, share, none=self.by_noise(share, len(near)))
                found += [chosen] if chosen else []
            self.ask.done(0.3 * axis / count, "choosing a tree")
        return sorted(found)

    def pick(
        self,
        guesses: Mapping[Axes, Floats],
        less: Mapping[Axes, float],
        share: Fraction,
        *,
        none: float | None = None,
    ) -> Axes:
        """A pair that is nearly the furthest from its guess, beyond what independent columns are.

        With ``none``, it may be no pair, as if that were so far.
        """
        self.left -= share
        if none is not None:
            guesses, less = {**guesses, (): np.array([self.total])}, {**less, (): -none}
        weights = {axes: self.workload.weight(axes) for axes in guesses}
        return self.ask.furthest(guesses, share, weights=weights, less=less)

    def by_noise(self, share: Fraction, count: int) -> float:
        """How large the largest of so many scores of a pick is by its noise alone, about."""
        scale = sqrt(self.ask.distance_variance(1, share) * (1 if self.ask.gaussian else 2))
        return scale * log(count)

    def least(self, noise: float, most: Fraction, count: int = 1) -> Fraction:
        """The least share of a look at so many tables with so little noise, or the most."""
        shares = (most / 2**halved for halved in range(12, 0, -1))
        return next((s for s in shares if self.noise(s, self.pairs[:count]) <= noise), most)

    def usuals(self, guesses: Mapping[Axes, Floats]) -> dict[Axes, float]:
        """How far tables of independent columns are from guesses: chance, and columns' noise."""
        found = {}
        for axes, guess in guesses.items():
            chance = MEAN * float(np.sqrt(guess).sum())
            found[axes] = (chance**_POWER + float(self.alone[list(axes)].sum())) ** (1 / _POWER)
        return found

    def columns_unsure(self, axes: Axes) -> float:
        """The variance of a distance by the noise of single columns."""
        return sum(self.parts.cell_variance((a,)) * self.sizes[a] for a in axes) * (1 - MEAN**2)

    def pairs_off(self) -> float:
        """How far off pairs of a tree will be by noise, as a share of the rows."""
        cells = float(np.median([prod(self.sizes[a] for a in pair) for pair in self.pairs]))
        variance = self.ask.variance(self.left / trees_joined(self.pairs))
        return MEAN * cells * sqrt(variance) / (2 * self.total)

    def item(self, axes: Axes, guess: Floats, far: float, *, precision: float = 0.0) -> Item:
        """A table that is so far from its guess, by its weight."""
        return Item.of(guess, far, weight=self.weights[axes], precision=precision)

    def glance(self, sets: Sequence[Axes]) -> Fraction:
        """The share of a look: the smallest with little noise, or the largest."""
        return next((s for s in _LOOKS if self.noise(s, sets) <= _FINE), _LOOKS[-1])

    def look(self, guesses: Mapping[Axes, Floats], share: Fraction) -> dict[Axes, float]:
        """How far tables are from guesses."""
        self.left -= share
        noisy = self.ask.distances(guesses, share)
        return self.beyond(dict(zip(guesses, noisy.values.tolist(), strict=True)))

    def beyond(self, far: Mapping[Axes, float]) -> dict[Axes, float]:
        """Distances without what the noise of single columns adds."""
        found = {}
        for axes, each in far.items():
            left = max(each, 0.0) ** _POWER - float(self.alone[list(axes)].sum())
            found[axes] = max(left, 0.0) ** (1 / _POWER)
        return found

    def split(self, items: Mapping[Axes, Item]) -> Fraction:
        """Which part of what is left goes to single columns: that with the least expected error.

        Pairs that are not linked by the items follow from their columns alone.
        """
        tree = trees_of(len(self.sizes), items)
        others = [(a, b) for a, b in self.pairs if tree[a] != tree[b]]
        rest = np.array(others, np.intp).reshape(-1, 2)
        weights = np.array([self.weights[pair] for pair in others])
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
            off = float(weights @ alone[rest].sum(axis=1) ** (1 / _POWER))
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
        self.singles = evened(self.parts, self.total)
        self.alone = self.columns_off(np.zeros(len(self.sizes))) ** _POWER

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
        used, asked = dict(targets), self.parts.precision
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
        """The guess, and what was measured beyond it as far as it is not noise."""
        table = guess.reshape([self.sizes[a] for a in axes])
        beyond = self.parts.values[axes].reshape(table.shape) - centred(table)
        return shrunk(table, beyond, 1 / self.parts.precision[axes]).ravel()

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
